"""Isolated compilations on plugins that cannot hand over what they compiled, or do not end."""

from __future__ import annotations

import pytest

PLUGIN = """
import logging
import pjrt_hub

told = []
handler = logging.Handler()
handler.emit = lambda record: told.append(record.getMessage())
logging.getLogger("pjrt_hub.isolation").addHandler(handler)
client = pjrt_hub.load(path, offline=True).client()
"""


def test_what_cannot_be_serialized_is_compiled_again_here(stub, check) -> None:
    check(
        stub(),
        PLUGIN
        + """
exe = client.compile(func("add"), isolated=True)
a = client.buffer_from_host(ONE_TO_FOUR)
assert exe(a, a).to_numpy().tolist() == [2, 4, 6, 8]
assert len(told) == 1, told
assert "lacks PJRT_Executable_Serialize" in told[0], told
""",
    )


def test_what_dies_is_not_compiled_again_here(stub, check) -> None:
    """It would end this process: no warning, and no second compilation."""
    check(
        stub("ON_COMPILE=abort()"),
        PLUGIN
        + """
error = raises(errors.PluginCrashedError, client.compile, func("add"), isolated=True)
assert (error.signal, error.returncode) == ("SIGABRT", -6)
assert not told, told
""",
    )


@pytest.mark.slow
def test_a_deadline_ends_the_compiler(stub, check) -> None:
    check(
        stub(),
        PLUGIN
        + """
begun = time.monotonic()
error = raises(errors.PluginTimeoutError, client.compile, func("slow_compile"), isolated=True)
assert error.seconds == 5 and "within 5 s" in error.message, error
assert time.monotonic() - begun < 20
""",
        env={"PJRT_HUB_ISOLATE_SECONDS": "5"},
    )


def test_a_deadline_that_is_no_number(stub, check) -> None:
    check(
        stub(),
        PLUGIN
        + """
error = raises(errors.PjrtHubError, client.compile, func("add"), isolated=True)
assert "PJRT_HUB_ISOLATE_SECONDS is 'soon', which is not a number" in error.message
""",
        env={"PJRT_HUB_ISOLATE_SECONDS": "soon"},
    )
