"""The key-value store of several processes: asked by a plugin's threads, answered in Python."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from pjrt_hub import DirectoryStore

PRELUDE = """
import threading, time
from pjrt_hub import DirectoryStore, Distributed, InMemoryStore

library = ctypes.CDLL(path)
GET, TRY_GET, PUT = range(3)
OK, CANCELLED, DEADLINE_EXCEEDED, NOT_FOUND, INTERNAL = 0, 1, 4, 5, 13


class Question(ctypes.Structure):
    _fields_ = [
        ("operation", ctypes.c_int), ("timeout_in_ms", ctypes.c_int),
        ("key", ctypes.c_char_p), ("key_size", ctypes.c_size_t),
        ("value", ctypes.c_void_p), ("value_size", ctypes.c_size_t),
        ("code", ctypes.c_int), ("text", ctypes.c_char * 256),
    ]


def question(operation, key, value=b"", timeout=0):
    room = ctypes.create_string_buffer(value, max(len(value), 1 << 20))
    size = len(value) if operation == PUT else 1 << 20
    asked = Question(operation, timeout, key, len(key), ctypes.addressof(room), size)
    asked.room = room
    return asked


def ask(*args, **kwargs):
    asked = question(*args, **kwargs)
    library.stub_ask(ctypes.byref(asked))
    if asked.code:
        return asked.code, asked.text.decode()
    return asked.code, asked.room.raw[: asked.value_size]


def joined(store, process=0, count=1):
    return Plugin(load(path)).client(distributed=Distributed(count, process, store))
"""


@pytest.fixture
def check_kv(stub, check):
    return lambda script, *args, **kwargs: check(
        stub(), PRELUDE + f"exec({textwrap.dedent(script)!r})", *args, **kwargs
    )


def test_every_operation(check_kv):
    check_kv(
        """
        store = InMemoryStore()
        with joined(store):
            assert store.try_get("node:0") == b"node:0"  # the plugin's own, while it was made
            assert ask(TRY_GET, b"k") == (NOT_FOUND, "no value under the key yet")
            assert ask(PUT, b"k", b"v\\0w") [0] == OK
            assert ask(TRY_GET, b"k") == (OK, b"v\\0w")
            assert ask(GET, b"k") == (OK, b"v\\0w")
            assert ask(PUT, b"k", b"")[0] == OK
            assert ask(GET, b"k") == (OK, b"")
            large = os.urandom(1 << 20)
            assert ask(PUT, b"\\xff/\\xc3\\xa4", large)[0] == OK
            assert ask(GET, b"\\xff/\\xc3\\xa4") == (OK, large)
            assert store.try_get(b"\\xff/\\xc3\\xa4".decode("utf-8", "surrogateescape")) == large
        assert not live()
        """
    )


def test_waiting(check_kv):
    check_kv(
        """
        store = InMemoryStore()
        client = joined(store)
        code, text = ask(GET, b"never", timeout=450)
        assert (code, text) == (DEADLINE_EXCEEDED, "nobody put a value under the key in time")
        assert ask(GET, b"never", timeout=0)[0] == DEADLINE_EXCEEDED
        threading.Timer(0.5, lambda: store.put("later", b"here")).start()
        assert ask(GET, b"later", timeout=30_000) == (OK, b"here")
        threading.Timer(0.3, lambda: store.put("forever", b"here")).start()
        assert ask(GET, b"forever", timeout=-1) == (OK, b"here")
        client.close()
        """
    )


def test_many_threads_at_once(check_kv):
    check_kv(
        """
        client = joined(InMemoryStore())
        def work(number):
            for step in range(50):
                key = f"{number}/{step}".encode()
                assert ask(PUT, key, key)[0] == OK
                assert ask(GET, key, timeout=5000) == (OK, key)
            done.append(number)
        done = []
        threads = [threading.Thread(target=work, args=[n]) for n in range(8)]
        for each in threads: each.start()
        for each in threads: each.join()
        assert sorted(done) == list(range(8))
        client.close()
        assert not live()
        """
    )


def test_exceptions_become_the_plugins_errors(check_kv):
    check_kv(
        """
        class Bad:
            what = b"node:0"
            def put(self, key, value): return self.give() and None
            def get(self, key, timeout): return self.give()
            def try_get(self, key): return self.give()
            def give(self):
                if isinstance(self.what, BaseException): raise self.what
                return self.what
        store = Bad()
        client = joined(store)
        for store.what in (ValueError("broken"), KeyboardInterrupt("now"), SystemExit(3)):
            name = type(store.what).__name__
            for operation in (GET, TRY_GET, PUT):
                assert ask(operation, b"k", timeout=100) == (INTERNAL, f"{name}: {store.what}")
        store.what = "text"
        for operation in (GET, TRY_GET):
            assert ask(operation, b"k") == (INTERNAL, "the store gave str instead of bytes")
        store.what = TimeoutError()
        assert ask(GET, b"k", timeout=300)[0] == DEADLINE_EXCEEDED
        client.close()
        """
    )


def test_an_error_of_the_store_ends_the_making_of_a_client(check_kv):
    check_kv(
        """
        class Full(InMemoryStore):
            def put(self, key, value): raise OSError("the disk is full")
        caught = raises(errors.PluginInternalError, joined, Full())
        assert "OSError: the disk is full" in caught.message
        assert not live()
        """
    )


@pytest.mark.parametrize("count", ["(True, 0)", "(1.0, 0)", "('2', 0)", "(2, None)"])
def test_numbers_that_are_none(check_kv, count):
    check_kv(f"raises(TypeError, Distributed, *{count}, InMemoryStore())")


@pytest.mark.parametrize("count", ["(0, 0)", "(1, 1)", "(2, -1)", "(-1, 0)"])
def test_a_process_that_is_none_of_them(check_kv, count):
    check_kv(f"raises(ValueError, Distributed, *{count}, InMemoryStore())")


@pytest.mark.parametrize("store", ["None", "{}", "object()", "'/tmp'"])
def test_what_is_no_store(check_kv, store):
    check_kv(f"raises(TypeError, Distributed, 1, 0, {store})")


def test_a_client_that_did_not_join_is_refused(stub, check):
    script = """
    caught = raises(errors.PjrtHubError, joined, InMemoryStore(), 1, 2)
    assert "process 1 of 2 did not join" in caught.message, caught
    assert not live()
    """
    alone = stub("ON_CREATE=args->kv_put_callback=NULL")
    check(alone, PRELUDE + f"exec({textwrap.dedent(script)!r})")
    first = script.replace(", 1, 2)", ", 0, 2)").replace("process 1 of", "process 0 of")
    check(alone, PRELUDE + f"exec({textwrap.dedent(first)!r})")


ENDS = {
    "returns": "",
    "exits": "sys.exit(0)",
    "thread": "threading.Thread(target=time.sleep, args=[0.3]).start()",
}


@pytest.mark.parametrize("operation", ["GET", "TRY_GET", "PUT"])
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.slow
def test_python_ends_while_threads_ask(check_kv, operation, end):
    check_kv(
        f"""
        client = joined(InMemoryStore())
        asked = [question({operation}, b"never", timeout=3600_000) for _ in range(4)]
        for each in asked: library.stub_ask_always(ctypes.byref(each))
        time.sleep(0.2)
        {end}
        """
    )


INTERRUPTED = """
        import signal

        def interrupt():
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        began = time.monotonic()
        raises(KeyboardInterrupt, joined, STORE, 0, 2)  # the other process never comes
        assert time.monotonic() - began < 30
        END
"""


@pytest.mark.parametrize("store", ["InMemoryStore()", "DirectoryStore(os.path.dirname(path))"])
@pytest.mark.parametrize("end", ["", "sys.exit(0)"])
@pytest.mark.slow
def test_an_interrupt_ends_the_waiting_for_others(check_kv, store, end):
    check_kv(INTERRUPTED.replace("STORE", store).replace("END", end), seconds=15)


JOIN = """
store = {store}
with joined(store, int(sys.argv[2]), 3) as client:
    assert client.process_index == int(sys.argv[2])
    other = f"node:{{(client.process_index + 1) % 3}}"
    assert store.get(other, 5) == other.encode()
    assert store.try_get("nothing") is None
    raises(TimeoutError, store.get, "nothing", 0.05)
print("joined")
"""


def three_processes(stub, start, store, *args):
    script = PRELUDE + JOIN.format(store=store)
    children = [start(stub(), script, str(number), *args) for number in range(3)]
    ended = [(*child.communicate(timeout=60), child.returncode) for child in children]
    assert ended == [("joined\n", "", 0)] * 3


def test_processes_meet_in_a_directory(stub, start, tmp_path):
    three_processes(stub, start, "DirectoryStore(sys.argv[3])", str(tmp_path / "made/here"))
    files = [path.name for path in (tmp_path / "made/here").iterdir()]
    assert len(files) == 3
    assert not [name for name in files if name.startswith(".")]


class Server:
    """A redis-server on the loopback interface that keeps nothing."""

    def __init__(self, program, folder):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [program, "--bind", "127.0.0.1", "--port", str(self.port), "--save", ""]
        self._folder = folder
        self.start()

    def start(self):
        self._process = subprocess.Popen(
            [*self._command, "--dir", str(self._folder)], stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, "redis-server does not listen"
                time.sleep(0.02)

    def signal(self, number):
        self._process.send_signal(number)

    def stop(self):
        self._process.kill()
        self._process.wait(20)


@pytest.fixture
def server(tmp_path):
    program = shutil.which("redis-server")
    if program is None and "CI" not in os.environ:  # there it is installed, so missing is a failure
        pytest.skip("this test needs redis-server (the package redis-server of the system)")
    assert program
    server = Server(program, tmp_path)
    yield server
    server.stop()


@pytest.fixture
def redis_server(server):
    return server.url


def test_processes_meet_on_a_redis_server(stub, start, redis_server):
    store = "__import__('pjrt_hub.frameworks.redis').frameworks.redis.RedisStore(sys.argv[3])"
    three_processes(stub, start, store, redis_server)


def test_jobs_on_one_server_do_not_meet(redis_server):
    from pjrt_hub.frameworks.redis import RedisStore

    one, two = RedisStore(redis_server, "one:"), RedisStore(redis_server, "two:")
    one.put("k", b"\0\xff")
    assert one.try_get("k") == one.get("k", 1) == b"\0\xff"
    assert two.try_get("k") is None


@pytest.fixture
def redis_store(server):
    from pjrt_hub.frameworks.redis import RedisStore

    return RedisStore(f"{server.url}?socket_timeout=0.5", "job:")


def test_waiting_for_a_key_on_a_server(redis_store):
    with pytest.raises(TimeoutError, match=r"nobody put 'k' within 0\.1 seconds"):
        redis_store.get("k", 0.1)
    threading.Timer(0.2, redis_store.put, ("k", b"here")).start()
    assert redis_store.get("k", 30) == b"here"


def test_a_server_that_goes_while_somebody_waits(redis_store, server):
    """The error comes at once, not when the wait is over; a server that is back is used again."""
    import redis

    redis_store.put("k", b"v")
    threading.Timer(0.2, server.stop).start()
    with pytest.raises(redis.ConnectionError):
        redis_store.get("never", 3600)
    with pytest.raises(redis.ConnectionError):
        redis_store.put("k", b"v")
    server.start()
    assert redis_store.try_get("k") is None  # it kept nothing
    redis_store.put("k", b"again")
    assert redis_store.get("k", 1) == b"again"


def test_a_server_that_is_back_within_a_second(redis_store, server):
    redis_store.put("k", b"v")
    server.stop()
    threading.Timer(0.3, server.start).start()
    redis_store.put("k", b"later")
    assert redis_store.try_get("k") == b"later"


def test_a_server_that_hangs(redis_store, server):
    import redis

    redis_store.put("k", b"v")
    server.signal(signal.SIGSTOP)
    for ask in (redis_store.try_get, lambda key: redis_store.get(key, 3600)):
        with pytest.raises(redis.TimeoutError):
            ask("k")
    with pytest.raises(redis.TimeoutError):
        redis_store.put("k", b"w")
    server.signal(signal.SIGCONT)
    assert redis_store.get("k", 30) in (b"v", b"w")


def test_what_on_a_server_is_no_value_of_ours(redis_store, server):
    import redis

    from pjrt_hub.frameworks.redis import RedisStore

    with redis.Redis.from_url(server.url) as other:
        other.rpush("job:k", b"a list")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        redis_store.try_get("k")
    for value in (None, ["v"], object()):
        with pytest.raises(redis.DataError):
            redis_store.put("k", value)
    with (
        redis.Redis.from_url(server.url, decode_responses=True) as decoding,
        pytest.raises(TypeError, match="decodes responses"),
    ):
        RedisStore(decoding)
    for wrong in ("127.0.0.1:6379", "http://127.0.0.1"):
        with pytest.raises(ValueError, match="scheme"):
            RedisStore(wrong)


ON_A_SERVER = """
import os, signal
from pjrt_hub.frameworks.redis import RedisStore
store, server = RedisStore(sys.argv[2] + "?socket_timeout=0.5"), int(sys.argv[3])
"""


def test_a_plugin_hears_of_a_server_that_is_gone(stub, check, server):
    script = """
        os.kill(server, signal.SIGKILL)
        caught = raises(errors.PluginInternalError, joined, store)
        assert "ConnectionError" in caught.message, caught
        assert not live()
    """
    script = PRELUDE + ON_A_SERVER + textwrap.dedent(script)
    check(stub(), script, server.url, str(server._process.pid))


@pytest.mark.parametrize("operation", ["GET", "TRY_GET", "PUT"])
def test_python_ends_while_threads_ask_a_server_that_hangs(stub, check, server, operation):
    script = f"""
        client = joined(store)
        os.kill(server, signal.SIGSTOP)
        asked = [question({operation}, b"never", timeout=3600_000) for _ in range(4)]
        for each in asked: library.stub_ask_always(ctypes.byref(each))
        time.sleep(0.2)
    """
    script = PRELUDE + ON_A_SERVER + textwrap.dedent(script)
    check(stub(), script, server.url, str(server._process.pid), seconds=30)


WRITER = """
import sys
from pjrt_hub import DirectoryStore
store, mine = DirectoryStore(sys.argv[1]), sys.argv[2].encode()
print("begun", flush=True)
while True:
    store.put("shared", mine * 100_000)
    store.put(f"own {sys.argv[2]}", mine * 100_000)
"""


def test_writers_of_a_directory_that_are_killed(tmp_path):
    """Three put one key at once, until each is killed: what is there is always whole."""
    store = DirectoryStore(tmp_path / "job")
    whole = {number.encode() * 100_000 for number in "123"}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(store.path), each], stdout=-1)
        for each in "123"
    ]
    try:
        for writer in writers:
            assert writer.stdout.readline() == b"begun\n"
        for writer in writers:
            for _ in range(300):
                assert store.get("shared", 30) in whole
            writer.kill()
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert store.try_get("shared") in whole
    assert {store.try_get(f"own {each}") for each in "123"} <= {None, *whole}
    store.put("shared", b"after")
    assert store.get("shared", 0) == b"after"


def test_a_directory_that_is_gone_or_none(tmp_path):
    store = DirectoryStore(tmp_path / "job")
    store.put("k", b"v")
    shutil.rmtree(store.path)
    assert store.try_get("k") is None
    with pytest.raises(TimeoutError, match="nobody put 'k'"):
        store.get("k", 0.01)
    with pytest.raises(FileNotFoundError):
        store.put("k", b"v")
    with pytest.raises(TypeError, match="bytes-like"):
        DirectoryStore(tmp_path).put("k", "text")
    assert DirectoryStore(tmp_path).try_get("k") is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        DirectoryStore(tmp_path / "file")
