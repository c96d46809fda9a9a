"""What a plugin announces by itself: the extension Callback."""

from __future__ import annotations

import pytest

SETUP = """
import threading
from pjrt_hub.running.extensions.plugin_callbacks import (
    CallbackType,
    SliceFailure,
    invoke_callback,
    register_callback,
)

client = Plugin(load(path)).client()
seen = []


def why(text="why", code=13):
    return errors.PluginInternalError(text, code=code, function="", payloads={})
"""


@pytest.fixture
def check_callbacks(stub, check):
    return lambda script, *macros: check(
        stub("EXTENSIONS=&callback_extension.base", *macros), SETUP + script
    )


def test_what_is_announced(check_callbacks) -> None:
    check_callbacks("""
def see(what): seen.append((what, threading.get_ident()))
register_callback(client, CallbackType.PREFATAL, see)
register_callback(client, CallbackType.PREFATAL, lambda error: seen.append("second"))
register_callback(client, CallbackType.TPU_SLICE_BUILDER, see)
invoke_callback(client, why("the end of caf\u00e9"))
(error, thread), second = seen
assert type(error) is errors.PluginInternalError and error.code == 13, error
assert (error.message, second) == ("the end of caf\u00e9", "second"), error.message
assert thread != threading.get_ident()
seen.clear()
for failure in SliceFailure:
    invoke_callback(client, failure)
assert [each[0] for each in seen] == list(SliceFailure), seen
assert all(type(each[0]) is SliceFailure for each in seen)
other = Plugin(load(path)).client()
invoke_callback(other, why())
assert len(seen) == len(SliceFailure)
""")


def test_exceptions_go_to_the_hook(check_callbacks) -> None:
    check_callbacks("""
sys.unraisablehook = lambda report: seen.append(report.exc_type)
def fail(error): raise KeyError("mine")
def leave(error): raise SystemExit(3)
for each in (fail, leave):
    register_callback(client, CallbackType.PREFATAL, each)
invoke_callback(client, why())
assert seen == [KeyError, SystemExit], seen
""")


def test_a_callback_may_use_and_close_the_client(check_callbacks) -> None:
    check_callbacks("""
def use(error):
    seen.append(client.buffer_from_host(ONE_TO_FOUR).tolist())
    client.close()
register_callback(client, CallbackType.PREFATAL, use)
invoke_callback(client, why())
assert seen == [[1, 2, 3, 4]] and client.closed
""")


def test_what_cannot_be_registered(check_callbacks) -> None:
    check_callbacks("""
raises(TypeError, register_callback, client, CallbackType.PREFATAL, None)
raises(ValueError, register_callback, client, 0, print)
raises(ValueError, register_callback, client, 77, print)
raises(TypeError, invoke_callback, client, "why")
client.close()
raises(errors.ClosedError, register_callback, client, CallbackType.PREFATAL, print)
raises(errors.ClosedError, invoke_callback, client, why())
""")


def test_a_plugin_that_announces_nothing(stub, check) -> None:
    check(
        stub(),
        SETUP
        + """
caught = raises(
    errors.UnsupportedByPluginError, register_callback, client, CallbackType.PREFATAL, print)
raises(errors.UnsupportedByPluginError, invoke_callback, client, why())
""",
    )
