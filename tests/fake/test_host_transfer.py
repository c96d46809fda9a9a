"""What running programs send to Python and receive from it, on the plugin's own threads."""

from __future__ import annotations

import gc
import re
import signal
import sys
import threading
import time
import weakref
from functools import partial

import numpy as np
import pytest
from children import in_threads
from stubbed import ONE_TO_FOUR, func, live, number, raises, release, soon, stay, text_of, with_stub

from pjrt_hub import ExecuteOptions, errors

TEN = np.arange(10, 14, dtype=np.float32)


def left():
    """The chunks and the streams that nobody destroyed yet."""
    return number("stub_chunks"), number("stub_streams")


def start(a, words="exchange", **given):
    options = ExecuteOptions(**given)
    exe = a.client.compile(func(words))
    [[result]], [event] = exe.execute([[a]], options, return_events=True)
    return result, event


def finish(a, words="exchange", **given):
    result, event = start(a, words, **given)
    event.wait(20)
    return result.tolist()


def fill(stream, value=TEN):
    stream.add_chunk(value)


@with_stub()
def test_a_program_sends(a):
    came, threads = [], set()

    def tell(channel, *chunk):
        came.append((channel, *chunk))
        threads.add(threading.get_ident())

    finish(a, send_callbacks=[{each: partial(tell, each) for each in (1, 2**40)}])
    parts = [ONE_TO_FOUR[:2].tobytes(), ONE_TO_FOUR[2:].tobytes()]
    told = [(channel, part, 16, part is parts[1]) for channel in (1, 2**40) for part in parts]
    assert came == told, came
    assert threading.get_ident() not in threads
    assert left() == (0, 0)


@with_stub()
def test_a_program_receives(a):
    seen = []

    def whole(stream):
        seen.append((stream.total_bytes, stream.granule_size, stream.current_bytes))
        seen.append(repr(stream))
        stream.add_chunk(TEN)
        seen.append((stream.current_bytes, stream.closed))

    assert finish(a, recv_callbacks=[{3: whole}]) == TEN.tolist()
    assert seen == [(16, 4, 0), "<CopyToDeviceStream 0 of 16 bytes>", (16, False)], seen

    def parts(stream):
        for each in range(10, 14):
            seen.append(stream.add_chunk(np.full(1, each, np.float32)))

    assert finish(a, recv_callbacks=[{3: parts}]) == TEN.tolist()
    for event in seen[3:]:
        event.wait(20)
    del seen[3:], event
    soon(lambda: left() == (0, 0))


@with_stub()
def test_both_ways(client, a):
    sent = bytearray()

    def send(chunk, total, done):
        sent.extend(chunk)

    def receive(stream):
        stream.add_chunk(np.frombuffer(bytes(sent), np.float32) * 2)

    for words in ("exchange", "slow_exchange", "inline_exchange"):
        got = finish(a, words, send_callbacks=[{1: send}], recv_callbacks=[{2: receive}])
        assert got == [2, 4, 6, 8], got
        sent.clear()
    soon(lambda: left() == (0, 0))
    client.close()
    assert live() == {}, live()


@with_stub()
def test_a_stream_that_is_filled_later(a):
    """From another thread; what it is filled with is kept alive until it has arrived."""
    streams = []
    result, event = start(a, recv_callbacks=[{1: streams.append}])
    soon(lambda: streams)
    assert not event.is_ready()
    for half in (TEN[:2], TEN[2:]):
        streams[0].add_chunk(half.copy())
    streams.clear()
    event.wait(20)
    assert result.tolist() == TEN.tolist()
    soon(lambda: left() == (0, 0))


@with_stub()
def test_an_exception_while_sending_is_the_programs_error(a):
    def broken(chunk, total, done):
        raise what

    full = errors.ResourceExhaustedError("full", code=8, function="", payloads={})
    text = "the send callback of channel 7: "
    for what, cls, code in (
        (KeyError("mine"), errors.PluginInternalError, 13),
        (ValueError("no"), errors.InvalidArgumentError, 3),
        (full, errors.ResourceExhaustedError, 8),
        (SystemExit(3), errors.CancelledError, 1),
    ):
        _result, event = start(a, send_callbacks=[{7: broken}])
        assert raises(cls, event.wait, 20).code == code
        failure = text_of("stub_failure")
        assert failure.startswith(text + type(what).__name__) or code == 8, failure
        assert "(test_host_transfer.py:" in failure, failure
    assert left() == (0, 0)
    assert finish(a) == ONE_TO_FOUR.tolist()


@with_stub()
def test_an_exception_while_receiving_fails_the_program(a):
    caught = []
    sys.unraisablehook = lambda report: caught.append(
        (report.exc_type, str(report.exc_value), report.exc_value.__notes__)
    )

    def broken(stream):
        raise KeyError("mine")

    def half(stream):
        stream.add_chunk(TEN[:2])
        raise ValueError("enough")

    for callback in (broken, half):
        _result, event = start(a, recv_callbacks=[{7: callback}])
        raises(errors.AbortedError, event.wait, 20)
    notes = ["in the receive callback of channel 7; the program fails"]
    assert caught == [(KeyError, "'mine'", notes), (ValueError, "enough", notes)], caught
    soon(lambda: left() == (0, 0))


@with_stub()
def test_a_stream_that_is_given_up_fails_the_program(a):
    kept = []

    def forgotten(stream):
        pass

    def cancelled(stream):
        stream.cancel()
        stream.cancel()
        assert (stream.closed, repr(stream)) == (True, "<CopyToDeviceStream closed>")
        raises(errors.ClosedError, stream.add_chunk, TEN)
        raises(errors.ClosedError, lambda: stream.total_bytes)
        kept.append(stream)

    for callback in (forgotten, cancelled):
        _result, event = start(a, recv_callbacks=[{7: callback}])
        raises(errors.AbortedError, event.wait, 20)
    assert len(kept) == 1
    soon(lambda: left() == (0, 0))


@with_stub()
def test_what_a_stream_cannot_take(a):
    refused = []

    def receive(stream):
        for data in (TEN.tobytes() + b"1234", b"12", TEN[::2], object(), [1], "text"):
            try:
                stream.add_chunk(data)
            except (TypeError, ValueError) as exc:
                refused.append(str(exc))
        stream.add_chunk(b"")
        stream.add_chunk(TEN[:3])
        try:
            stream.add_chunk(TEN[:2])
        except ValueError as exc:
            refused.append(str(exc))
        stream.add_chunk(TEN[3:])

    assert finish(a, recv_callbacks=[{1: receive}]) == TEN.tolist()
    assert len(refused) == 7, refused
    assert refused[0] == "20 bytes are given, 16 are missing", refused
    assert refused[1] == "2 bytes are given, no multiple of 4", refused
    assert refused[6] == "8 bytes are given, 4 are missing", refused


@with_stub()
def test_output_callbacks(a):
    seen = []

    def see(value, replica, partition, number):
        seen.append((value, replica, partition, number))

    assert finish(a, hlo_output_callbacks={5: (see, 2), 6: (see, 1)}) == ONE_TO_FOUR.tolist()
    assert [each[1:] for each in seen] == [(1, 2, 0), (1, 2, 1)], seen
    assert seen[0][0].tolist() == [[1, 2], [3, 4]], seen
    assert (seen[1][0].tolist(), seen[0][0].flags.writeable) == ([1, 2], True)
    caught = []
    sys.unraisablehook = lambda report: caught.append(report.exc_type)

    def broken(*_):
        raise KeyError("mine")

    assert finish(a, hlo_output_callbacks={5: (broken, 2)}) == ONE_TO_FOUR.tolist()
    assert caught == [KeyError], caught


@with_stub()
def test_callbacks_are_kept_until_the_execution_is_done(a):
    came = []
    callback = partial(lambda *chunk: came.append(chunk))
    gone = weakref.ref(callback)
    _result, event = start(a, "held_exchange", send_callbacks=[{1: callback}])
    del callback
    gc.collect()
    assert (gone() is None, came) == (False, [])
    release()
    event.wait(20)
    assert len(came) == 2
    soon(lambda: gc.collect() >= 0 and gone() is None)


@with_stub()
def test_a_failed_launch_keeps_nothing(client, a):
    callback = partial(print)
    gone = weakref.ref(callback)
    exe = client.compile(func("error=3:refused_now"))
    options = ExecuteOptions(send_callbacks=[{1: callback}])
    raises(errors.InvalidArgumentError, exe.execute, [[a]], options)
    del callback, options
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    ("name", "given", "error", "message"),
    [
        ("send_callbacks", {1: print}, TypeError, "a list with a mapping for each device"),
        ("recv_callbacks", [print], TypeError, "must be a mapping"),
        ("send_callbacks", [{1: 2}], TypeError, "which cannot be called"),
        ("recv_callbacks", [{"a": print}], TypeError, "must be an int"),
        ("recv_callbacks", [{2**63: print}], OverflowError, "does not fit"),
        ("send_callbacks", [{1: print}, {2: print}], ValueError, "all devices run the same"),
        ("hlo_output_callbacks", [print], TypeError, "must be a mapping"),
        ("hlo_output_callbacks", {1: print}, TypeError, "(callback, num_operands)"),
        ("hlo_output_callbacks", {1: (print, -1)}, OverflowError, "does not fit"),
    ],
)
def test_what_no_callback_is(name, given, error, message):
    with pytest.raises(error, match=re.escape(message)):
        ExecuteOptions(**{name: given})


@with_stub()
def test_callbacks_of_other_devices_than_there_are(client, a):
    exe = client.compile(func("exchange"))
    two = ExecuteOptions(send_callbacks=[{1: print}, {1: print}])
    caught = raises(ValueError, exe.execute, [[a]], two)
    assert "are of 2 device(s), the program has 1" in str(caught), caught
    one = ExecuteOptions(recv_callbacks=[{1: print}])
    caught = raises(ValueError, exe.execute_on, [a], client.devices[0], one)
    assert "one device alone cannot exchange with the host" in str(caught), caught


@with_stub("MINOR=90", "ON_LOAD=api.PJRT_CopyToDeviceStream_AddChunk=NULL")
def test_a_plugin_without_streams_or_output_callbacks(client, a):
    exe = client.compile(func("exchange"))
    given = ExecuteOptions(recv_callbacks=[{1: fill}])
    caught = raises(errors.UnsupportedByPluginError, exe.execute, [[a]], given)
    assert caught.function == "PJRT_CopyToDeviceStream_AddChunk", caught.function
    given = ExecuteOptions(hlo_output_callbacks={1: (print, 1)})
    caught = raises(errors.UnsupportedByPluginError, exe.execute, [[a]], given)
    assert caught.since == "0.112", caught.since


CLOSES = {
    "from another thread": lambda client: threading.Timer(0.1, client.close).start(),
    "at once": lambda client: client.close(),
    "at the end of Python": lambda client: None,
    "by sys.exit": lambda client: sys.exit(0),
}


@pytest.mark.parametrize("close", CLOSES)
@pytest.mark.parametrize("receive", ["fill", "keep", "sleep"])
@pytest.mark.slow
@with_stub()
def test_every_end_while_a_program_exchanges(client, a, close, receive):
    """What is sent still arrives; a stream that nobody fills fails: nothing waits for it."""
    came, kept = [], []

    def send(chunk, total, done):
        came.append(done)

    ways = {"fill": fill, "keep": kept.append, "sleep": lambda stream: time.sleep(0.3)}
    stay(client, a, came, kept, send, ways)
    start(a, "slow_exchange", send_callbacks=[{1: send}], recv_callbacks=[{2: ways[receive]}])
    CLOSES[close](client)


@pytest.mark.parametrize("where", ["send", "receive"])
@with_stub()
def test_a_client_closed_by_a_callback(client, a, where):
    """On the plugin's thread, which the plugin waits for: the closing is another thread's."""

    def send(chunk, total, done):
        if where == "send":
            client.close()

    def receive(stream):
        if where == "receive":
            client.close()
        raises(errors.ClosedError, stream.add_chunk, TEN)

    start(a, "slow_exchange", send_callbacks=[{1: send}], recv_callbacks=[{2: receive}])
    soon(lambda: gc.collect() >= 0 and live() == {})
    assert client.closed


@with_stub()
def test_a_client_closed_by_a_callback_of_the_calling_thread(client, a):
    def send(chunk, total, done):
        client.close()

    _result, event = start(a, "inline_exchange", send_callbacks=[{1: send}])
    raises(errors.ClosedError, event.wait)
    soon(lambda: live() == {})


@with_stub()
def test_an_interrupt_inside_a_callback_reaches_the_main_thread(a):
    def interrupt(*_):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.01)

    def run(**callbacks):
        start(a, "inline_exchange", **callbacks)
        time.sleep(5)

    raises(KeyboardInterrupt, run, send_callbacks=[{1: interrupt}])
    raises(KeyboardInterrupt, run, recv_callbacks=[{1: interrupt}])


@with_stub()
def test_many_programs_at_once(client, a):
    def work(number):
        value = np.full(4, number, np.float32)
        for _ in range(20):
            sent = []

            def send(chunk, total, done, sent=sent):
                sent.append(chunk)

            def receive(stream):
                stream.add_chunk(value[:1])
                stream.add_chunk(value[1:])

            got = finish(a, send_callbacks=[{1: send}], recv_callbacks=[{2: receive}])
            assert got == value.tolist(), (got, number)
            assert b"".join(sent) == ONE_TO_FOUR.tobytes()
        done.append(number)

    done = []
    in_threads(*(partial(work, each) for each in range(6)))
    assert sorted(done) == list(range(6)), done
    soon(lambda: gc.collect() >= 0 and left() == (0, 0))
    client.close()
    assert live() == {}, live()
