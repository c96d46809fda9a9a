"""What a plugin announces by itself: the extension Callback."""

from __future__ import annotations

import sys
import threading

from stubbed import ONE_TO_FOUR, begin, raises, with_stub

from pjrt_hub import errors
from pjrt_hub.running.extensions.plugin_callbacks import (
    CallbackType,
    SliceFailure,
    invoke_callback,
    register_callback,
)

with_extension = with_stub("EXTENSIONS=&callback_extension.base")


def why(text="why", code=13):
    return errors.PluginInternalError(text, code=code, function="", payloads={})


@with_extension
def test_what_is_announced(client):
    seen = []

    def see(what):
        seen.append((what, threading.get_ident()))

    register_callback(client, CallbackType.PREFATAL, see)
    register_callback(client, CallbackType.PREFATAL, lambda error: seen.append("second"))
    register_callback(client, CallbackType.TPU_SLICE_BUILDER, see)
    invoke_callback(client, why("the end of café"))
    (error, thread), second = seen
    assert (type(error), error.code) == (errors.PluginInternalError, 13), error
    assert (error.message, second) == ("the end of café", "second"), error.message
    assert thread != threading.get_ident()
    seen.clear()
    for failure in SliceFailure:
        invoke_callback(client, failure)
    assert [each[0] for each in seen] == list(SliceFailure), seen
    assert all(type(each[0]) is SliceFailure for each in seen)
    other = begin()
    invoke_callback(other, why())
    assert len(seen) == len(SliceFailure)


@with_extension
def test_exceptions_go_to_the_hook(client):
    seen = []
    sys.unraisablehook = lambda report: seen.append(report.exc_type)

    def fail(error):
        raise KeyError("mine")

    def leave(error):
        raise SystemExit(3)

    for each in (fail, leave):
        register_callback(client, CallbackType.PREFATAL, each)
    invoke_callback(client, why())
    assert seen == [KeyError, SystemExit], seen


@with_extension
def test_a_callback_may_use_and_close_the_client(client):
    seen = []

    def use(error):
        seen.append(client.buffer_from_host(ONE_TO_FOUR).tolist())
        client.close()

    register_callback(client, CallbackType.PREFATAL, use)
    invoke_callback(client, why())
    assert seen == [[1, 2, 3, 4]]
    assert client.closed


@with_extension
def test_what_cannot_be_registered(client):
    raises(TypeError, register_callback, client, CallbackType.PREFATAL, None)
    raises(ValueError, register_callback, client, 0, print)
    raises(ValueError, register_callback, client, 77, print)
    raises(TypeError, invoke_callback, client, "why")
    client.close()
    raises(errors.ClosedError, register_callback, client, CallbackType.PREFATAL, print)
    raises(errors.ClosedError, invoke_callback, client, why())


@with_stub()
def test_a_plugin_that_announces_nothing(client):
    without = errors.UnsupportedByPluginError
    raises(without, register_callback, client, CallbackType.PREFATAL, print)
    raises(without, invoke_callback, client, why())
