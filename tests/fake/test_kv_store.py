"""The key-value store of several processes: a plugin's threads ask, and Python answers."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from ipaddress import IPv4Address

import pytest
import redis
from children import in_threads
from stubbed import live, path, raises, soon, stay, with_stub

from pjrt_hub import DirectoryStore, Distributed, InMemoryStore, errors
from pjrt_hub.frameworks.redis import RedisStore
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin

GET, TRY_GET, PUT = range(3)
OK, CANCELLED, DEADLINE_EXCEEDED, NOT_FOUND, INTERNAL = 0, 1, 4, 5, 13


class Question(ctypes.Structure):
    """A question that a thread of the stub asks the store, as in kv_store.h."""

    _fields_ = [
        ("operation", ctypes.c_int),
        ("timeout_in_ms", ctypes.c_int),
        ("key", ctypes.c_char_p),
        ("key_size", ctypes.c_size_t),
        ("value", ctypes.c_void_p),
        ("value_size", ctypes.c_size_t),
        ("code", ctypes.c_int),
        ("text", ctypes.c_char * 256),
    ]


def question(operation, key, value=b"", timeout=0):
    room = ctypes.create_string_buffer(value, max(len(value), 1 << 20))
    size = len(value) if operation == PUT else 1 << 20
    asked = Question(operation, timeout, key, len(key), ctypes.addressof(room), size)
    asked.room = room
    return asked


def ask(*args, **kwargs):
    asked = question(*args, **kwargs)
    ctypes.CDLL(path).stub_ask(ctypes.byref(asked))
    if asked.code:
        return asked.code, asked.text.decode()
    return asked.code, asked.room.raw[: asked.value_size]


def ask_always(operation):
    """Let four threads of the stub ask until the process ends; the caller keeps what this gives."""
    asked = [question(operation, b"never", timeout=3600_000) for _ in range(4)]
    for each in asked:
        ctypes.CDLL(path).stub_ask_always(ctypes.byref(each))
    time.sleep(0.2)
    return asked


def joined(store, process=0, count=1):
    return Plugin(load(path)).client(distributed=Distributed(count, process, store))


@with_stub()
def test_every_operation():
    store = InMemoryStore()
    with joined(store):
        assert store.try_get("node:0") == b"node:0"  # the plugin put it as it made the client
        assert ask(TRY_GET, b"k") == (NOT_FOUND, "no value under the key yet")
        assert ask(PUT, b"k", b"v\0w")[0] == OK
        assert ask(TRY_GET, b"k") == (OK, b"v\0w")
        assert ask(GET, b"k") == (OK, b"v\0w")
        assert ask(PUT, b"k", b"")[0] == OK
        assert ask(GET, b"k") == (OK, b"")
        large = os.urandom(1 << 20)
        assert ask(PUT, b"\xff/\xc3\xa4", large)[0] == OK
        assert ask(GET, b"\xff/\xc3\xa4") == (OK, large)
        assert store.try_get(b"\xff/\xc3\xa4".decode("utf-8", "surrogateescape")) == large
    assert not live()


@with_stub()
def test_waiting():
    store = InMemoryStore()
    client = joined(store)
    late = (DEADLINE_EXCEEDED, "nobody put a value under the key in time")
    assert ask(GET, b"never", timeout=450) == late
    assert ask(GET, b"never", timeout=0)[0] == DEADLINE_EXCEEDED
    threading.Timer(0.5, lambda: store.put("later", b"here")).start()
    assert ask(GET, b"later", timeout=30_000) == (OK, b"here")
    threading.Timer(0.3, lambda: store.put("forever", b"here")).start()
    assert ask(GET, b"forever", timeout=-1) == (OK, b"here")
    client.close()


@with_stub()
def test_many_threads_at_once():
    client = joined(InMemoryStore())

    def work(number):
        for step in range(50):
            key = f"{number}/{step}".encode()
            assert ask(PUT, key, key)[0] == OK
            assert ask(GET, key, timeout=5000) == (OK, key)
        done.append(number)

    done = []
    in_threads(*(partial(work, each) for each in range(8)))
    assert sorted(done) == list(range(8))
    client.close()
    assert not live()


@with_stub()
def test_exceptions_become_the_plugins_errors():
    class Bad:
        what = b"node:0"

        def get(self, *_):
            if isinstance(self.what, BaseException):
                raise self.what
            return self.what

        def put(self, *_):
            self.get()

        try_get = get

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


@with_stub()
def test_an_error_of_the_store_ends_the_making_of_a_client():
    class Full(InMemoryStore):
        def put(self, key, value):
            raise OSError("the disk is full")

    caught = raises(errors.PluginInternalError, joined, Full())
    assert "OSError: the disk is full" in caught.message
    assert not live()


@pytest.mark.parametrize(
    ("count", "error"),
    [(each, TypeError) for each in ((True, 0), (1.0, 0), ("2", 0), (2, None))]
    + [(each, ValueError) for each in ((0, 0), (1, 1), (2, -1), (-1, 0))],
)
def test_numbers_that_are_none(count, error):
    with pytest.raises(error):
        Distributed(*count, InMemoryStore())


@pytest.mark.parametrize("store", [None, {}, object(), "/tmp"])
def test_what_is_no_store(store):
    with pytest.raises(TypeError):
        Distributed(1, 0, store)


@pytest.mark.parametrize("process", [0, 1])
@with_stub("ON_CREATE=args->kv_put_callback=NULL")
def test_a_client_that_did_not_join_is_refused(process):
    caught = raises(errors.PjrtHubError, joined, InMemoryStore(), process, 2)
    assert f"process {process} of 2 did not join" in caught.message, caught
    assert not live()


ENDS = {
    "returns": lambda: None,
    "exits": lambda: sys.exit(0),
    "thread": lambda: threading.Thread(target=time.sleep, args=[0.3]).start(),
}


@pytest.mark.parametrize("operation", [GET, TRY_GET, PUT])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.slow
@with_stub()
def test_python_ends_while_threads_ask(operation, end):
    stay(joined(InMemoryStore()), ask_always(operation))
    ENDS[end]()


@pytest.mark.parametrize("store", ["memory", "directory"])
@pytest.mark.parametrize("end", ["returns", "exits"])
@pytest.mark.slow
@with_stub(seconds=15)
def test_an_interrupt_ends_the_waiting_for_others(store, end, tmp_path):
    store = InMemoryStore() if store == "memory" else DirectoryStore(tmp_path)
    get = store.get

    def wait(key, timeout):
        if key == "node:1":
            os.kill(os.getpid(), signal.SIGINT)
        return get(key, timeout)

    store.get = wait
    raises(KeyboardInterrupt, joined, store, 0, 2)  # the other process never comes
    ENDS[end]()


def join(number, place):
    store = RedisStore(place) if "://" in place else DirectoryStore(place)
    with joined(store, number, 3) as client:
        assert client.process_index == number
        other = f"node:{(number + 1) % 3}"
        assert store.get(other, 5) == other.encode()
        assert store.try_get("nothing") is None
        raises(TimeoutError, store.get, "nothing", 0.05)
    print("joined")


def three_processes(stub, start, place):
    children = [start(stub(), join, number, place) for number in range(3)]
    ended = [(*child.communicate(timeout=60), child.returncode) for child in children]
    assert ended == [("joined\n", "", 0)] * 3


def test_processes_meet_in_a_directory(stub, start, tmp_path):
    three_processes(stub, start, tmp_path / "made/here")
    files = [path.name for path in (tmp_path / "made/here").iterdir()]
    assert len(files) == 3
    assert not [name for name in files if name.startswith(".")]


class Server:
    """A redis-server on the loopback interface that keeps nothing.

    Its address belongs to this process alone, so nobody else takes the port while it is free.
    """

    def __init__(self, program, folder):
        host = str(IPv4Address("127.0.0.0") + os.getpid())
        with socket.socket() as taken:
            taken.bind((host, 0))
            self.place = taken.getsockname()
        port = str(self.place[1])
        self.url = f"redis://{host}:{port}/0"
        self._command = [program, "--bind", host, "--port", port, "--save", ""]
        self._folder = folder
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [*self._command, "--dir", str(self._folder)], stdout=subprocess.DEVNULL
        )
        soon(self.listens)

    def listens(self):
        with contextlib.suppress(OSError):
            socket.create_connection(self.place, 1).close()
            return True

    def stop(self):
        self.process.kill()
        self.process.wait(20)


@pytest.fixture
def server(tmp_path):
    program = shutil.which("redis-server")
    if program is None and "CI" not in os.environ:  # CI installs it and must not skip this
        pytest.skip("this test needs redis-server (the package redis-server of the system)")
    assert program
    server = Server(program, tmp_path)
    yield server
    server.stop()


@pytest.fixture
def url(server):
    return server.url


@pytest.fixture
def pid(server):
    return server.process.pid


def test_processes_meet_on_a_redis_server(stub, start, url):
    three_processes(stub, start, url)


def test_jobs_on_one_server_do_not_meet(url):
    one, two = RedisStore(url, "one:"), RedisStore(url, "two:")
    one.put("k", b"\0\xff")
    assert one.try_get("k") == one.get("k", 1) == b"\0\xff"
    assert two.try_get("k") is None


@pytest.fixture
def redis_store(server):
    return RedisStore(server.url, "job:")


def hurry(store, url):
    """Connect a store anew; from then on it waits for each answer for half a second only."""
    hasty = RedisStore(f"{url}?socket_timeout=0.5")
    while True:
        with contextlib.suppress(redis.TimeoutError):
            hasty.try_get("k")
            break
    store._server = hasty._server


def test_waiting_for_a_key_on_a_server(redis_store):
    with pytest.raises(TimeoutError, match=r"nobody put 'k' within 0\.1 seconds"):
        redis_store.get("k", 0.1)
    threading.Timer(0.2, redis_store.put, ("k", b"here")).start()
    assert redis_store.get("k", 30) == b"here"


def test_a_server_that_goes_while_somebody_waits(redis_store, server):
    """The error comes at once, not when the wait is over; a server that is back is used again."""
    redis_store.put("k", b"v")
    threading.Timer(0.2, server.stop).start()
    with pytest.raises(redis.ConnectionError):
        redis_store.get("never", 3600)
    with pytest.raises(redis.ConnectionError):
        redis_store.put("k", b"v")
    server.start()
    assert redis_store.try_get("k") is None  # the server kept nothing
    redis_store.put("k", b"again")
    assert redis_store.get("k", 1) == b"again"


def test_a_server_that_is_back_within_a_second(redis_store, server, monkeypatch):
    redis_store.put("k", b"v")
    server.stop()
    waited = 0.0

    def pause(seconds):
        nonlocal waited
        if waited < 1 <= waited + seconds:
            server.start()
        waited += seconds

    monkeypatch.setattr("redis.retry.sleep", pause)
    redis_store.put("k", b"later")
    assert redis_store.try_get("k") == b"later"


def test_a_server_that_hangs(redis_store, server):
    redis_store.put("k", b"v")
    hurry(redis_store, server.url)
    server.process.send_signal(signal.SIGSTOP)
    for ask, *more in ((redis_store.try_get,), (redis_store.get, 3600), (redis_store.put, b"w")):
        with pytest.raises(redis.TimeoutError):
            ask("k", *more)
    server.process.send_signal(signal.SIGCONT)
    assert redis_store.get("k", 30) in (b"v", b"w")


def test_what_on_a_server_is_no_value_of_ours(redis_store, server):
    with redis.Redis.from_url(server.url) as other:
        other.rpush("job:k", b"a list")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        redis_store.try_get("k")
    for value in (None, ["v"], object()):
        with pytest.raises(redis.DataError):
            redis_store.put("k", value)
    decoding = redis.Redis.from_url(server.url, decode_responses=True)
    with decoding, pytest.raises(TypeError, match="decodes responses"):
        RedisStore(decoding)
    for wrong in ("127.0.0.1:6379", "http://127.0.0.1"):
        with pytest.raises(ValueError, match="scheme"):
            RedisStore(wrong)


@with_stub()
def test_a_plugin_hears_of_a_server_that_is_gone(url, pid):
    store = RedisStore(url)
    os.kill(pid, signal.SIGKILL)
    caught = raises(errors.PluginInternalError, joined, store)
    assert "ConnectionError" in caught.message, caught
    assert not live()


@pytest.mark.parametrize("operation", [GET, TRY_GET, PUT])
@with_stub(seconds=30)
def test_python_ends_while_threads_ask_a_server_that_hangs(url, pid, operation):
    store = RedisStore(url)
    client = joined(store)
    hurry(store, url)
    os.kill(pid, signal.SIGSTOP)
    stay(client, ask_always(operation))


def write(folder, name):
    store, mine = DirectoryStore(folder), name.encode() * 100_000
    print("begun", flush=True)
    while True:
        store.put("shared", mine)
        store.put(f"own {name}", mine)


def test_writers_of_a_directory_that_are_killed(stub, start, tmp_path):
    """Three writers put one key until they are killed; its value is always that of one put."""
    store = DirectoryStore(tmp_path / "job")
    whole = {number.encode() * 100_000 for number in "123"}
    writers = [start(stub(), write, store.path, each) for each in "123"]
    for writer in writers:
        assert writer.stdout.readline() == "begun\n"
    for writer in writers:
        for _ in range(300):
            assert store.get("shared", 30) in whole
        writer.kill()
        writer.wait()
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
