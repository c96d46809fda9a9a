"""What running programs send to Python and receive from it, on the plugin's own threads."""

from __future__ import annotations

import textwrap

import pytest

SETUP = """
import threading, time
from pjrt_hub import ExecuteOptions

client = Plugin(load(path)).client()
a = client.buffer_from_host(ONE_TO_FOUR)
library = ctypes.CDLL(path)
TEN = np.arange(10, 14, dtype=np.float32)


def left():
    names = ("stub_chunks", "stub_streams")
    return tuple(ctypes.c_long.in_dll(library, name).value for name in names)


def failure():
    return (ctypes.c_char * 256).in_dll(library, "stub_failure").value.decode()


def start(words="exchange", **given):
    options = ExecuteOptions(**given)
    [[result]], [event] = client.compile(func(words)).execute([[a]], options, return_events=True)
    return result, event


def finish(words="exchange", **given):
    result, event = start(words, **given)
    event.wait(20)
    return result.tolist()


def fill(stream, value=TEN):
    stream.add_chunk(value)
"""


@pytest.fixture
def check_exchange(stub, check):
    return lambda script, *args, **kwargs: check(
        stub(*args), SETUP + textwrap.dedent(script), **kwargs
    )


def test_a_program_sends(check_exchange):
    check_exchange("""
        came = []
        def one(chunk, total, done): came.append((1, chunk, total, done, threading.get_ident()))
        def two(chunk, total, done): came.append((2, chunk, total, done, threading.get_ident()))
        finish(send_callbacks=[{1: one, 2**40: two}])
        parts = [ONE_TO_FOUR[:2].tobytes(), ONE_TO_FOUR[2:].tobytes()]
        assert [each[:4] for each in came] == [
            (channel, part, 16, part is parts[1]) for channel in (1, 2) for part in parts], came
        assert threading.get_ident() not in {each[4] for each in came}
        assert left() == (0, 0)
    """)


def test_a_program_receives(check_exchange):
    check_exchange("""
        seen = []
        def whole(stream):
            seen.append((stream.total_bytes, stream.granule_size, stream.current_bytes))
            seen.append(repr(stream))
            stream.add_chunk(TEN)
            seen.append((stream.current_bytes, stream.closed))
        assert finish(recv_callbacks=[{3: whole}]) == TEN.tolist()
        assert seen == [(16, 4, 0), "<CopyToDeviceStream 0 of 16 bytes>", (16, False)], seen

        def parts(stream):
            for number in range(10, 14):
                seen.append(stream.add_chunk(np.full(1, number, np.float32)))
        assert finish(recv_callbacks=[{3: parts}]) == TEN.tolist()
        for event in seen[3:]:
            event.wait(20)
        del seen[3:], event
        soon(lambda: left() == (0, 0))
    """)


def test_both_ways(check_exchange):
    check_exchange("""
        sent = bytearray()
        def send(chunk, total, done): sent.extend(chunk)
        def receive(stream): stream.add_chunk(np.frombuffer(bytes(sent), np.float32) * 2)
        for words in ("exchange", "slow_exchange", "inline_exchange"):
            got = finish(words, send_callbacks=[{1: send}], recv_callbacks=[{2: receive}])
            assert got == [2, 4, 6, 8], got
            sent.clear()
        soon(lambda: left() == (0, 0))
        client.close()
        assert live() == {}, live()
    """)


def test_a_stream_that_is_filled_later(check_exchange):
    """From another thread; what it is filled with is kept alive until it has arrived."""
    check_exchange("""
        streams = []
        result, event = start(recv_callbacks=[{1: streams.append}])
        soon(lambda: streams)
        assert not event.is_ready()
        for half in (TEN[:2], TEN[2:]):
            streams[0].add_chunk(half.copy())
        streams.clear()
        event.wait(20)
        assert result.tolist() == TEN.tolist()
        soon(lambda: left() == (0, 0))
    """)


def test_an_exception_while_sending_is_the_programs_error(check_exchange):
    check_exchange("""
        def broken(chunk, total, done):
            raise what
        text = "the send callback of channel 7: "
        for what, cls, code in (
            (KeyError("mine"), errors.PluginInternalError, 13),
            (ValueError("no"), errors.InvalidArgumentError, 3),
            (errors.ResourceExhaustedError("full", code=8, function="", payloads={}),
             errors.ResourceExhaustedError, 8),
            (SystemExit(3), errors.CancelledError, 1),
        ):
            result, event = start(send_callbacks=[{7: broken}])
            assert raises(cls, event.wait, 20).code == code
            assert failure().startswith(text + type(what).__name__) or code == 8, failure()
            assert "(<string>:" in failure(), failure()
        assert left() == (0, 0)
        assert finish() == ONE_TO_FOUR.tolist()
    """)


def test_an_exception_while_receiving_fails_the_program(check_exchange):
    check_exchange("""
        caught = []
        sys.unraisablehook = lambda report: caught.append(
            (report.exc_type, str(report.exc_value), report.exc_value.__notes__))
        def broken(stream):
            raise KeyError("mine")
        def half(stream):
            stream.add_chunk(TEN[:2])
            raise ValueError("enough")
        for callback in (broken, half):
            result, event = start(recv_callbacks=[{7: callback}])
            raises(errors.AbortedError, event.wait, 20)
        notes = ["in the receive callback of channel 7; the program fails"]
        assert caught == [(KeyError, "'mine'", notes), (ValueError, "enough", notes)], caught
        soon(lambda: left() == (0, 0))
    """)


def test_a_stream_that_is_given_up_fails_the_program(check_exchange):
    check_exchange("""
        kept = []
        def forgotten(stream): pass
        def cancelled(stream):
            stream.cancel()
            stream.cancel()
            assert stream.closed and repr(stream) == "<CopyToDeviceStream closed>"
            raises(errors.ClosedError, stream.add_chunk, TEN)
            raises(errors.ClosedError, lambda: stream.total_bytes)
            kept.append(stream)
        for callback in (forgotten, cancelled):
            result, event = start(recv_callbacks=[{7: callback}])
            raises(errors.AbortedError, event.wait, 20)
        assert len(kept) == 1
        soon(lambda: left() == (0, 0))
    """)


def test_what_a_stream_cannot_take(check_exchange):
    check_exchange("""
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
        assert finish(recv_callbacks=[{1: receive}]) == TEN.tolist()
        assert len(refused) == 7, refused
        assert refused[0] == "20 bytes are given, 16 are missing", refused
        assert refused[1] == "2 bytes are given, no multiple of 4", refused
        assert refused[6] == "8 bytes are given, 4 are missing", refused
    """)


def test_output_callbacks(check_exchange):
    check_exchange("""
        seen = []
        def see(value, replica, partition, number): seen.append((value, replica, partition, number))
        assert finish(hlo_output_callbacks={5: (see, 2), 6: (see, 1)}) == ONE_TO_FOUR.tolist()
        assert [each[1:] for each in seen] == [(1, 2, 0), (1, 2, 1)], seen
        assert seen[0][0].tolist() == [[1, 2], [3, 4]], seen
        assert seen[1][0].tolist() == [1, 2] and seen[0][0].flags.writeable
        caught = []
        sys.unraisablehook = lambda report: caught.append(report.exc_type)
        def broken(*_): raise KeyError("mine")
        assert finish(hlo_output_callbacks={5: (broken, 2)}) == ONE_TO_FOUR.tolist()
        assert caught == [KeyError], caught
    """)


def test_callbacks_are_kept_until_the_execution_is_done(check_exchange):
    check_exchange("""
        import weakref

        class Callback:
            def __call__(self, chunk, total, done): came.append(chunk)

        came, callback = [], Callback()
        gone = weakref.ref(callback)
        result, event = start("slow_exchange", send_callbacks=[{1: callback}])
        del callback
        gc.collect()
        assert gone() is not None and not came
        event.wait(20)
        assert len(came) == 2
        soon(lambda: gc.collect() >= 0 and gone() is None)
    """)


def test_a_failed_launch_keeps_nothing(check_exchange):
    check_exchange("""
        import weakref

        class Callback:
            def __call__(self, *_): raise AssertionError("it was never launched")

        callback = Callback()
        gone = weakref.ref(callback)
        exe = client.compile(func("error=3:refused_now"))
        options = ExecuteOptions(send_callbacks=[{1: callback}])
        raises(errors.InvalidArgumentError, exe.execute, [[a]], options)
        del callback, options
        gc.collect()
        assert gone() is None
    """)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("send_callbacks={1: print}", "TypeError", "a list with a mapping for each device"),
        ("recv_callbacks=[print]", "TypeError", "must be a mapping"),
        ("send_callbacks=[{1: 2}]", "TypeError", "which cannot be called"),
        ("recv_callbacks=[{'a': print}]", "TypeError", "must be an int"),
        ("recv_callbacks=[{2**63: print}]", "OverflowError", "does not fit"),
        ("send_callbacks=[{1: print}, {2: print}]", "ValueError", "all devices run the same"),
        ("hlo_output_callbacks=[print]", "TypeError", "must be a mapping"),
        ("hlo_output_callbacks={1: print}", "TypeError", "(callback, num_operands)"),
        ("hlo_output_callbacks={1: (print, -1)}", "OverflowError", "does not fit"),
    ],
)
@pytest.mark.slow
def test_what_no_callback_is(check_exchange, given, error, message):
    check_exchange(f"""
        caught = raises({error}, ExecuteOptions, {given})
        assert {message!r} in str(caught), caught
    """)


def test_callbacks_of_other_devices_than_there_are(check_exchange):
    check_exchange("""
        exe = client.compile(func("exchange"))
        two = ExecuteOptions(send_callbacks=[{1: print}, {1: print}])
        caught = raises(ValueError, exe.execute, [[a]], two)
        assert "are of 2 device(s), the program has 1" in str(caught), caught
        one = ExecuteOptions(recv_callbacks=[{1: print}])
        caught = raises(ValueError, exe.execute_sharded, [a], client.devices[0], one)
        assert "one device alone cannot exchange with the host" in str(caught), caught
    """)


def test_a_plugin_without_streams_or_output_callbacks(check_exchange):
    check_exchange(
        """
        exe = client.compile(func("exchange"))
        given = ExecuteOptions(recv_callbacks=[{1: fill}])
        caught = raises(errors.UnsupportedByPluginError, exe.execute, [[a]], given)
        assert caught.function == "PJRT_CopyToDeviceStream_AddChunk", caught.function
        given = ExecuteOptions(hlo_output_callbacks={1: (print, 1)})
        caught = raises(errors.UnsupportedByPluginError, exe.execute, [[a]], given)
        assert caught.since == "0.112", caught.since
        """,
        "MINOR=90",
        "ON_LOAD=api.PJRT_CopyToDeviceStream_AddChunk=NULL",
    )


CLOSES = {
    "from another thread": "threading.Timer(0.1, client.close).start()",
    "at once": "client.close()",
    "at the end of Python": "",
    "by sys.exit": "sys.exit(0)",
}


@pytest.mark.parametrize("close", CLOSES.values(), ids=CLOSES)
@pytest.mark.parametrize("receive", ["fill", "kept.append", "lambda stream: time.sleep(0.3)"])
@pytest.mark.slow
def test_every_end_while_a_program_exchanges(check_exchange, close, receive):
    """What is sent still arrives; a stream that nobody fills fails: nothing waits for it."""
    check_exchange(f"""
        came, kept = [], []
        def send(chunk, total, done): came.append(done)
        both = dict(send_callbacks=[{{1: send}}], recv_callbacks=[{{2: {receive}}}])
        start("slow_exchange", **both)
        {close}
    """)


@pytest.mark.parametrize("where", ["send", "receive"])
def test_a_client_closed_by_a_callback(check_exchange, where):
    """On the plugin's thread, which the plugin waits for: the closing is another thread's."""
    check_exchange(f"""
        def send(chunk, total, done):
            if {where!r} == "send": client.close()
        def receive(stream):
            if {where!r} == "receive": client.close()
            raises(errors.ClosedError, stream.add_chunk, TEN)
        both = dict(send_callbacks=[{{1: send}}], recv_callbacks=[{{2: receive}}])
        start("slow_exchange", **both)
        soon(lambda: gc.collect() >= 0 and live() == {{}})
        assert client.closed
    """)


def test_a_client_closed_by_a_callback_of_the_calling_thread(check_exchange):
    check_exchange("""
        def send(chunk, total, done): client.close()
        result, event = start("inline_exchange", send_callbacks=[{1: send}])
        raises(errors.ClosedError, event.wait)
        soon(lambda: live() == {})
    """)


def test_an_interrupt_inside_a_callback_reaches_the_main_thread(check_exchange):
    check_exchange("""
        import signal
        def send(chunk, total, done):
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.01)
        def run():
            start("inline_exchange", send_callbacks=[{1: send}])
            time.sleep(5)
        raises(KeyboardInterrupt, run)
        def receive(stream):
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.01)
        def run():
            start("inline_exchange", recv_callbacks=[{1: receive}])
            time.sleep(5)
        raises(KeyboardInterrupt, run)
    """)


def test_many_programs_at_once(check_exchange):
    check_exchange("""
        def work(number):
            value = np.full(4, number, np.float32)
            for _ in range(20):
                sent = []
                def send(chunk, total, done): sent.append(chunk)
                def receive(stream):
                    stream.add_chunk(value[:1])
                    stream.add_chunk(value[1:])
                got = finish(send_callbacks=[{1: send}], recv_callbacks=[{2: receive}])
                assert got == value.tolist(), (got, number)
                assert b"".join(sent) == ONE_TO_FOUR.tobytes()
            done.append(number)
        done = []
        threads = [threading.Thread(target=work, args=[n]) for n in range(6)]
        for each in threads: each.start()
        for each in threads: each.join()
        assert sorted(done) == list(range(6)), done
        soon(lambda: gc.collect() >= 0 and left() == (0, 0))
        client.close()
        assert live() == {}, live()
    """)
