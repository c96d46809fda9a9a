"""Plugins with one defect of behaviour each, and the check that must find it."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Verdict
from pjrt_hub.kit.conformance.check import checks

pytestmark = pytest.mark.timeout(1200)  # a test may wait for others in the pool

SOURCES = sorted((Path(__file__).parent / "defects").glob("*.c"))
#: A defect -> the source file that contains it.
PLACES = {
    name: source
    for source in SOURCES
    for name in re.findall(r"^[A-Z_]+\(([a-z]\w+)[,)]", source.read_text(), re.MULTILINE)
}
#: A placeholder in each library, over which the name of its defect is written.
BLANK = b"the name of the defect is written over this"
#: The stub without a defect, in which the defects of the newest functions are planted.
NONE = "none"
#: These are no defects: the header allows them, and a note of a check reports each.
ALLOWED = {
    "attributes_move": (
        "plugin.attributes_are_kept",
        "PJRT_Plugin_Attributes, asked again: the list lies at another address",
    ),
    "donates_and_aliases_nothing": (
        "analysis.memory_stats_of_donation",
        "tells no alias, and donates nothing, which it need not do",
    ),
    "tidies_up": ("client.process", "sets environment variables: OWN_OF_CLIENT"),
    "of_another_device": ("hosts.jax_0_10_2", "JAX 0.10.2 runs"),
    "donates_nothing": (
        "donation.donated",
        "donates nothing of 1 argument(s) that it might take over",
    ),
}
#: With these defects, the process of the check does not end.
HANGS = {"callback_under_lock"}
#: The minor version of the PJRT API of the XLA CPU plugin that the tests use.
REAL_MINOR = 81
#: A defect -> the check that is meant for it, and a part of the text of its result.
DEFECTS = {
    "aborts_at_exit": ("client.exit", "died of SIGABRT"),
    "aborts_on_truths": (
        "client.mistyped_option",
        "stub_int64 = True: the process died of SIGABRT",
    ),
    "aliases_nothing": ("analysis.memory_stats_of_donation", "expected 16384 or more, found 0"),
    "all_dynamic": ("buffers.dimensions", "the dynamic dimensions of f32[]"),
    "always_ready": ("events.is_ready_is_not_early", "expected false during work, found true"),
    "another_fingerprint_each_time": ("compile.fingerprint", "the fingerprint, asked again"),
    "another_type": ("buffers.round_trip_float32", "expected 11, found 12"),
    "answers_early": ("transfers.raw_later", "expected false, found true"),
    "any_artifact": ("compile.artifact_of_minimum_version", "expected success"),
    "any_destination": ("transfers.small_destination", "expected an error, found success"),
    "any_format": ("compile.unknown_format", "expected an error, found success"),
    "any_options": ("compile.junk_options", "expected an error, found success"),
    "any_struct_size": ("plugin.empty_structs", "expected an error, found success"),
    "arguments_of_no_size": ("analysis.memory_stats", "expected 32768 or more, found 0"),
    "assigned_to_the_first": ("compile.device_assignment", "the addressable devices"),
    "assigns_into_any_room": ("client.assignment_too_small", "expected an error, found success"),
    "assigns_no_device": ("client.default_assignment", "the device ids"),
    "attribute_twice": ("plugin.attributes", "different names among the attributes"),
    "attributes_change": ("plugin.attributes_are_kept", "the attributes, asked again"),
    "blocks_signals": ("client.process", "blocked signals is"),
    "callback_never": ("events.callback_after_completion", "expected [None], found []"),
    "callback_twice": ("events.callback_before_completion", "found [None, None]"),
    "callback_under_lock": ("events.callback_uses_its_event", "20 s in PJRT_Event_IsReady"),
    "called_early": ("events.callback_is_not_early", "found during it"),
    "casts_and_keeps": ("buffers.bitcast", "IsDeleted of the source: expected True"),
    "casts_any_size": ("buffers.bitcast_to_another_size", "expected an error, found success"),
    "changes_environment": ("client.process", "the variable PATH is '/nowhere'"),
    "changes_folder": ("client.process", "the working folder is / after PJRT_Client_Create"),
    "changes_locale": ("client.process", "the locale is C after PJRT_Client_Create"),
    "closes_stdin": ("client.process", "files 0 are closed after PJRT_Client_Create"),
    "code_out_of_range": ("errors.codes", "expected a code from 1 to 16, found 77"),
    "complete_early": ("execute.complete_is_not_early", "found it during it"),
    "copies_stay": ("memories.copies", "the memory of"),
    "copies_views": ("external.view_of_changing_memory", "found [1.0, 2.0, 3.0, 4.0]"),
    "costs_change": ("analysis.stable", "the costs, asked again"),
    "costs_not_finite": ("analysis.costs", "found nan"),
    "counts_references_twice": ("external.too_few_references", "expected an error, found success"),
    "created_ready": ("events.created_is_pending", "expected false, found true"),
    "cut_executable": ("serialization.round_trip", "expected success"),
    "cut_node": ("extensions.node_sizes", "found its end inside it"),
    "cut_raw_copy": ("transfers.raw_past_the_end", "expected an error, found success"),
    "default_memory_elsewhere": ("memories.default_memory", "found another"),
    "deleter_early": ("external.view_destroyed", "expected 0, found 1"),
    "deleter_twice": ("external.view_deleted", "expected 1, found 2"),
    "deletes_nothing": ("buffers.read_of_deleted", "expected an error, found success"),
    "describes_one_device": ("topology.of_client", "device descriptions"),
    "devices_of_another_process": ("devices.process_index", "expected 0, found 5"),
    "devices_of_no_memory": ("memories.devices_of_memories", "found 0"),
    "dies_of_pipes": ("client.process", "the handlers of SIGPIPE are others"),
    "dimensions_in_one_place": ("buffers.answers_stay", "PJRT_Buffer_Dimensions answered"),
    "donates_and_keeps": ("donation.control_dependency", "IsDeleted of the source"),
    "donates_what_is_kept": ("donation.kept", "IsDeleted of a: expected [False], found [True]"),
    "done_early": ("transfers.memory_of_running_work", "another value than computed"),
    "done_unread": ("transfers.memory_until_transfer", "other values than were put"),
    "drops_arguments": ("execute.too_many_arguments", "expected an error, found success"),
    "each_part_is_the_last": ("transfers.parts", "expected false, found true"),
    "eats_arguments": ("execute.add_again", "expected success, found INVALID_ARGUMENT"),
    "empty_topology": ("topology.serialize", "found none"),
    "exact_struct_size": ("plugin.longer_structs", "with 64 bytes more: expected success"),
    "exits_on_leaks": ("client.exit_without_destroy", "exited with 3"),
    "failed_as_internal": ("buffers.error_buffer", "expected DATA_LOSS, found INTERNAL"),
    "failed_without_payload": ("buffers.error_buffer_with_payload", "found {}"),
    "fails_without_words": ("transfers.parts_of_a_failed_buffer", "the text of the error"),
    "finds_the_first": ("devices.look_up", "the device of id 1"),
    "finds_unknown_devices": ("devices.look_up_unknown", "expected an error, found success"),
    "flushes_denormals": ("client.process", "become 0 is True after PJRT_LoadedExecutable_Execute"),
    "forgets_devices": ("devices.lists_are_kept", "PJRT_Client_Devices, asked again: expected ["),
    "forgets_options": ("compile.compile_options", "profile_version of the options"),
    "frees_chunks_twice": ("execute.exchange", "how many of two chunks were freed"),
    "goes_on_alone": ("kv_store.lost_store", "found a client of 1 process(es)"),
    "half_the_size": ("buffers.on_device_size", "expected at least 16, found 8"),
    "hangs_at_exit": ("client.exit", "did not end within"),
    "keeps_and_frees": ("leaks.get", "bytes of malloc"),
    "keeps_buffers": ("leaks.put", "bytes of malloc"),
    "keeps_errors": ("leaks.error", "bytes of malloc"),
    "keeps_files": ("leaks.client", "1 open files"),
    "keeps_of_callbacks": ("leaks.event", "bytes of malloc"),
    "keeps_of_copies": ("leaks.copy", "bytes of malloc"),
    "keeps_of_events": ("leaks.event", "bytes of malloc"),
    "keeps_of_gets": ("leaks.get", "bytes of malloc"),
    "keeps_of_loads": ("leaks.deserialize", "bytes of malloc"),
    "keeps_of_programs": ("leaks.compile", "bytes of malloc"),
    "keeps_of_runs": ("leaks.execute", "bytes of malloc"),
    "keeps_pages": ("leaks.transfer", "resident bytes"),
    "keeps_threads": ("leaks.client", "1 threads"),
    "kind_not_utf8": ("devices.texts", "expected UTF-8"),
    "kinds_in_one_place": ("memories.answers_stay", "PJRT_Memory_ToString answered"),
    "layout_by_columns": ("runtime.outputs", "the second output, by to_numpy: expected"),
    "layout_of_one": ("extensions.default_layout", "found {0}"),
    "literal_by_columns": ("transfers.literal", "the values"),
    "loads_anything": ("serialization.junk", "expected an error, found success"),
    "loses_priority": ("client.process", "the priority is 19"),
    "lowers_limits": ("client.process", "RLIMIT_NOFILE is"),
    "major_to_minor": ("buffers.layout", "by the layout (0, 1)"),
    "memory_twice": ("memories.lists", "different memories"),
    "message_changes": ("errors.messages", "its message, asked again"),
    "message_not_utf8": ("errors.messages", "UTF-8"),
    "minimum_above_current": ("plugin.attributes", "found (99, 0, 0)"),
    "more_than_its_limit": ("devices.memory_stats", "10 bytes in use of 5"),
    "name_in_one_place": ("compile.answers_stay", "PJRT_Executable_Name answered"),
    "nameless_attribute": ("devices.live_attributes", "a name of each attribute"),
    "negative_id": ("devices.ids", "expected ids from 0"),
    "negative_offset": ("transfers.raw_from_before", "expected an error, found success"),
    "never_deleted": ("buffers.delete", "expected True, found False"),
    "never_ready": ("events.ready", "expected true, found false"),
    "no_complete_events": ("execute.complete_events", "expected 1, found 0"),
    "no_empty_raw_copies": ("transfers.raw", "expected success, found INVALID_ARGUMENT"),
    "no_flops": ("analysis.flops", "found 7"),
    "no_offset": ("transfers.raw", "the bytes from 4 to 12"),
    "no_size": ("transfers.size_for_the_host", "expected 24, found 0"),
    "no_strides": ("transfers.strides_by_columns", "the values"),
    "node_before_text": ("extensions.chain", "a node of 24 to 65536 bytes, found"),
    "node_of_its_base": ("extensions.node_sizes", "Layouts: expected the"),
    "node_of_nothing": ("extensions.node_functions", "found NULL: PJRT_FFI_Type_Register"),
    "node_past_its_end": ("extensions.node_functions", "or the address of code, found 0x5a5a"),
    "node_twice": ("extensions.chain", "more than once"),
    "node_with_a_hole": ("extensions.node_functions", "found NULL: PJRT_Layouts_MemoryLayout_Ser"),
    "nothing_addressable": ("devices.addressable", "expected True, found False"),
    "nul_in_name": ("client.platform", "expected text"),
    "null_pointer": ("external.pointer", "found NULL"),
    "one_argument_twice": ("execute.add", "found [2.0, 4.0, 6.0, 8.0]"),
    "one_buffer_for_all_puts": ("buffers.each_of_its_own", "found one for both"),
    "one_buffer_more": ("transfers.parts_manager", "expected 2, found 3"),
    "one_device": ("transfers.to_another_device", "the device of the copy"),
    "one_fingerprint": ("compile.fingerprint", "another fingerprint of another program"),
    "one_id": ("devices.ids", "different ids"),
    "one_kind_for_all": ("memories.kind_ids", "kinds for as many kind ids"),
    "one_life": ("client.create_again", "died of SIGABRT"),
    "one_memory": ("buffers.memory", "the memory of a buffer in"),
    "one_message": ("errors.two_at_once", "the first message"),
    "one_output": ("compile.counts", "NumOutputs: expected 2, found 1"),
    "one_output_twice": ("execute.outputs_of_their_own", "expected 7, found 5"),
    "other_bytes": ("buffers.round_trip_uint8", "the bytes that come back"),
    "outputs_of_one_type": ("compile.output_types", "the element types"),
    "override_ignored": ("serialization.overridden_options", "the addressable devices"),
    "part_read_later": ("transfers.parts_memory_is_free", "the values"),
    "parts_at_the_start": ("transfers.parts", "the values"),
    "platform_in_one_place": ("client.answers_stay", "PJRT_Client_PlatformName answered"),
    "poisons_anything": ("devices.poison_nothing", "expected False, found True"),
    "program_into_any_room": ("serialization.optimized_program_too_small", "found success"),
    "raw_copy_unordered": ("transfers.raw_of_running_work", "found other ones"),
    "raw_offset_in_words": ("transfers.raw", "the bytes from 4 to 12"),
    "reads_late": ("transfers.memory_only_during_call", "other values than were put"),
    "ready_early": ("events.await_is_not_early", "found work that goes on"),
    "references_below_zero": ("external.too_few_references", "expected an error, found success"),
    "refuses_launch_ids": ("execute.launch_id", "expected success, found INVALID_ARGUMENT"),
    "renames_thread": ("client.process", "the thread's name is compiler after PJRT_Client_Compile"),
    "rounds_up": ("client.process", "floats are rounded is"),
    "rounds_up_in_one_unit": ("client.process", "after PJRT_Buffer_ToHostBuffer"),
    "scalar_of_one": ("buffers.dimensions", "the dimensions: expected [], found [1]"),
    "serializes_nothing": ("serialization.serialize", "expected bytes of an executable"),
    "set_without_error": ("events.callback_of_a_failure", "expected [15], found [None]"),
    "set_without_text": ("events.created_fails", "the text of the error"),
    "shapes_in_one_place": ("compile.answers_stay", "PJRT_Executable_OutputDimensions answ"),
    "small_node": ("extensions.chain", "a node of 24 to 65536 bytes, found 16"),
    "spins": ("client.idle", "processors in use after the step: create"),
    "stream_stays_empty": ("execute.exchange", "expected [4096, 0, 2048], found [4096, 0, 0]"),
    "strides_as_counts": ("transfers.strides_by_columns", "the values"),
    "strides_in_elements": ("buffers.layout", "by the layout [3, 1]"),
    "swaps_outputs": ("execute.two_outputs", "the first output"),
    "takes_floats_for_all": ("client.mistyped_option", "stub_bool accepts 0.5, True"),
    "takes_interrupts": ("client.process", "the handlers of SIGINT are others"),
    "takes_stderr": ("client.process", "files 2 are others, or their flags after PJRT_Client"),
    "texts_in_one_place": ("devices.answers_stay", "answered, after other questions: expected {"),
    "third_process": ("client.process_index", "expected 0, found 3"),
    "tracks_for_ever": ("devices.async_tracking_event", "it is tracked"),
    "unmaps_anything": ("client.dma_map", "expected an error, found success"),
    "waits_for_any_child": ("client.process", "the end of a child process is lost"),
    "waits_for_nothing": ("events.becomes_ready", "expected true, found false"),
    "writes_behind": ("plugin.longer_structs", "found 1 bytes"),
}
#: These show only while work runs: a check finds nothing if the machine delays it that long.
BRIEF = {
    "always_ready",
    "called_early",
    "complete_early",
    "done_early",
    "raw_copy_unordered",
    "ready_early",
}


@pytest.fixture(scope="module")
def built(compiled, header_folder, library):
    """Return a library for each defect: a copy of a built one with the defect's name written in."""

    def build(source):
        made = compiled(f"defects_{source.stem}.so", source, "-shared", f'-DREAL="{library}"')
        return source, made.read_bytes()

    with ThreadPoolExecutor(2) as pool:
        whole = dict(pool.map(build, SOURCES))
    libraries = {name: header_folder / f"defect_{name}.so" for name in PLACES}
    for name, library in libraries.items():
        before, place, after = whole[PLACES[name]].partition(BLANK)
        library.write_bytes(before + name.encode().ljust(len(place), b"\0") + after)
    return libraries


@pytest.fixture(scope="module")
def found(built):
    """`found(name)` is the result of a defect's check; two threads run all checks in advance."""

    def look(name):
        for _ in range(3 if name in BRIEF else 1):
            (result,) = conformance.run(built[name], names=[DEFECTS[name][0]], jobs=1).results
            if result.verdict != Verdict.PASS:
                break
        return result

    with ThreadPoolExecutor(2) as pool:
        results = {name: pool.submit(look, name) for name in DEFECTS}
        yield lambda name: results[name].result()


def test_every_defect_is_in_the_table():
    assert sorted([*DEFECTS, NONE, *ALLOWED]) == sorted(PLACES)


def test_without_a_defect_none_is_found(built):
    """The checks of functions that the real plugin lacks pass on a stub without a defect."""
    newest = [check.name for check in checks() if check.since > REAL_MINOR]
    newest += ["execute.exchange"]  # the real plugin compiles no program for it
    mine = {check for check, _ in DEFECTS.values() if check in newest}
    report = conformance.run(built[NONE], names=mine)
    assert {each.name: each.text for each in report.results if each.verdict != Verdict.PASS} == {}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_the_header_allows_is_told_and_no_defect(built, name):
    check, told = ALLOWED[name]
    (result,) = conformance.run(built[name], names=[check]).results
    assert (result.verdict, result.notes) == (Verdict.PASS, (told,))


@pytest.mark.parametrize("name", DEFECTS)
def test_it_is_found(found, name):
    check, text = DEFECTS[name]
    result = found(name)
    verdict = Verdict.TIMEOUT if name in HANGS else Verdict.FAIL
    assert (result.name, result.verdict) == (check, verdict), result.text
    assert text in result.text


def test_bytes_that_are_missing_are_told_once(built):
    report = conformance.run(built["serializes_nothing"], areas=["serialization"])
    found = {each.name for each in report.defects}
    assert found == {"serialization.serialize", "serialization.optimized_program"}
    skipped = {each.name for each in report.results if "no bytes" in each.text}
    assert skipped >= {"serialization.flipped", "serialization.optimized_program_too_small"}


def test_what_serializes_to_nothing_is_compiled_here(built):
    """If the plugin were given the empty bytes back, they might end the process."""
    program = f"""
import numpy as np
import pjrt_hub
from pjrt_hub.kit.conformance.programs import ADD
client = pjrt_hub.client({str(built["serializes_nothing"])!r})
added = client.compile(ADD, isolated=True)
print(added(np.float32([1, 2, 3, 4]), np.float32([10, 20, 30, 40])).tolist())
try:
    added.serialize()
except pjrt_hub.errors.PluginError as exc:
    print(exc.message)
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    value, refused = ended.stdout.splitlines()
    assert value == "[11.0, 22.0, 33.0, 44.0]"
    assert refused.startswith("PJRT_Executable_Serialize: the plugin answered without an error")
    assert refused.endswith("gave no bytes")
