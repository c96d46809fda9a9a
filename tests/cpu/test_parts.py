"""Launches in parts: a plugin gets whole ones, and who waits in vain is told."""

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


def waiting(eight, count):
    """Waits until so many parts of the sum wait for the others."""
    while sum(len(launch.rows) for launch in eight.reduce._parts._waiting) != count:
        threading.Event().wait(0.005)


def refused(started, error, match):
    for each in started:
        with pytest.raises(error, match=match):
            each.result()


@in_child
def test_each_part_by_itself():
    """Also without a launch id, of which XLA makes one for each part since 2026."""
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
    """XLA would end the process after 40 s; so nothing is started, and the client is as before."""
    parts.PATIENCE = 0.3
    eight = Together()
    rows = eight.put(5)
    why = rf"launch 7 was not started: 7 of its 8 parts came, .* 0.3 s none of {NAME}:7\n\nhint:"
    with ThreadPoolExecutor(8) as threads:
        run, options = eight.reduce.execute_sharded, ExecuteOptions(launch_id=7)
        places = eight.reduce.devices
        started = [threads.submit(run, rows[i], places[i], options) for i in range(7)]
        refused(started, TimeoutError, why)
        with pytest.raises(TimeoutError, match="1 of its 8 parts came"):
            run(rows[7], places[7], options)
        eight.check_reduce(2)
        eight.check(eight.in_parts(threads, rows, launch_id=7), 5)


@in_child
def test_a_part_alone_of_a_program_without_collectives():
    """It would run; but XLA would start nothing on several devices after it, since 2026."""
    parts.PATIENCE = 0.1
    eight = Together()
    options = CompileOptions(num_partitions=8, use_spmd_partitioning=True)
    where = eight.client.compile(WHERE.format(n=8), options)
    rows = [[eight.client.buffer_from_host([100], device=each)] for each in where.devices]
    with pytest.raises(TimeoutError, match="1 of its 8 parts came"):
        where.execute_sharded(rows[3], where.devices[3])
    assert [each.item() for [each] in where.execute(rows)] == [100 + i for i in range(8)]
    eight.check_reduce(2)


@in_child
def test_what_does_not_fit_is_refused_at_once():
    """The other parts do not hear of it, and the right one still joins them."""
    eight = Together()
    rows, places, run = eight.put(5), eight.reduce.devices, eight.reduce.execute_sharded
    gone, long = eight.put(5)[7], eight.put(5, size=5)[7]
    gone[0].delete()
    with ThreadPoolExecutor(7) as threads:
        started = [threads.submit(run, rows[i], places[i]) for i in range(7)]
        waiting(eight, 7)
        for row, options, error, match in [
            (rows[6], None, ValueError, "its row is for another device"),
            (long, None, ValueError, r"the buffer has the shape \(5,\)"),
            ([], None, TypeError, "takes 1 argument, 0 given"),
            (gone, None, ClosedError, "deleted or donated"),
            (rows[7], 3, TypeError, "the options are 3"),
            (rows[7], ExecuteOptions(non_donatable=[0]), ValueError, "hint: give all parts"),
        ]:
            with pytest.raises(error, match=match):
                run(row, places[7], options)
        last = run([np.full(4, 5, np.float32)], places[7])[0]
        eight.check([*(each.result()[0] for each in started), last], 5)


@in_child
def test_two_parts_of_one_device_are_of_two_launches():
    eight = Together()
    rows, places, run = eight.put(1), eight.reduce.devices, eight.reduce.execute_sharded
    with ThreadPoolExecutor(16) as threads:
        started = [threads.submit(run, rows[i], places[i]) for i in [*range(7), *range(7)]]
        waiting(eight, 14)
        started += [threads.submit(run, rows[7], places[7]) for _ in "12"]
        assert [each.result()[0][0].tolist() for each in started] == [[8.0] * 4] * 16


@in_child
def test_what_is_deleted_while_the_parts_wait():
    """It starts on no device, and all parts are told."""
    eight = Together()
    rows, places, run = eight.put(5), eight.reduce.devices, eight.reduce.execute_sharded
    with ThreadPoolExecutor(8) as threads:
        started = [threads.submit(run, rows[i], places[i]) for i in range(7)]
        waiting(eight, 7)
        rows[2][0].delete()
        started.append(threads.submit(run, rows[7], places[7]))
        refused(started, ClosedError, "deleted or donated")
    eight.check_reduce(2)


@pytest.mark.parametrize("closed", ["reduce", "client"])
@in_child
def test_closed_while_a_part_waits(closed):
    eight = Together()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(
            eight.reduce.execute_sharded, eight.put(5)[0], eight.client.devices[0]
        )
        waiting(eight, 1)
        getattr(eight, closed).close()
        refused([first], ClosedError, "closed")


@in_child
def test_ctrl_c_ends_the_wait_for_other_parts():
    """The part may come again, and the others still wait for it."""
    eight = Together()
    rows, places, run = eight.put(5), eight.reduce.devices, eight.reduce.execute_sharded
    with ThreadPoolExecutor(7) as threads:
        started = [threads.submit(run, rows[i], places[i]) for i in range(6)]
        waiting(eight, 6)
        timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
        with pytest.raises(KeyboardInterrupt):
            timer.start(), run(rows[7], places[7])
        waiting(eight, 6)
        started += [threads.submit(run, rows[6], places[6])]
        last = run(rows[7], places[7])[0]
        eight.check([*(each.result()[0] for each in started), last], 5)


@pytest.mark.cpu("its launches take turns")
@in_child
def test_ctrl_c_ends_the_last_part_s_wait_for_a_turn():
    """Who brings it waits for all: interrupted, it takes its own part back alone."""
    eight = Together()
    rows, places, run = eight.put(5), eight.reduce.devices, eight.reduce.execute_sharded
    slow, eye, many = eight.slow(places[0], np.int32(10_000))
    under_way = [slow(eye, many) for _ in range(32)]
    for row, place in zip(rows[:7], places, strict=False):
        threading.Thread(target=run, args=(row, place), daemon=True).start()
    waiting(eight, 7)
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        timer.start(), run(rows[7], places[7])
    waiting(eight, 7)
    assert not under_way[-1].ready.is_ready()
    os._exit(0)  # not to wait for all of them
