"""What the checks, but for those of single ops, say of the XLA CPU plugin."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Verdict
from pjrt_hub.kit.conformance.check import AREAS, checks

pytestmark = pytest.mark.timeout(1200)  # the first to ask waits for the report

#: All but the ops, whose known results test_known_ops.py has.
CHECKED = tuple(area for area in AREAS if area != "ops")

#: Its defects: the check -> the verdict, and what the text says.
DEFECTS = {
    "buffers.type_invalid": (Verdict.CRASH, "SIGABRT"),
    "buffers.type_token": (Verdict.CRASH, "SIGABRT"),
    "buffers.type_unknown": (Verdict.CRASH, "SIGSEGV"),
    "client.assignment_overflow": (Verdict.CRASH, "SIGABRT"),
    "client.assignment_zero": (Verdict.CRASH, "SIGABRT"),
    "client.mistyped_option": (Verdict.FAIL, "cpu_device_count = 'wrong': the process died"),
    "client.unknown_option": (Verdict.FAIL, "expected an error, found success"),
    "compile.empty_options": (Verdict.CRASH, "SIGABRT"),
    "execute.argument_of_another_type": (Verdict.FAIL, "an f32[4] and an s32[4]"),
    "execute.deleted_executable": (Verdict.FAIL, "IsDeleted after Delete: expected True"),
    "plugin.older_memory_stats": (Verdict.FAIL, "found 48 bytes of the caller's memory changed"),
    "serialization.flipped": (Verdict.CRASH, "in PJRT_Executable_DeserializeAndLoad"),
    "transfers.parts_past_the_end": (Verdict.TIMEOUT, "did not end within"),
    "transfers.raw_of_running_work": (Verdict.CRASH, "SIGSEGV"),
    "transfers.with_host_layout": (Verdict.FAIL, "the values by columns: expected [1.0, 4.0, 2.0"),
}
#: Seen only while work runs: a machine that stops the check for as long lets it find nothing.
BRIEF = "transfers.raw_of_running_work"
#: Facts of checks that pass: what their notes say.
NOTES = {
    "buffers.alias_fails": "returns the very error that it was given",
    "client.assignment_negative": "FAILED_PRECONDITION, where INVALID_ARGUMENT is usual",
    "client.buffer_outlives_client": "works",
    "compile.artifact_of_newer_version": "takes an artifact of StableHLO 1.14.0",
    "compile.hlo_proto": "takes an HloModuleProto",
    "compile.junk_mlir": "UNKNOWN, where INVALID_ARGUMENT is usual",
    "compile.mhlo_text": "takes MHLO text",
    "donation.must_alias_of_kept": "gets a copy",
    "donation.referenced": "makes a copy",
    "errors.unknown_codes": "UNKNOWN in 1 of 6: junk as a program",
    "execute.argument_of_another_shape": "an f32[2,2] is accepted",
    "extensions.node_functions": "PhaseCompile: NULL are PJRT_PhaseCompile_Get_Compiler",
    "extensions.second_handler": "a second handler is taken without an error",
    "kv_store.callbacks": "asked the store: nothing",
    "plugin.absent_functions": "absent of 138 functions: PJRT_Client_CreateErrorBuffer",
    "plugin.older_client_create": "takes no PJRT_Client_Create_Args of 72 bytes",
    "plugin.older_execute_options": "takes no PJRT_ExecuteOptions of 72 bytes",
    "runtime.types": "types that pass through a program: i1, i8,",
    "topology.device_descriptions": "1 x cpu",
    "transfers.bandwidth": "GB/s to the device",
    "transfers.memory_immutable_zero_copy": "the memory is shared",
    "transfers.to_the_same_device": "the header calls it an error",
    "transfers.without_host_layout": "here by columns",
}
#: What it lacks beside what is newer: an extension, a compiler ahead of time, counts of memory.
LACKS = {
    "client.dma_map": "DmaMap not supported on platform cpu",
    "devices.memory_in_use": "GetAllocatorStats is not supported",
    "devices.memory_stats": "GetAllocatorStats is not supported",
    "execute.exchange": "`send` is not supported",
    "extensions.abi_version_of_junk": "no extension AbiVersion",
    "extensions.abi_versions": "no extension AbiVersion",
    "extensions.first_phase": "there the plugin has NULL",
    "extensions.memory_descriptions": "the plugin describes no memories",
    "extensions.parameter_layouts": "the plugin's node has 72 bytes",
    "extensions.phase_names": "there the plugin has NULL",
    "extensions.raw_buffer": "no extension RawBuffer",
    "extensions.shardings": "no extension Shardings",
    "extensions.stream": "no extension Stream",
    "extensions.triton_of_junk": "no extension Triton",
    "extensions.unknown_phase": "there the plugin has NULL",
    "kv_store.lost_store": "asked no store",
    "kv_store.two_processes": "asked no store",
    "memories.output_kinds": "GetOutputMemoryKinds is not supported",
    "plugin.older_device_memory_stats": "GetAllocatorStats is not supported",
    "topology.compile_artifacts": "No compiler registered for platform cpu",
    "topology.compile_for_it": "No compiler registered for platform cpu",
    "topology.compile_junk": "No compiler registered for platform cpu",
    "topology.create_by_unknown_name": "not supported for CPU compilation",
    "topology.create_unnamed": "not supported for CPU compilation",
    "topology.deserialize": "No compiler registered for platform",
    "topology.deserialize_junk": "No compiler registered for platform",
}


@pytest.fixture(scope="module")
def report():
    return conformance.run("cpu", areas=CHECKED, offline=True)


def test_its_defects_are_found(report):
    defects = list(report.defects)
    if report[BRIEF].verdict == Verdict.PASS:
        defects += conformance.run("cpu", names=[BRIEF], offline=True).defects
    found = {each.name: (each.verdict, each.text) for each in defects}
    assert sorted(found) == sorted(DEFECTS)
    for name, (verdict, text) in DEFECTS.items():
        assert found[name][0] == verdict
        assert text in found[name][1]


def test_what_it_lacks_is_unsupported(report):
    version = int(report.plugin.api_version.partition(".")[2])
    newer = {each.name for each in checks() if each.area in CHECKED and each.since > version}
    found = {each.name for each in report.results if each.verdict == Verdict.UNSUPPORTED}
    assert sorted(found) == sorted(newer | LACKS.keys())
    assert [name for name, text in LACKS.items() if text not in report[name].text] == []


def test_nothing_is_skipped(report):
    assert [each.name for each in report.results if each.verdict == Verdict.SKIP] == []


@pytest.mark.parametrize("name", NOTES)
def test_what_is_worth_telling_is_noted(report, name):
    assert report[name].verdict == Verdict.PASS
    assert NOTES[name] in " ".join(report[name].notes)


def test_every_number_has_a_check():
    assert {each.number for each in checks()} - {0} == {*range(1, 150)}


#: The areas that run programs and move their data.
RUNNING = ("execute", "buffers", "transfers", "events", "donation", "external")
#: What their checks do on purpose: use what was deleted or donated, and name types that are none.
MEANT = {"VAL003", "VAL004", "VAL020"}


def test_they_misuse_the_c_api_only_on_purpose():
    cli = [sys.executable, "-m", "pjrt_hub.cli"]
    areas = [word for area in RUNNING for word in ("--area", area)]
    command = [*cli, "trace", "--validate", "--", *cli, "check", "cpu", *areas]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1000)
    assert done.returncode == 1, done.stderr
    assert set(re.findall(r"^VAL[0-9]+", done.stderr, re.MULTILINE)) == MEANT, done.stderr
