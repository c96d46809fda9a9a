"""The shared client of a process: every caller gets the same one, and it lives while used."""

import gc
import os
import signal
import sys
import threading
import weakref

import pytest
from children import ADD, PLATFORM, in_child, in_threads, ones

import pjrt_hub
from pjrt_hub.errors import ClosedError

FORKS = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}


def shared(platform=PLATFORM, **more):
    return pjrt_hub.client(platform, shared=True, offline=True, **more)


@pytest.fixture(autouse=True)
def cache(clean_env, monkeypatch):
    monkeypatch.setenv("PJRT_HUB_CACHE", clean_env["PJRT_HUB_CACHE"])


def test_buffers_of_one_holder_are_arguments_of_the_others():
    mine, theirs = shared(), shared()
    assert mine is theirs
    assert mine._is_shared
    assert mine.compile(ADD)(ones(theirs), ones(mine)).tolist() == [2.0] * 8


def test_a_client_is_ones_own_by_default(plugin):
    one, own = shared(), pjrt_hub.client(PLATFORM, offline=True)
    assert own is not one
    assert not own._is_shared
    assert shared() is one
    own.close()
    assert own.closed
    assert not one.closed


def test_every_name_of_a_plugin_gives_its_client(plugin, monkeypatch):
    by_name = shared()
    assert plugin.client(shared=True) is by_name
    assert pjrt_hub.client(str(plugin.path), shared=True) is by_name
    assert pjrt_hub.load(PLATFORM, offline=True).client(shared=True) is by_name
    monkeypatch.setenv("PJRT_HUB_PLATFORMS", PLATFORM)
    assert shared(None) is by_name


@pytest.mark.parametrize("leave", ["close", "with", "with raising"])
def test_who_leaves_does_not_take_it_from_the_others(leave):
    mine, theirs = shared(), shared()
    buffer = ones(theirs)
    if leave == "close":
        mine.close()
    elif leave == "with":
        with mine:
            pass
    else:
        with pytest.raises(ZeroDivisionError), mine:
            raise ZeroDivisionError
    del mine
    assert not theirs.closed
    assert buffer.tolist() == [1.0] * 8
    assert shared() is theirs


@pytest.mark.parametrize("last", ["client", "buffer", "executable"])
@in_child
def test_it_is_freed_when_nobody_has_anything_of_it(last):
    client = shared()
    gone = weakref.ref(client)
    kept = {"client": client, "buffer": ones(client), "executable": client.compile(ADD)}[last]
    del client
    gc.collect()
    assert shared() is gone()
    del kept
    while gone() is not None:  # the compiling thread still holds it briefly
        gc.collect()
    assert ones(shared()).tolist() == [1.0] * 8


@pytest.mark.cpu("its options")
@in_child
def test_an_option_must_be_that_of_the_first():
    first = shared(options={"cpu_device_count": 2})
    assert len(first.devices) == 2
    assert shared() is first
    assert shared(options={"cpu_device_count": 2}) is first
    with pytest.raises(ValueError, match=r"cpu_device_count=2, not 3\n\nhint: .*shared=False"):
        shared(options={"cpu_device_count": 3})
    with pytest.raises(ValueError, match="no create option"):
        shared(options={"cpu_devices": 2})
    with pytest.raises(TypeError, match="cpu_device_count"):
        shared(options={"cpu_device_count": "two"})
    with pjrt_hub.client(PLATFORM, options={"cpu_device_count": 3}, offline=True) as own:
        assert len(own.devices) == 3
    del first
    gc.collect()
    assert len(shared(options={"cpu_device_count": 3}).devices) == 3


@pytest.mark.cpu("its options")
@in_child
def test_options_that_come_too_late_are_named():
    first = shared()
    with pytest.raises(ValueError, match="made with cpu_device_count=1, not 2"):
        shared(options={"cpu_device_count": 2})
    assert shared(options={"cpu_device_count": 1}) is first  # 1 is the default


@in_child
def test_a_place_among_processes_must_be_that_of_the_first():
    store = pjrt_hub.InMemoryStore()
    first = shared(distributed=pjrt_hub.Distributed(1, 0, store))
    assert shared() is first
    assert shared(distributed=pjrt_hub.Distributed(1, 0, store)) is first
    with pytest.raises(ValueError, match=r"is of process 0 of 1, not 1 of 2\n\nhint: make it with"):
        shared(distributed=pjrt_hub.Distributed(2, 1, store))


@in_child
def test_threads_that_ask_at_once_get_one():
    found, all_there = [], threading.Barrier(16)

    def ask():
        all_there.wait()
        found.append(shared())

    in_threads(*[ask] * 16)
    assert len(found) == 16
    assert len({id(each) for each in found}) == 1
    assert ones(found[0]).tolist() == [1.0] * 8


def in_fork(work):
    """Run `work` in a forked child and give the status that it ended with."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        work()
        sys.exit(0)
    return os.waitpid(pid, 0)[1]


@in_child(**FORKS)
def test_a_forked_child_makes_its_own():
    def work():
        client = shared()
        assert shared() is client
        assert ones(client).tolist() == [1.0] * 8

    assert in_fork(work) == 0
    work()


@in_child(**FORKS)
def test_a_child_forked_later_is_not_given_the_parents():
    client = shared()

    def work():
        with pytest.raises(ClosedError, match=r"(?s)fork.*spawn"):
            shared()
        assert client.closed

    assert in_fork(work) == 0
    assert shared() is client
    assert ones(client).tolist() == [1.0] * 8


@in_child(stdout="ended\n")
def test_one_that_is_open_ends_with_python():
    client = shared()
    client.close()
    print("ended")
    return client, ones(client)
