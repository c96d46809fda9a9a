"""Plugins that know other sizes of argument structs than we send, at least these or exactly these.

Ours are the newest, filled with zeros. What a plugin refuses is an error that names the function.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from stubbed import ONE_TO_FOUR, func, path, raises, with_stub

from pjrt_hub import errors
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin


class Policy(ctypes.Structure):
    """How many bytes more the plugin knows of a function's struct, as where it grew."""

    _fields_ = [("function", ctypes.c_char_p), ("more", ctypes.c_long), ("exactly", ctypes.c_int)]

    @classmethod
    def of_the_stub(cls, more, exactly):
        policy = cls.in_dll(ctypes.CDLL(path), "stub_policy")
        policy.more, policy.exactly = more, exactly
        return policy


def live_with(plugin):
    with plugin.client() as client:
        a = client.buffer_from_host(ONE_TO_FOUR)
        b = client.compile(func("identity"))(a)
        assert np.asarray(b).tolist() == [1, 2, 3, 4]
        assert not b.is_deleted


#: What a life calls and cannot do without.
NEEDED = [
    "PJRT_Client_Create",
    "PJRT_Client_PlatformName",
    "PJRT_Client_Devices",
    "PJRT_Client_AddressableDevices",
    "PJRT_Client_BufferFromHostBuffer",
    "PJRT_Client_Compile",
    "PJRT_LoadedExecutable_GetExecutable",
    "PJRT_LoadedExecutable_Execute",
    "PJRT_Buffer_ReadyEvent",
    "PJRT_Event_IsReady",
    "PJRT_Buffer_IsDeleted",
]


@pytest.mark.parametrize(
    ("more", "exactly"), [(0, False), (0, True), (-8, False)], ids=["least", "same", "older"]
)
@with_stub()
def test_a_plugin_that_knows_no_more_than_we_do(more, exactly):
    plugin, policy = Plugin(load(path)), Policy.of_the_stub(more, exactly)
    for function in NEEDED:
        policy.function = function.encode()
        live_with(plugin)


@pytest.mark.parametrize(
    ("more", "exactly"), [(-8, True), (8, False), (8, True)], ids=["older", "newer", "exact"]
)
@with_stub()
def test_a_plugin_that_wants_another_size(more, exactly):
    plugin, policy = Plugin(load(path)), Policy.of_the_stub(more, exactly)
    for function in NEEDED:
        policy.function = function.encode()
        error = raises(errors.InvalidArgumentError, live_with, plugin)
        assert error.function == function, error
        assert "unexpected struct size" in str(error), error
        policy.function = None
        live_with(plugin)
