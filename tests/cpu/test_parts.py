"""Launches in parts, which reach the plugin as whole ones; a part that waits in vain raises."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from children import NAME, in_child
from test_multi_device import WHERE
from together import Together

from pjrt_hub import CompileOptions, ExecuteOptions
from pjrt_hub.errors import ClosedError
from pjrt_hub.running.executable import parts

pytestmark = pytest.mark.devices(8)


class Parts(Together):
    """A sum over eight devices, launched in parts."""

    def __init__(self, value=5):
        super().__init__()
        self.rows, self.threads = self.put(value), ThreadPoolExecutor(17)

    def run(self, i, row=None, options=None):
        """Launch a part, with other arguments if they are given, and return its outputs."""
        row = self.rows[i] if row is None else row
        return self.reduce.execute_on(row, self.reduce.devices[i], options)[0]

    def begin(self, *places, options=None):
        """Launch each part in its own thread."""
        return [self.threads.submit(self.run, i, None, options) for i in places]


def waiting(eight, count):
    """Wait until `count` parts of the sum wait for the others."""
    while sum(len(launch.rows) for launch in eight.reduce._parts._waiting) != count:
        threading.Event().wait(0.005)


def refused(started, error, match):
    for each in started:
        with pytest.raises(error, match=match):
            each.result()


@in_child
def test_each_part_by_itself():
    """A launch id is not needed, although XLA has made one for each part since 2026."""
    eight = Together()
    with ThreadPoolExecutor(8) as threads:
        for number in (0, 3, 3, -1, 2**31 - 1, 0):
            eight.check(eight.in_parts(threads, eight.put(5), launch_id=number), 5)
            eight.check_reduce(2)


@pytest.mark.parametrize("callers", [1, 3, 8])
@in_child
def test_rounds(callers):
    Together().rounds(24, callers)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("callers", range(1, 9))
@in_child(timeout=800)
def test_a_thousand_rounds(callers):
    Together().rounds(1000, callers)


@in_child
def test_a_part_that_never_comes():
    """XLA would end the process after 40 s, so nothing is started and the client stays usable."""
    parts.PATIENCE = 0.3
    eight, options = Parts(), ExecuteOptions(launch_id=7)
    why = rf"launch 7 was not started: 7 of its 8 parts came, .* 0.3 s none of {NAME}:7\n\nhint:"
    refused(eight.begin(*range(7), options=options), TimeoutError, why)
    with pytest.raises(TimeoutError, match="1 of its 8 parts came"):
        eight.run(7, options=options)
    eight.check_reduce(2)
    eight.check(eight.in_parts(eight.threads, eight.rows, launch_id=7), 5)


@in_child
def test_a_part_alone_of_a_program_without_collectives():
    """It could run, but since 2026 XLA would start nothing on several devices afterwards."""
    parts.PATIENCE = 0.1
    eight = Together()
    options = CompileOptions(num_partitions=8, use_spmd_partitioning=True)
    where = eight.client.compile(WHERE.format(n=8), options)
    rows = [[eight.client.buffer_from_host([100], device=each)] for each in where.devices]
    with pytest.raises(TimeoutError, match="1 of its 8 parts came"):
        where.execute_on(rows[3], where.devices[3])
    assert [each.item() for [each] in where.execute(rows)] == [100 + i for i in range(8)]
    eight.check_reduce(2)


@in_child
def test_what_does_not_fit_is_refused_at_once():
    """The other parts are not affected, and the right part can still join them."""
    eight = Parts()
    gone, long = eight.put(5)[7], eight.put(5, size=5)[7]
    gone[0].delete()
    started = eight.begin(*range(7))
    waiting(eight, 7)
    for row, options, error, match in [
        (eight.rows[6], None, ValueError, "its row is for another device"),
        (long, None, ValueError, r"the buffer has the shape \(5,\)"),
        ([], None, TypeError, "takes 1 argument, 0 given"),
        (gone, None, ClosedError, "deleted or donated"),
        (None, 3, TypeError, "the options are 3"),
        (None, ExecuteOptions(non_donatable=[0]), ValueError, "hint: give all parts"),
    ]:
        with pytest.raises(error, match=match):
            eight.run(7, row, options)
    last = eight.run(7, [np.full(4, 5, np.float32)])
    eight.check([*(each.result() for each in started), last], 5)


@in_child
def test_two_parts_of_one_device_are_of_two_launches():
    eight = Parts(1)
    started = eight.begin(*range(7), *range(7))
    waiting(eight, 14)
    started += eight.begin(7, 7)
    assert [each.result()[0].tolist() for each in started] == [[8.0] * 4] * 16


@in_child
def test_what_is_deleted_while_the_parts_wait():
    """The launch starts on no device, and all parts raise."""
    eight = Parts()
    started = eight.begin(*range(7))
    waiting(eight, 7)
    eight.rows[2][0].delete()
    refused([*started, *eight.begin(7)], ClosedError, "deleted or donated")
    eight.check_reduce(2)


@pytest.mark.parametrize("closed", ["reduce", "client"])
@in_child
def test_closed_while_a_part_waits(closed):
    eight = Parts()
    first = eight.begin(0)
    waiting(eight, 1)
    getattr(eight, closed).close()
    refused(first, ClosedError, "closed")


@in_child
def test_ctrl_c_ends_the_wait_for_other_parts():
    """The interrupted part may be launched again, and the others still wait for it."""
    eight = Parts()
    started = eight.begin(*range(6))
    waiting(eight, 6)
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        timer.start(), eight.run(7)
    waiting(eight, 6)
    started += eight.begin(6)
    last = eight.run(7)
    eight.check([*(each.result() for each in started), last], 5)


@pytest.mark.cpu("its launches take turns")
@in_child
def test_ctrl_c_ends_the_last_part_s_wait_for_a_turn():
    """The last part waits for all; an interrupt withdraws only that part."""
    eight = Parts()
    slow, eye, many = eight.slow(eight.client.devices[0], np.int32(10_000))
    under_way = [slow(eye, many) for _ in range(32)]
    eight.begin(*range(7))
    waiting(eight, 7)
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        timer.start(), eight.run(7)
    waiting(eight, 7)
    assert not under_way[-1].ready.is_ready()
    os._exit(0)  # this avoids waiting for all of them
