"""JAX under the layers: the same numbers, a clean end, and what the layers show."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pjrt_hub.kit import tracing
from pjrt_hub.kit.tracing.arguments import inputs, results
from pjrt_hub.kit.tracing.recording import read

HERE = Path(__file__).parent
#: The number of times that a short program must end well.
EXITS = int(os.environ.get("TRACED_EXITS", "100"))


def test_training_gives_the_same_losses(run, trace, library, tmp_path):
    alone = run(HERE / "train.py")
    assert alone.returncode == 0, alone.stderr
    kept, timeline = tmp_path / "kept", tmp_path / "timeline.json"
    options = ["--validate", "--summary", "--output", kept, "--timeline", timeline]
    seen = trace(*options, "--", sys.executable, HERE / "train.py")
    assert seen.returncode == 0, seen.stderr
    assert "VAL" not in seen.stderr
    assert seen.stdout == alone.stdout
    assert len(alone.stdout.splitlines()) == 50

    recording = read(kept)
    assert recording.findings == []
    (plugin,) = recording.plugins.values()
    assert Path(plugin.path) == library
    counts = Counter(call.function for call in recording.calls)
    rows = dict(line.split()[:2] for line in seen.stderr.splitlines() if line.startswith("PJRT_"))
    assert rows == {function: str(count) for function, count in counts.items()}
    assert counts["PJRT_LoadedExecutable_Execute"] > 50
    assert counts["PJRT_Client_Create"] == counts["PJRT_Client_Destroy"] == 1

    events = json.loads(timeline.read_text())["traceEvents"]
    ends = Counter(event["ph"] for event in events)
    assert ends["X"] == len(recording.calls) + len(recording.upcalls)
    assert ends["s"] == ends["f"] >= 50
    tracks = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert tracks <= named


def test_what_jax_gives_and_gets_is_read_by_name(trace, row, tmp_path):
    kept = tmp_path / "kept"
    script = "import jax; print(jax.jit(lambda x: x * 2)(jax.numpy.arange(6.).reshape(2, 3)))"
    seen = trace("--output", kept, "--", sys.executable, "-c", script)
    assert seen.returncode == 0, seen.stderr
    calls = {call.function: call for call in read(kept).calls}
    minor = row.api_version.minor
    attributes = results(calls["PJRT_Plugin_Attributes"], minor)["attributes"]
    newest = [int(part) for part in row.stablehlo.split(".")]
    assert {"stablehlo_current_version": newest} in attributes
    compiled = inputs(calls["PJRT_Client_Compile"])
    assert compiled["program"]["format"] == b"mlir"
    assert compiled["program"]["code"].startswith(b"ML\xefR")
    execute = calls["PJRT_LoadedExecutable_Execute"]
    ((argument,),) = inputs(execute)["argument_lists"]
    ((output,),) = results(execute, minor)["output_lists"]
    assert argument > 0
    assert output > 0
    (dims,) = [
        results(call, minor)["dims"]
        for call in read(kept).calls
        if call.function == "PJRT_Buffer_Dimensions" and inputs(call)["buffer"] == output
    ][:1]
    assert dims == [2, 3]
    memories = results(calls["PJRT_Client_AddressableMemories"], minor)["addressable_memories"]
    assert len(memories) == 3 * 4
    line = [line for line in seen.stderr.splitlines() if "_Client_Compile(" in line][-1]
    assert f"executable={results(calls['PJRT_Client_Compile'], minor)['executable']}" in line


def test_a_capsule_of_a_wrapped_table_is_as_good_as_a_library(run, library, tmp_path):
    script = """
import ctypes, sys
from pjrt_hub.kit.tracing import wrap
entry = ctypes.CDLL(sys.argv[1]).GetPjrtApi
entry.restype = ctypes.c_void_p
capsule = ctypes.pythonapi.PyCapsule_New
capsule.restype = ctypes.py_object
capsule.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
name = ctypes.c_char_p(b"pjrt_c_api")
table = capsule(wrap(entry(), "validate,trace", sys.argv[2]), name, None)
from jax._src import xla_bridge
xla_bridge.register_plugin("seen", priority=500, c_api=table)
import jax
print(jax.jit(lambda x: x * 2)(1.))
"""
    only = {"JAX_PLATFORMS": "seen", "PJRT_NAMES_AND_LIBRARY_PATHS": ""}
    done = run("-c", script, library, tmp_path, **only)
    assert (done.returncode, done.stdout) == (0, "2.0\n"), done.stderr
    recording = read(tmp_path)
    assert recording.findings == []
    assert "PJRT_LoadedExecutable_Execute" in {call.function for call in recording.calls}


@pytest.mark.slow
@pytest.mark.night
@pytest.mark.timeout(1200)
def test_the_interpreter_exits_cleanly(run, tmp_path):
    script = "import jax; x = jax.numpy.ones(8); print(jax.jit(lambda x: (x * 2).sum())(x)); x + x"

    def ends(number: int) -> tuple[int, str, str]:
        folder = tmp_path / str(number)
        folder.mkdir()
        names = "validate,trace" if number % 2 else "trace"
        added = tracing.environment({}, names, folder)
        done = run("-c", script, **added)
        return done.returncode, done.stdout, done.stderr

    with ThreadPoolExecutor(2) as pool:
        outcomes = Counter(pool.map(ends, range(EXITS)))
    said = "Platform 'traced' is experimental"
    clean = {outcome: count for outcome, count in outcomes.items() if outcome[:2] == (0, "16.0\n")}
    assert sum(clean.values()) == EXITS, outcomes
    assert all(said in err and "terminate" not in err for _, _, err in clean)
