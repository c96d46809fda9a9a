"""A small library that gives hosts, which only take a path, the plugin of this process."""

import ctypes

import pytest
from children import PLATFORM, in_child

import pjrt_hub
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.running.capi import table
from pjrt_hub.running.interpose import forwarding


@in_child
def test_its_table_is_a_copy_and_one_process_hands_on_one():
    plugin = pjrt_hub.load(PLATFORM)
    own = plugin.api.address
    size = ctypes.c_size_t.from_address(own).value
    before = ctypes.string_at(own, size)
    path = forwarding.forward(own, plugin.path)
    host = ctypes.CDLL(str(path))  # a host opens it by its path
    host.GetPjrtApi.restype = ctypes.c_void_p
    given = host.GetPjrtApi()
    assert given != own
    assert ctypes.string_at(own, size) == before

    slot = 40 + 8 * table.FUNCTIONS["PJRT_Plugin_Initialize"].slot
    after = ctypes.string_at(given, size)
    assert [at for at in range(0, size, 8) if before[at : at + 8] != after[at : at + 8]] == [slot]
    initialize = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
        ctypes.c_void_p.from_address(given + slot).value
    )
    assert initialize(None) is None  # it ignores its arguments

    assert forwarding.forward(own, plugin.path) == path
    assert host.GetPjrtApi() == given
    said = "^another cannot be handed on: another plugin was"
    with pytest.raises(PluginLoadError, match=said):
        forwarding.forward(given, "another")
