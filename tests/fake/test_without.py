"""The layer `without`: a plugin that lacks a function, NULL or UNIMPLEMENTED, or an extension."""

from __future__ import annotations

import pytest
from stubbed import path, with_stub

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.kit import tracing
from pjrt_hub.kit.tracing import call_log, recording
from pjrt_hub.running.capi import table
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.interpose import layers


def without(names, others=""):
    """The stub without these functions or extensions."""
    layers = f"without{others}"
    return load(path, through=lambda address: tracing.wrap(address, layers, without=names))


@pytest.mark.parametrize("is_taken", [False, True])
@with_stub("EXTENSIONS=&unknown")
def test_an_extension_that_is_taken_is_not_in_the_chain(is_taken):
    api = without("Stream") if is_taken else load(path)
    assert ("Stream" not in api.extensions) == is_taken


def test_a_host_in_c_that_was_preloaded_into(host):
    names = {"PJRT_HUB_LAYERS": "validate,without", "PJRT_HUB_WITHOUT": "PJRT_Plugin_Attributes"}
    ended = host("old_host", **names)
    assert (ended.returncode, ended.stdout) == (0, "refused, 0 attributes, 24\n"), ended.stderr
    assert ended.stderr.count("VAL") == 1  # the host makes this mistake, and leaks no error


def test_a_name_that_there_is_not_is_said_to_a_host_in_c(host):
    names = {"PJRT_HUB_LAYERS": "without", "PJRT_HUB_WITHOUT": "PJRT_Nothing:null,Layouts"}
    ended = host("nothing", **names)
    assert ended.returncode == 0
    assert ended.stderr == "pjrt-hub: PJRT_HUB_WITHOUT: there is no PJRT_Nothing\n"


def test_a_recording_shows_a_plugin_that_refuses(host, tmp_path):
    names = {"PJRT_HUB_LAYERS": "trace,without", "PJRT_HUB_WITHOUT": "PJRT_Plugin_Attributes"}
    host("old_host", PJRT_HUB_TRACE=str(tmp_path), **names)
    found = recording.read(tmp_path)
    (call,) = [call for call in found.calls if call.function == "PJRT_Plugin_Attributes"]
    assert call.error
    (line,) = call_log.lines(found, [call])
    assert "PJRT_Plugin_Attributes() -> error 0x" in line


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (None, "the layer without has nothing to take away"),
        (" , ", "the layer without has nothing to take away"),
        ("PJRT_Nothing", "cannot take away 'PJRT_Nothing'"),
        ("PJRT_Buffer_IsOnCpu:nil", "cannot take away 'PJRT_Buffer_IsOnCpu:nil'"),
        ("Layouts:null", "cannot take away 'Layouts:null'"),
    ],
)
def test_what_cannot_be_taken_away_is_refused(without, said):
    with pytest.raises(PjrtHubError, match=said):
        tracing.wrap(0, "without", without=without)


def test_every_function_and_extension_has_a_name():
    names = [*layers.function_names(), *table.EXTENSIONS]
    assert layers.removals(",".join(names)) == names
