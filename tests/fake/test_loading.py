"""A library that takes long to load: what goes on meanwhile, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from stubbed import path, raises, with_stub

from pjrt_hub import errors
from pjrt_hub.running.capi.library import load


@with_stub("ON_LOAD=usleep(300000)")
def test_the_main_thread_has_other_work_while_a_library_loads():
    steps = []
    api = load(path, steps.append, meanwhile=lambda: steps.append("meanwhile"))
    assert steps[:3] == ["dlopen", "meanwhile", "GetPjrtApi"], steps
    assert load(path, steps.append) is api
    assert len(steps) == 5, steps


@pytest.mark.slow
@with_stub("ON_LOAD=usleep(4000000)")
def test_an_interrupt_ends_the_waiting_and_the_library_is_still_looked_at():
    looked = threading.Event()

    def tell(step):
        if step == "dlopen":
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        if step == "GetPjrtApi":
            looked.set()
            raise errors.PluginLoadError("it was changed", path=path)

    begun = time.monotonic()
    raises(KeyboardInterrupt, load, path, tell)
    assert time.monotonic() - begun < 3.5
    assert not looked.is_set()
    assert looked.wait(30)
    assert load(path).version.minor == 117


@with_stub("ON_LOAD=kill(getpid(), SIGINT); usleep(700000)")
def test_an_interrupted_process_ends_in_order_while_a_library_loads():
    raises(KeyboardInterrupt, load, path)
