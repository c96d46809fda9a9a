"""Profiles of JAX as JAX itself reads them, and devices of programs that know nothing of it."""

from __future__ import annotations

import json
import sys

import pytest

from pjrt_hub.kit.tracing import devices, xspace
from pjrt_hub.kit.tracing.recording import profiles_of, read

COMPUTE = """
import sys, jax, jax.numpy as jnp
from contextlib import nullcontext
with jax.profiler.trace(sys.argv[1]) if sys.argv[1:] else nullcontext():
    f = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ x), x))
    x = jnp.ones((256, 256)) / 256
    for _ in range(5):
        x = f(x)
    print(float(x[0, 0]).hex())
"""


@pytest.fixture(scope="module")
def compared() -> object:
    profiler = pytest.importorskip("jax.profiler", reason="needs JAX")
    return profiler.ProfileData


def test_every_event_is_that_of_jaxs_own_reading(run, compared, tmp_path):
    """JAX's own backend for CPUs gives a profile with operations; names are equal, and times."""
    done = run("-c", COMPUTE, tmp_path, JAX_PLATFORMS="cpu", PJRT_NAMES_AND_LIBRARY_PATHS="")
    assert done.returncode == 0, done.stderr
    [path] = profiles_of(tmp_path)
    ours, read_by_jax = xspace.read(path), list(compared.from_file(str(path)).planes)
    [environment] = [plane for plane in read_by_jax if plane.name == "Task Environment"]
    began, count = dict(environment.stats)["profile_start_time"], 0
    for theirs, plane in zip(read_by_jax, ours.planes, strict=True):
        assert theirs.name == plane.name
        for expected, line in zip(theirs.lines, plane.lines, strict=True):
            assert expected.name == line.name
            rows = zip(*(column.tolist() for column in line[1:]), strict=True)
            for event, (start_ns, duration_ps, title) in zip(expected.events, rows, strict=True):
                assert event.name == plane.names[title]
                assert abs(event.start_ns - (start_ns - began)) <= 1
                assert abs(event.duration_ns - duration_ps / 1000) <= 1
                count += 1
            marked = {event.name for event in expected.events if "hlo_op" in dict(event.stats)}
            assert marked <= {plane.names[title] for title in plane.operations}
    assert count > 1000
    [device] = devices.devices(0, ours)
    counts = {operation.name: operation.runs for operation in device.operations}
    assert 15 in counts.values()  # three steps of a loop, five times
    assert 0 < device.busy <= device.span


def test_a_device_of_a_program(trace, run, tmp_path):
    alone = run("-c", COMPUTE)
    kept, timeline = tmp_path / "kept", tmp_path / "timeline.json"
    options = ["--device", "--output", kept, "--timeline", timeline]
    seen = trace(*options, "--", sys.executable, "-c", COMPUTE)
    assert (seen.returncode, seen.stdout) == (0, alone.stdout), seen.stderr
    assert "device 0 of process " in seen.stderr
    [told] = json.loads(trace("--device", "--json", "--from", kept).stdout)["devices"]
    assert told["name"] == "device 0"
    counts = {each["name"]: each["runs"] for each in told["operations"]}
    assert counts["jit__lambda"] == 5
    recording = read(kept)
    executions = [c for c in recording.calls if c.function == "PJRT_LoadedExecutable_Execute"]
    assert sum(counts.values()) == len(executions) == len(recording.ends)
    waits = {each["function"]: each["total"] for each in told["waits"]}
    assert {"PJRT_Client_Compile", devices.NO_CALL} <= set(waits)
    assert told["busy"] + sum(waits.values()) == pytest.approx(told["span"])
    # On the timeline, each execution ends after its call began, and before the client is gone.
    events = json.loads(timeline.read_text())["traceEvents"]
    ended = sorted(e["ts"] + e["dur"] for e in events if e.get("cat") == "device")
    began = sorted(e["ts"] for e in events if e["name"] == "PJRT_LoadedExecutable_Execute")
    [gone] = [e["ts"] for e in events if e["name"] == "PJRT_Client_Destroy"]
    assert len(ended) == len(began)
    assert all(start < end < gone for start, end in zip(began, ended, strict=True))


def test_a_profile_of_jax_is_on_the_clock_of_the_calls(trace, compared, tmp_path):
    """JAX's own events round the same calls contain them, to the hundredth of a second."""
    kept = tmp_path / "kept"
    seen = trace("--output", kept, "--", sys.executable, "-c", COMPUTE, kept / "jax")
    assert seen.returncode == 0, seen.stderr
    recording = read(kept)
    [(pid, profile)] = devices.profiles(kept, recording)
    assert pid == recording.threads[0].pid
    around = sorted(
        (start - recording.zero_ns, start - recording.zero_ns + duration / 1000)
        for plane in profile.planes
        for line in plane.lines
        for start, duration, title in zip(*(each.tolist() for each in line[1:]), strict=True)
        if plane.names[title] == "PjRtCApiLoadedExecutable::Execute"
    )
    calls = [c for c in recording.calls if c.function == "PJRT_LoadedExecutable_Execute"]
    assert len(around) == len(calls) > 5
    for (start, end), call in zip(around, calls, strict=True):
        assert start - 1e7 < call.start_ns < end + 1e7
