"""The slices of an execution, on the stub of 0.117; libtpu makes the configurations."""

from __future__ import annotations

import ctypes
import gc
import weakref

from stubbed import func, path, raises, release, soon, with_stub

from pjrt_hub import ExecuteOptions, errors
from pjrt_hub.running.extensions.multi_slice import MultiSliceConfig


def sliced(client):
    """Options of a configuration, as if the stub had made it."""
    config = MultiSliceConfig.__new__(MultiSliceConfig)
    config.api, config.address = client.api, 0x1234
    return ExecuteOptions(multi_slice_config=config)


@with_stub()
def test_a_config_reaches_the_execution(client, a):
    options = sliced(client)
    seen = weakref.ref(options.multi_slice_config)
    client.compile(func("held")).execute([[a]], options)
    text = (ctypes.c_char * 512).in_dll(ctypes.CDLL(path), "stub_executed").value.decode()
    assert text == "launch 0 at nowhere on all, slices at 0x1234", text
    del options
    gc.collect()
    assert seen() is not None
    release()
    soon(lambda: seen() is None)


@with_stub("MINOR=96")
def test_what_is_no_config_of_the_plugin(client, a):
    caught = raises(TypeError, ExecuteOptions, multi_slice_config=0x1234)
    assert "not a MultiSliceConfig" in str(caught), caught
    exe = client.compile(func("identity"))
    caught = raises(errors.UnsupportedByPluginError, exe.execute, [[a]], sliced(client))
    assert caught.since == "0.97", caught.since
    raises(errors.UnsupportedByPluginError, MultiSliceConfig, client, 1)
