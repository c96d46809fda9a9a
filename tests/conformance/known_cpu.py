"""What is known of each generation of XLA's CPU plugin: its defects, its gaps, and other facts."""

from __future__ import annotations

from typing import NamedTuple

from packaging.specifiers import SpecifierSet

from pjrt_hub.kit.conformance import Verdict
from pjrt_hub.kit.conformance.check import AREAS

#: All areas except the ops, whose known results are in test_known_ops.py.
CHECKED = tuple(area for area in AREAS if area != "ops")


class Known(NamedTuple):
    """What a check says of some builds.

    Attributes:
        check: its name.
        text: a part of its text, or of one of its notes.
        builds: the versions of the PJRT API of these builds; empty means all.
        verdict: how the check ends on them.
        by_chance: whether it depends on the machine: what lies in the memory that the plugin reads,
            or what its compiler writes for the processor.
    """

    check: str
    text: str
    builds: str = ""
    verdict: Verdict = Verdict.FAIL
    by_chance: bool = False


def of(known: list[Known], api_version: str) -> dict[str, Known]:
    """Return what is known of a build, by the name of the check."""
    return {each.check: each for each in known if api_version in SpecifierSet(each.builds)}


def alike(area: str, checks: str, text: str, builds: str) -> list[Known]:
    """Return an entry for each of several checks of an area, of which the same is known."""
    return [Known(area + each, text, builds) for each in checks.split()]


TAKEN, LOADS = "expected an error, found success", "PJRT_Executable_DeserializeAndLoad"
DEFECTS = [
    Known("buffers.type_invalid", "SIGABRT", "<0.115", Verdict.CRASH),
    Known("buffers.type_invalid", "SIGABRT", ">=0.115", Verdict.CRASH, by_chance=True),
    Known("buffers.type_token", "SIGABRT", "<0.115", Verdict.CRASH),
    Known("buffers.type_unknown", "SIGSEGV", "<0.115", Verdict.CRASH),
    Known("buffers.type_unknown", "SIGABRT", ">=0.115", Verdict.CRASH, by_chance=True),
    Known("client.assignment_overflow", "SIGABRT", "<0.115", Verdict.CRASH),
    Known("client.assignment_zero", "SIGABRT", "<0.115", Verdict.CRASH),
    Known("client.mistyped_option", "cpu_device_count = 'wrong': the process died", "<0.115"),
    Known("client.unknown_option", TAKEN, "<0.115"),
    Known("compile.empty_options", "SIGABRT", "", Verdict.CRASH),
    Known("execute.argument_of_another_type", "an f32[4] and an s32[4]"),
    Known("execute.deleted_executable", "IsDeleted after Delete: expected True", "<0.115"),
    Known("execute.deleted_executable", f"a run of a deleted executable: {TAKEN}", ">=0.115"),
    Known("plugin.older_memory_stats", "found 48 bytes of the caller's memory changed", "<0.106"),
    Known("serialization.flipped", f"in {LOADS}", "<0.115", Verdict.CRASH),
    Known("serialization.flipped", f"in {LOADS}", ">=0.115", Verdict.CRASH, by_chance=True),
    Known("transfers.device_layout", "found [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]", "==0.106"),
    Known("transfers.parts_past_the_end", "did not end within", "<0.106", Verdict.TIMEOUT),
    Known("transfers.raw_of_running_work", "SIGSEGV", "<0.106", Verdict.CRASH),
    Known("transfers.with_host_layout", "the values by columns: expected [1.0, 4.0, 2.0", "<0.106"),
]
#: It shows only while work runs: the check finds nothing if the machine delays it that long.
BRIEF = "transfers.raw_of_running_work"
#: A check is skipped with this text if the launch ended before it could be poisoned.
OVER = "the launch was not poisoned: it may have been over"
#: Facts that passing checks report in their notes, with words that several notes share.
UNUSUAL, ABSENT = "where INVALID_ARGUMENT is usual", "absent of 138 functions: PJRT_"
MAKES = "TopologyDescription_MakeCanonicalShapeForMemorySpace"
NOTES = [
    Known("buffers.alias_fails", "returns the very error that it was given"),
    Known("client.assignment_negative", f"FAILED_PRECONDITION, {UNUSUAL}", "<0.115"),
    Known("client.buffer_outlives_client", "works"),
    Known("compile.artifact_of_newer_version", "takes an artifact of StableHLO 1.14.0", "<0.106"),
    Known("compile.artifact_of_newer_version", "takes an artifact of StableHLO 1.17.0", "==0.106"),
    Known("compile.artifact_of_newer_version", "takes an artifact of StableHLO 1.21.0", ">=0.115"),
    Known("compile.hlo_proto", "takes an HloModuleProto"),
    Known("compile.junk_mlir", f"UNKNOWN, {UNUSUAL}"),
    Known("compile.mhlo_text", "takes MHLO text"),
    Known("donation.must_alias_of_kept", "gets a copy", "<0.115"),
    Known("donation.referenced", "makes a copy"),
    Known("errors.unknown_codes", "UNKNOWN in 1 of 6: junk as a program"),
    Known("execute.argument_of_another_shape", "an f32[2,2] is accepted"),
    Known("extensions.node_functions", "PhaseCompile: NULL are PJRT_PhaseCompile_Get_Compiler"),
    Known("extensions.second_handler", "a second handler is taken without an error"),
    Known("kv_store.callbacks", "asked the store: nothing"),
    Known("plugin.absent_functions", f"{ABSENT}Client_CreateErrorBuffer", "<0.106"),
    Known("plugin.absent_functions", ABSENT + MAKES, "==0.106"),
    Known("plugin.older_client_create", "takes no PJRT_Client_Create_Args of 72 bytes"),
    Known("plugin.older_execute_options", "takes no PJRT_ExecuteOptions of 72 bytes"),
    Known("runtime.types", "types that pass through a program: i1, i8,"),
    Known("topology.device_descriptions", "1 x cpu"),
    Known("transfers.bandwidth", "GB/s to the device"),
    Known("transfers.memory_immutable_zero_copy", "the memory is shared"),
    Known("transfers.to_the_same_device", "the header calls it an error"),
    Known("transfers.without_host_layout", "here by columns"),
]
#: What builds lack besides newer functions: extensions, compiling ahead of time, memory counts.
LACKS = [
    Known("client.dma_map", "DmaMap is not supported", ">=0.115"),
    Known("client.dma_map", "DmaMap not supported on platform cpu", "<0.115"),
    Known("devices.clear_memory_stats", "GetAllocatorStats is not supported", ">=0.106"),
    Known("devices.memory_in_use", "GetAllocatorStats is not supported"),
    Known("devices.memory_stats", "GetAllocatorStats is not supported"),
    Known("execute.exchange", "`send` is not supported"),
    Known("extensions.abi_version_of_junk", "no extension AbiVersion"),
    Known("extensions.abi_versions", "no extension AbiVersion"),
    Known("extensions.first_phase", "there the plugin has NULL"),
    Known("extensions.memory_descriptions", "the plugin describes no memories"),
    Known("extensions.parameter_layouts", "the plugin's node has 72 bytes", "<0.106"),
    Known("extensions.phase_names", "there the plugin has NULL"),
    Known("extensions.raw_buffer", "no extension RawBuffer"),
    Known("extensions.shardings", "no extension Shardings", "<0.106"),
    Known("extensions.stream", "no extension Stream"),
    Known("extensions.triton_of_junk", "no extension Triton"),
    Known("extensions.unknown_phase", "there the plugin has NULL"),
    Known("kv_store.lost_store", "asked no store", "<0.115"),
    Known("kv_store.lost_store", "takes no node_id and num_nodes", ">=0.115"),
    Known("kv_store.two_processes", "asked no store", "<0.115"),
    Known("kv_store.two_processes", "takes no node_id and num_nodes", ">=0.115"),
    Known("memories.output_kinds", "GetOutputMemoryKinds is not supported", "<0.115"),
    Known("memories.parameter_kinds", "GetParameterMemoryKinds is not supported", "==0.106"),
    Known("plugin.older_device_memory_stats", "GetAllocatorStats is not supported"),
    Known("serialization.load_twice", "No compiler factory for platform: cpu", "==0.106"),
    Known("topology.create_by_unknown_name", "not supported for CPU compilation"),
    Known("topology.create_unnamed", "not supported for CPU compilation"),
]
LACKS += alike("analysis.", "costs flops stable", "GetCostAnalysis is not implemented", ">=0.106")
COMPILING, LOADING = "compile_artifacts compile_for_it compile_junk", "deserialize deserialize_junk"
LACKS += alike("topology.", COMPILING, "No compiler registered for platform cpu", "<0.106")
LACKS += alike("topology.", LOADING, "No compiler registered for platform", "<0.106")
ALL = f"{COMPILING} {LOADING} load_what_was_compiled"
LACKS += alike("topology.", ALL, "No compiler factory for platform: cpu", "==0.106")
DONATING = "control_dependency control_dependency_fails"
LACKS += alike("donation.", DONATING, "DonateWithControlDependency is not supported", "==0.106")
