"""pjrt-hub itself over the real XLA CPU plugin, seen through the layers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pjrt_hub.kit.tracing.recording import read

TESTS = Path(__file__).parents[1]
RUN = ("-m", "pjrt_hub.cli", "run", TESTS / "programs" / "scalar.mlir", "--arg", "3.0")


def test_random_usage_is_without_misuse(trace, tmp_path):
    kept, usage = tmp_path / "kept", TESTS / "cpu" / "usage.py"
    seen = trace("--validate", "--output", kept, "--", sys.executable, "-W", "ignore", usage, "500")
    assert "Traceback" not in seen.stderr
    recording = read(kept)
    assert len(recording.calls) > 2000
    assert {thread.lost for thread in recording.threads} == {0}
    # Donated buffers are used on purpose: the plugin must refuse them, and does.
    failed = {(call.thread.pid, call.number) for call in recording.calls if call.error}
    assert {finding.code for finding in recording.findings} <= {"VAL004"}
    assert {(found.thread.pid, found.call) for found in recording.findings} <= failed


def test_a_process_sees_its_own_calls_without_a_preload(run, trace, row, tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir()
    layers = {"PJRT_HUB_LAYERS": "trace,validate", "PJRT_HUB_TRACE": str(folder)}
    done = run(*RUN, **layers)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(trace("--from", folder, "--log", "--summary", "--json").stdout)
    (plugin,) = told["plugins"]
    assert plugin["api_version"] == str(row.api_version)
    functions = [call["function"] for call in told["calls"]]
    assert functions[0] == "PJRT_Plugin_Initialize"
    assert "PJRT_LoadedExecutable_Execute" in functions
    assert told["findings"] == []
    assert {row["function"] for row in told["summary"]} == set(functions)


def test_both_ways_in_record_each_call_once(trace, tmp_path):
    kept = tmp_path / "kept"
    assert trace("--output", kept, "--", sys.executable, *RUN).returncode == 0
    recording = read(kept)
    executions = [c for c in recording.calls if c.function == "PJRT_LoadedExecutable_Execute"]
    assert len(executions) == 1


def test_a_topology_that_the_client_lends_is_not_destroyed_twice(run, library):
    script = """
import sys
from pjrt_hub.kit.tracing import wrap
from pjrt_hub.running.capi import library
from pjrt_hub.running.client.plugin import Plugin
api = library.load(sys.argv[1], through=lambda table: wrap(table, "validate"))
plugin = Plugin(api)
client = plugin.client({"cpu_device_count": 1})
topology = plugin.api.call("PJRT_Client_TopologyDescription", client=client.address)
plugin.api.call("PJRT_TopologyDescription_Destroy", topology=topology)
client.close()
"""
    done = run("-c", script, library)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("pjrt-hub: VAL016 destroyed, but it belongs to its client: #")


def test_only_what_is_asked_for_is_shown(trace, tmp_path):
    kept, command = tmp_path / "kept", (sys.executable, *RUN)
    seen = trace("--filter", "*Execute", "--output", kept, "--", *command)
    (line,) = seen.stderr.splitlines()
    assert "PJRT_LoadedExecutable_Execute(" in line
    again = trace("--from", kept, "--filter", "*Execute")
    assert again.stdout.splitlines() == [line]
    assert trace("--output", kept, "--", *command).returncode == 2  # the folder is not empty
    assert trace().returncode == 2


def test_a_function_is_taken_away_from_a_program(trace):
    script = """
import pjrt_hub
client = pjrt_hub.client("cpu")
try:
    client.memories[0].kind
except pjrt_hub.errors.UnimplementedError as exc:
    print(str(exc).splitlines()[0])
"""
    taken = ["--without", "PJRT_Memory_Kind", "--without", "Layouts", "--filter", "*Memory_Kind"]
    seen = trace(*taken, "--", sys.executable, "-c", script)
    assert seen.stdout == "PJRT_Memory_Kind is taken away\n", seen.stderr
    assert "-> UNIMPLEMENTED: PJRT_Memory_Kind is taken away" in seen.stderr
    refused = trace("--without", "PJRT_Memory_Kin", "--", sys.executable, "-c", script)
    assert "cannot take away 'PJRT_Memory_Kin'" in refused.stderr


def test_layers_that_the_user_named_stay(trace):
    script = """
import os, pjrt_hub
print(pjrt_hub.client("cpu").devices[0].kind, os.environ["PJRT_HUB_LAYERS"])
"""
    env = {
        "PJRT_HUB_LAYERS": " discrete, trace,without",
        "PJRT_HUB_WITHOUT": "Layouts",
        "PJRT_HUB_DISCRETE": "seed=7",
        "PJRT_HUB_JAX": "cpu",
    }
    taken = ["--without", "PJRT_Memory_Kind_Id", "--filter", "*Client_Create"]
    seen = trace(*taken, "--", sys.executable, "-c", script, **env)
    kind, names = seen.stdout.split()
    assert (kind, names) == ("discrete", "trace,without,discrete,pad"), seen.stderr
    assert "PJRT_Client_Create(" in seen.stderr


def test_the_status_is_the_programs(trace, tmp_path):
    ends = {"raise SystemExit(7)": 7, "import os; os.kill(os.getpid(), 9)": 137, "": 0}
    for script, status in ends.items():
        seen = trace("--", sys.executable, "-c", script)
        assert seen.returncode == status
        assert "asked no library for GetPjrtApi" in seen.stderr
    assert trace("--", "/nowhere/at/all").returncode == 2
    script = tmp_path / "train.py"
    script.touch()
    said = " ".join(trace("--", script, "--fast").stderr.split())
    assert f"{script} is a file, and not a program that can be started." in said
    assert said.endswith(f"Did you mean `pjrt-hub trace -- python {script} --fast`?")
