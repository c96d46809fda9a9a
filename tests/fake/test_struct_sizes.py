"""Plugins that want argument structs of another size than ours, exactly or at least.

Our structs are the newest, filled with zeros. A refused size is an error that names the function.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from stubbed import ONE_TO_FOUR, func, functions, path, raises, with_stub

from pjrt_hub import errors
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin


class Policy(ctypes.Structure):
    """The stub's `stub_policy`: the size that one function wants, as its difference from ours."""

    _fields_ = [("function", ctypes.c_char_p), ("more", ctypes.c_long), ("exactly", ctypes.c_int)]


def live_with(plugin):
    with plugin.client() as client:
        a = client.buffer_from_host(ONE_TO_FOUR)
        b = client.compile(func("identity"))(a)
        assert np.asarray(b).tolist() == [1, 2, 3, 4]
        assert not b.is_deleted


#: Functions that `live_with` calls and cannot do without.
NEEDED = [
    *functions("Client_", "Create PlatformName Devices AddressableDevices BufferFromHostBuffer"),
    *functions("", "Client_Compile LoadedExecutable_GetExecutable LoadedExecutable_Execute"),
    *functions("", "Buffer_ReadyEvent Event_IsReady Buffer_IsDeleted"),
]


@pytest.mark.parametrize(
    ("more", "exactly", "fits"),
    [(0, 0, True), (0, 1, True), (-8, 0, True), (-8, 1, False), (8, 0, False), (8, 1, False)],
    ids=["least", "same", "older", "older exactly", "newer", "newer exactly"],
)
@with_stub()
def test_a_plugin_knows_a_size_at_least_or_exactly(more, exactly, fits):
    plugin, policy = Plugin(load(path)), Policy.in_dll(ctypes.CDLL(path), "stub_policy")
    policy.more, policy.exactly = more, exactly
    for function in NEEDED:
        policy.function = function.encode()
        if fits:
            live_with(plugin)
            continue
        error = raises(errors.InvalidArgumentError, live_with, plugin)
        assert error.function == function, error
        assert "unexpected struct size" in str(error), error
        policy.function = None
        live_with(plugin)
