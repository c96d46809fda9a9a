"""The slices of an execution, on the stub of 0.117; libtpu makes the configurations."""

from __future__ import annotations

SETUP = """
from pjrt_hub import ExecuteOptions
from pjrt_hub.running.extensions.multi_slice import MultiSliceConfig
client = Plugin(load(path)).client()
a = client.buffer_from_host(ONE_TO_FOUR)
config = MultiSliceConfig.__new__(MultiSliceConfig)  # as if the stub had made it
config.api, config._address = client.api, 0x1234
options = ExecuteOptions(multi_slice_config=config)
"""


def test_a_config_reaches_the_execution(stub, check) -> None:
    check(
        stub(),
        SETUP
        + """
import weakref
client.compile(func("later")).execute([[a]], options)
text = (ctypes.c_char * 512).in_dll(ctypes.CDLL(path), "stub_executed").value.decode()
assert text == "launch 0 at nowhere on all, slices at 0x1234", text
seen = weakref.ref(config)
del config, options
gc.collect()
assert seen() is not None  # until the execution is done
""",
    )


def test_what_is_no_config_of_the_plugin(stub, check) -> None:
    check(
        stub("MINOR=96"),
        SETUP
        + """
caught = raises(TypeError, ExecuteOptions, multi_slice_config=0x1234)
assert "not a MultiSliceConfig" in str(caught), caught
exe = client.compile(func("identity"))
caught = raises(errors.UnsupportedByPluginError, exe.execute, [[a]], options)
assert caught.since == "0.97", caught.since
raises(errors.UnsupportedByPluginError, MultiSliceConfig, client, 1)
""",
    )
