"""The validation layer: a host in C makes one mistake, and the finding meant for it comes."""

from __future__ import annotations

import ctypes
import re
import signal

import pytest
from stubbed import ONE_TO_FOUR, func, own_table, path, with_stub

from pjrt_hub.running.capi import table
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin
from pjrt_hub.running.interpose import layers

#: The status of a process: the stub aborts where a real plugin crashes.
FINE, DIES = 0, -signal.SIGABRT

#: The mistake, the codes of the findings, and the status of the process.
MISTAKES = [
    ("double_destroy", [1], FINE),  # the layer answers the second call
    ("use_after_destroy", [2], DIES),
    ("use_after_delete", [3], FINE),
    ("use_after_donation", [4], FINE),
    ("leak", [5], DIES),
    ("no_struct_size", [6], FINE),
    ("short_struct", [7], FINE),
    ("another_client", [8], FINE),
    ("error_leak", [9], FINE),
    ("event_leak", [10], DIES),
    ("destroyed_in_use", [11], DIES),
    ("null_field", [12], DIES),
    ("another_kind", [13], DIES),
    ("pending_error", [14], DIES),
    ("client_gone", [5, 15], FINE),
    ("stale_executable", [17], DIES),
    ("no_place", [18], FINE),
    ("another_rank", [19], FINE),
    ("element_type", [20], FINE),
    ("buffer_index", [21], DIES),
    ("forked", [22], FINE),
    ("another_plugin", [23], FINE),
]


NONE = "destroy(out, BUFFER); args->output_lists[0][0] = NULL"
SAME = (
    "static PJRT_Buffer *first; "
    "if (first != NULL) { destroy(out, BUFFER); out = first; } "
    "args->output_lists[0][0] = first = out"
)
BOTH = 'args->callback(NULL, args->user_arg); return fail(3, "no")'
#: The host, the fault of the plugin, the codes of the findings, and what the host prints.
FAULTS = [
    ("listens", "TWICE=1", [24], "called 1 time(s)\n"),
    ("listens", f"ON_READY={BOTH}", [24], "called 1 time(s)\n"),
    ("executes", f"ON_EXECUTED={NONE}", [25, 25], ""),
    ("executes", f"ON_EXECUTED={SAME}", [26], ""),
    ("asks_for_the_code", "", [27], ""),
    ("listens", "", [], "called 1 time(s)\n"),
    ("executes", "", [], ""),
]


def codes(text: str) -> list[int]:
    return [int(code) for code in re.findall(r"^pjrt-hub: VAL(\d+) ", text, re.MULTILINE)]


@pytest.mark.parametrize(("name", "findings", "end"), MISTAKES)
def test_a_mistake_is_found(host, name, findings, end):
    ended = host(name, PJRT_HUB_LAYERS="validate")
    assert codes(ended.stderr) == findings, ended.stderr
    assert ended.returncode == end, ended.stderr


@pytest.mark.parametrize(("name", "fault", "findings", "printed"), FAULTS)
@pytest.mark.slow
def test_what_a_plugin_does_wrong_is_found(host, name, fault, findings, printed):
    """The host is not blamed, and hears a callback once."""
    ended = host(name, "COUNTS_OUTPUTS", *filter(None, [fault]), PJRT_HUB_LAYERS="validate")
    assert codes(ended.stderr) == findings, ended.stderr
    assert (ended.returncode, ended.stdout) == (FINE, printed), ended.stderr


def test_a_host_without_a_mistake_hears_nothing(host):
    ended = host("nothing", PJRT_HUB_LAYERS="validate")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_finding_says_which_calls_made_and_ended_the_handle(host):
    (line,) = host("double_destroy", PJRT_HUB_LAYERS="validate").stderr.splitlines()
    # The first calls are Client_Create, AddressableDevices, BufferFromHostBuffer, Event_Destroy.
    assert re.fullmatch(
        r"pjrt-hub: VAL001 destroyed twice: #6 PJRT_Buffer_Destroy, buffer, PJRT_Buffer 0x\w+ made "
        r"by #3 PJRT_Client_BufferFromHostBuffer, destroyed by #5 PJRT_Buffer_Destroy; answered "
        r"without the plugin",
        line,
    )


def test_without_a_layer_nothing_is_changed(host):
    ended = host("double_destroy")
    assert ended.returncode == DIES
    assert ended.stderr == "stub: second destroy: buffer\n"


def test_an_old_host_is_given_what_a_new_plugin_wants(host):
    wants = 'ON_ATTRIBUTES=if (args->struct_size < 32) return fail(3, "size")'
    assert host("old_host", wants).stdout == "refused, 0 attributes, 24\n"
    ended = host("old_host", wants, PJRT_HUB_LAYERS="validate,pad")
    assert ended.stdout == "taken, 2 attributes, 24\n"
    assert codes(ended.stderr) == [7]  # the other layers see the host's own struct


def functions_that_differ(*addresses):
    """The functions whose addresses differ in two tables of the same plugin."""
    nbytes = ctypes.c_size_t.from_address(addresses[0]).value
    words = [(ctypes.c_size_t * (nbytes // 8)).from_address(each) for each in addresses]
    places = {name: layers.offsets("PJRT_Api")[name] // 8 for name in table.FUNCTIONS}
    known = {name: place for name, place in places.items() if place < nbytes // 8}
    return {name for name, place in known.items() if words[0][place] != words[1][place]}


GROWING = ("PJRT_ExecuteOptions", "PJRT_Plugin_Attributes_Args")


@with_stub()
def test_all_is_padded_for_hosts_that_say_less_than_they_have():
    api = load(path, through=lambda address: layers.pad(address, 84, GROWING))
    differ = functions_that_differ(api.address, own_table())
    assert differ >= {"PJRT_Error_Destroy", "PJRT_Buffer_Delete", "PJRT_Client_Create"}


@with_stub()
def test_only_what_grew_is_padded():
    api = load(path, through=lambda address: layers.pad(address, 85, GROWING))
    assert functions_that_differ(api.address, own_table()) == {
        "PJRT_LoadedExecutable_Execute",  # it is given the options
        "PJRT_Plugin_Attributes",
    }
    client = Plugin(api).client()
    exe = client.compile(func("identity"))
    assert exe(client.buffer_from_host(ONE_TO_FOUR)).to_numpy().tolist() == [1, 2, 3, 4]
    client.close()


@with_stub()
def test_where_nothing_is_asked_for_the_table_is_the_plugins_own():
    assert Plugin(load(path)).api.address == own_table()
