"""Plugins with one defect of behaviour each, and the check that must find it."""

from __future__ import annotations

import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pjrt_hub
from pjrt_hub import conformance
from pjrt_hub.conformance import Verdict
from pjrt_hub.conformance.check import checks

SOURCES = sorted((Path(__file__).parent / "defects").iterdir())
#: Has none: the stub that the others of the newest functions are made of.
NONE = "none"
#: Is none: the header allows it, and a note tells of it.
ALLOWED = "attributes_move"

#: The minor of the XLA CPU plugin that the tests have.
REAL_MINOR = 81
#: The file in `defects` -> the check that is meant for it, and what its text says.
DEFECTS = {
    "aliases_nothing": ("analysis.memory_stats_of_donation", "expected 16384 or more, found 0"),
    "all_dynamic": ("buffers.dimensions", "the dynamic dimensions of f32[]"),
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
    "callback_never": ("events.callback_after_completion", "expected [None], found []"),
    "callback_twice": ("events.callback_before_completion", "found [None, None]"),
    "casts_and_keeps": ("buffers.bitcast", "IsDeleted of the source: expected True"),
    "casts_any_size": ("buffers.bitcast_to_another_size", "expected an error, found success"),
    "code_out_of_range": ("errors.codes", "expected a code from 1 to 16, found 77"),
    "copies_stay": ("memories.copies", "the memory of"),
    "copies_views": ("external.view_of_changing_memory", "found [1.0, 2.0, 3.0, 4.0]"),
    "costs_change": ("analysis.stable", "the costs, asked again"),
    "costs_not_finite": ("analysis.costs", "found nan"),
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
    "done_early": ("transfers.memory_of_running_work", "another value than computed"),
    "donates_and_keeps": ("donation.control_dependency", "IsDeleted of the source"),
    "donates_nothing": ("donation.donated", "expected [True, False], found [False, False]"),
    "donates_what_is_kept": ("donation.kept", "IsDeleted of a: expected [False], found [True]"),
    "drops_arguments": ("execute.too_many_arguments", "expected an error, found success"),
    "empty_topology": ("topology.serialize", "found none"),
    "exact_struct_size": ("plugin.longer_structs", "with 64 bytes more: expected success"),
    "failed_as_internal": ("buffers.error_buffer", "expected DATA_LOSS, found INTERNAL"),
    "failed_without_payload": ("buffers.error_buffer_with_payload", "found {}"),
    "finds_the_first": ("devices.look_up", "the device of id 1"),
    "finds_unknown_devices": ("devices.look_up_unknown", "expected an error, found success"),
    "forgets_devices": ("devices.lists_are_kept", "PJRT_Client_Devices, asked again: expected ["),
    "forgets_options": ("compile.compile_options", "profile_version of the options"),
    "frees_chunks_twice": ("execute.exchange", "how many of two chunks were freed"),
    "goes_on_alone": ("kv_store.lost_store", "found a client of 1 process(es)"),
    "half_the_size": ("buffers.on_device_size", "expected at least 16, found 8"),
    "kind_not_utf8": ("devices.texts", "expected UTF-8"),
    "layout_by_columns": ("runtime.outputs", "the second output, by to_numpy: expected"),
    "layout_of_one": ("extensions.default_layout", "found {0}"),
    "literal_by_columns": ("transfers.literal", "the values"),
    "loads_anything": ("serialization.junk", "expected an error, found success"),
    "memory_twice": ("memories.lists", "different memories"),
    "message_changes": ("errors.messages", "its message, asked again"),
    "message_not_utf8": ("errors.messages", "UTF-8"),
    "minimum_above_current": ("plugin.attributes", "found (99, 0, 0)"),
    "more_than_its_limit": ("devices.memory_stats", "10 bytes in use of 5"),
    "nameless_attribute": ("devices.live_attributes", "a name of each attribute"),
    "negative_id": ("devices.ids", "expected ids from 0"),
    "negative_offset": ("transfers.raw_from_before", "expected an error, found success"),
    "never_deleted": ("buffers.delete", "expected True, found False"),
    "never_ready": ("events.ready", "expected true, found false"),
    "no_complete_events": ("execute.complete_events", "expected 1, found 0"),
    "no_flops": ("analysis.flops", "found 7"),
    "no_offset": ("transfers.raw", "the bytes from 4 to 12"),
    "no_size": ("transfers.size_for_the_host", "expected 24, found 0"),
    "no_strides": ("transfers.strides_by_columns", "the values"),
    "node_twice": ("extensions.chain", "more than once"),
    "nothing_addressable": ("devices.addressable", "expected True, found False"),
    "nul_in_name": ("client.platform", "expected text"),
    "null_pointer": ("external.pointer", "found NULL"),
    "one_argument_twice": ("execute.add", "found [2.0, 4.0, 6.0, 8.0]"),
    "one_buffer_more": ("transfers.parts_manager", "expected 2, found 3"),
    "one_device": ("transfers.to_another_device", "the device of the copy"),
    "one_fingerprint": ("compile.fingerprint", "another fingerprint of another program"),
    "one_id": ("devices.ids", "different ids"),
    "one_kind_for_all": ("memories.kind_ids", "kinds for as many kind ids"),
    "one_life": ("client.create_again", "died of SIGABRT"),
    "one_memory": ("buffers.memory", "the memory of a buffer in"),
    "one_message": ("errors.two_at_once", "the first message"),
    "one_output": ("compile.counts", "NumOutputs: expected 2, found 1"),
    "other_bytes": ("buffers.round_trip_uint8", "the bytes that come back"),
    "outputs_of_one_type": ("compile.output_types", "the element types"),
    "override_ignored": ("serialization.overridden_options", "the addressable devices"),
    "parts_at_the_start": ("transfers.parts", "the values"),
    "poisons_anything": ("devices.poison_nothing", "expected False, found True"),
    "program_into_any_room": ("serialization.optimized_program_too_small", "found success"),
    "reads_late": ("transfers.memory_only_during_call", "other values than were put"),
    "references_below_zero": ("external.too_few_references", "expected an error, found success"),
    "set_without_error": ("events.callback_of_a_failure", "expected [15], found [None]"),
    "set_without_text": ("events.created_fails", "the text of the error"),
    "small_node": ("extensions.chain", "a node of 24 bytes or more, found 16"),
    "stream_stays_empty": ("execute.exchange", "expected [4096, 0, 2048], found [4096, 0, 0]"),
    "swaps_outputs": ("execute.two_outputs", "the first output"),
    "third_process": ("client.process_index", "expected 0, found 3"),
    "tracks_for_ever": ("devices.async_tracking_event", "it is tracked"),
    "unmaps_anything": ("client.dma_map", "expected an error, found success"),
    "waits_for_nothing": ("events.becomes_ready", "expected true, found false"),
    "writes_behind": ("plugin.longer_structs", "found 1 bytes"),
}


@pytest.fixture(scope="module")
def built(header_folder):
    """The libraries by the names of their defects."""
    real = pjrt_hub.load("cpu", offline=True).api.path
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    flags = ["-std=c11", "-Wall", "-Werror", "-Wno-unused", "-fPIC", "-shared", "-pthread"]

    def build(source):
        library = header_folder / f"defect_{source.stem}.so"
        places = [f"-I{header_folder}", f'-DREAL="{real}"', "-o", str(library), str(source), "-ldl"]
        subprocess.run([*compiler, *flags, *places], check=True, timeout=60)
        return source.stem, library

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(build, SOURCES))


@pytest.fixture(scope="module")
def found(built):
    """The result of each defect's check, all of them begun at once, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        results = {
            name: pool.submit(conformance.run, built[name], names=[check], jobs=1)
            for name, (check, _) in DEFECTS.items()
        }
        yield lambda name: results[name].result().results


def test_every_defect_is_in_the_table():
    assert sorted([*DEFECTS, NONE, ALLOWED]) == [each.stem for each in SOURCES]


def test_without_a_defect_none_is_found(built):
    """What is newer than the real plugin is checked on the stub, also where it works."""
    newest = [check.name for check in checks() if check.since > REAL_MINOR]
    newest += ["execute.exchange"]  # which the real plugin compiles no program for
    mine = {check for check, _ in DEFECTS.values() if check in newest}
    report = conformance.run(built[NONE], names=mine)
    assert {each.name: each.text for each in report.results if each.verdict != Verdict.PASS} == {}


def test_what_the_header_allows_is_told_and_no_defect(built):
    (result,) = conformance.run(built[ALLOWED], names=["plugin.attributes_are_kept"]).results
    told = "PJRT_Plugin_Attributes, asked again: the list lies at another address"
    assert (result.verdict, result.notes) == (Verdict.PASS, (told,))


@pytest.mark.parametrize("name", DEFECTS)
def test_it_is_found(found, name):
    check, text = DEFECTS[name]
    (result,) = found(name)
    assert (result.name, result.verdict) == (check, Verdict.FAIL), result.text
    assert text in result.text
