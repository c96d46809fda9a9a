"""Eight devices of one process: collectives, partitioned programs, assignments, portable programs.

Results of several devices are compared with those of one device or with numpy.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from children import ADD, NAME, PROGRAMS, in_child, in_threads
from together import EIGHT, Together

from pjrt_hub import CompileOptions, ExecuteOptions
from pjrt_hub.errors import ClosedError, PjrtHubError

#: Program for eight replicas -> the shape of the stacked arguments, and their expected results.
COLLECTIVES = {
    "all_reduce": ((8, 4), lambda rows: np.broadcast_to(rows.sum(axis=0), (8, 4))),
    "all_gather": ((8, 4), lambda rows: np.broadcast_to(rows.reshape(32), (8, 32))),
    "all_to_all": ((8, 8), lambda rows: rows.T),
    "collective_permute": ((8, 4), lambda rows: np.vstack([np.zeros((1, 4)), rows[:-1]])),
    "reduce_scatter": ((8, 16), lambda rows: rows.sum(axis=0).reshape(8, 2)),
}


@pytest.fixture(scope="module")
def put(eight):
    """Put an array for each device: `put(rows)` gives rows of one buffer."""

    def put(rows, devices=None):
        places = eight.devices if devices is None else devices
        return [
            [eight.buffer_from_host(np.ascontiguousarray(row), device=device)]
            for row, device in zip(rows, places, strict=True)
        ]

    return put


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("order", [None, [3, 1, 4, 0, 5, 7, 2, 6]], ids=["plain", "assigned"])
def test_collectives(eight, put, program, name, order):
    """Replica r is on the device of the assignment, and rows are in the order of `devices`.

    The values are small whole numbers, so that the order of a sum does not matter.
    """
    shape, expected = COLLECTIVES[name]
    rows = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    ids = order and [[each] for each in order]
    executable = eight.compile(program(name), CompileOptions(num_replicas=8, device_ids=ids))
    assert {*executable.devices} == {*eight.devices}
    assert order or executable.devices == eight.devices
    order = order or [*range(8)]
    assert executable.device_assignment == tuple((each,) for each in order)
    replicas = [replica for replica, _ in executable.addressable_device_logical_ids]
    assert [order[replica] for replica in replicas] == [d.id for d in executable.devices]
    wanted = expected(rows)[replicas]
    for _ in range(3):
        results = executable.execute(put(rows[replicas], executable.devices))
        assert np.array_equal(np.stack([result.to_numpy() for [result] in results]), wanted)


def split_rows(devices, a, b):
    """Each device's parts of two matrices on a mesh of 4x2."""
    rows = []
    for index, device in enumerate(devices):
        x, y = divmod(index, 2)
        parts = a[2 * x : 2 * x + 2, 8 * y : 8 * y + 8], b[8 * y : 8 * y + 8]
        put = device.client.buffer_from_host
        rows.append([put(part.copy(), device=device) for part in parts])
    return rows


@pytest.mark.parametrize("said", ["by the options", "by the module"])
@pytest.mark.parametrize(
    ("name", "shardy"), [("matmul_gspmd", False), ("matmul_shardy", True)], ids=["gspmd", "shardy"]
)
def test_a_partitioned_program_equals_the_whole(eight, program, name, shardy, said):
    """On a 4x2 mesh, a is split both ways, b along the summed dimension, the result by rows."""
    text, options = program(name).read_text(), None
    if said == "by the module":
        text = f"module attributes {{mhlo.num_partitions = 8 : i32}} {{\n{text}\n}}"
    else:
        more = {"use_spmd_partitioning": True, "use_shardy_partitioner": shardy}
        options = CompileOptions(num_partitions=8, **more)
    random = np.random.default_rng(2)
    a = random.normal(size=(8, 16)).astype(np.float32)
    b = random.normal(size=(16, 6)).astype(np.float32)
    whole = eight.compile(program("matmul_tanh"))
    expected = whole(eight.buffer_from_host(a), eight.buffer_from_host(b)).to_numpy()
    split = eight.compile(text, options)
    assert (split.num_replicas, split.num_partitions) == (1, 8)
    assert [each.shape for each in split.signature.parameters] == [(2, 8), (8, 6)]
    for index, [part] in enumerate(split.execute(split_rows(split.devices, a, b))):
        x = index // 2
        assert part.device is split.devices[index]
        np.testing.assert_allclose(part.to_numpy(), expected[2 * x : 2 * x + 2], rtol=1e-5)


#: A program that gives a + 10 * replica + partition, with as many partitions as elements.
WHERE = """
func.func @main(%a: tensor<{n}xi32> {{mhlo.sharding = "{{devices=[{n}]<=[{n}]}}"}})
    -> (tensor<{n}xi32> {{mhlo.sharding = "{{devices=[{n}]<=[{n}]}}"}}) {{
  %replica = stablehlo.replica_id : tensor<ui32>
  %number = stablehlo.convert %replica : (tensor<ui32>) -> tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %tens = stablehlo.multiply %number, %ten : tensor<i32>
  %everywhere = stablehlo.broadcast_in_dim %tens, dims = [] : (tensor<i32>) -> tensor<{n}xi32>
  %partition = stablehlo.iota dim = 0 : tensor<{n}xi32>
  %id = stablehlo.add %everywhere, %partition : tensor<{n}xi32>
  %out = stablehlo.add %a, %id : tensor<{n}xi32>
  return %out : tensor<{n}xi32>
}}
"""


@pytest.mark.parametrize(("replicas", "partitions"), [(1, 1), (8, 1), (1, 8), (2, 4), (4, 2)])
@pytest.mark.parametrize("backwards", [False, True])
def test_replicas_times_partitions(eight, replicas, partitions, backwards):
    ids = list(range(replicas * partitions))
    ids = [7 - each for each in ids] if backwards else ids
    assignment = [ids[r * partitions : (r + 1) * partitions] for r in range(replicas)]
    options = CompileOptions(
        num_replicas=replicas,
        num_partitions=partitions,
        device_ids=assignment,
        use_spmd_partitioning=True,
    )
    executable = eight.compile(WHERE.format(n=partitions), options)
    assert (executable.num_replicas, executable.num_partitions) == (replicas, partitions)
    assert executable.device_assignment == tuple(map(tuple, assignment))
    rows = [[eight.buffer_from_host([100], device=each)] for each in executable.devices]
    results = executable.execute(rows)
    logical = executable.addressable_device_logical_ids
    assert [result.item() for [result] in results] == [100 + 10 * r + p for r, p in logical]
    for [result], (replica, partition) in zip(results, logical, strict=True):
        assert result.device.id == assignment[replica][partition]


def test_wrong_lists(eight, put, program):
    executable = eight.compile(program("all_reduce"), EIGHT)
    rows = put(np.ones((8, 4), np.float32))
    for wrong, error, message in [
        (rows[:7], TypeError, "runs on 8 devices, arguments for 7"),
        ([*rows, rows[0]], TypeError, "runs on 8 devices, arguments for 9"),
        ([], TypeError, "arguments for 0"),
        ([*rows[:7], []], TypeError, "takes 1 argument, 0 given"),
        ([*rows[:7], rows[7] * 2], TypeError, "takes 1 argument, 2 given"),
        ([*rows[:7], rows[6]], ValueError, f"on {NAME}:6, its row is for another device"),
        ([*rows[:7], [None]], TypeError, r"argument 0 of 1 must be f32\[4\]"),
        (rows[::-1], ValueError, "its row is for another device"),
    ]:
        with pytest.raises(error, match=message):
            executable.execute(wrong)
    with pytest.raises(TypeError, match="runs on 8 devices: give execute"):
        executable(*rows[0])
    assert [result.tolist() for [result] in executable.execute(rows)] == [[8.0] * 4] * 8


def test_a_part_on_a_wrong_device(eight, program, put):
    one = eight.compile(program("matmul_tanh"), CompileOptions(device_ids=[[2]]))
    assert one.devices == (eight.devices[2],)
    with pytest.raises(ValueError, match=f"{NAME}:3 is none of the program's devices, {NAME}:2"):
        one.execute_on([], eight.devices[3])
    with pytest.raises(TypeError, match="takes 2 arguments, 0 given"):
        one.execute_on([], eight.devices[2])


@pytest.fixture(scope="module")
def portable(eight, program):
    return eight.compile(program("add"), CompileOptions(compile_portable_executable=True))


def test_a_portable_program_runs_anywhere(eight, portable):
    assert (portable.devices, portable.device_assignment) == ((), ())
    assert portable.addressable_device_logical_ids == ()
    assert repr(portable).endswith("on any device>")
    for device in eight.devices:
        a = eight.buffer_from_host(np.full(8, device.id, np.float32), device=device)
        [result], event = portable.execute_on([a, a], device)
        event.wait(10)
        assert result.device is device
        assert result.tolist() == [2.0 * device.id] * 8


def test_a_portable_program_refuses(eight, portable, client):
    here, there = eight.devices[:2]
    a = eight.buffer_from_host(np.ones(8, np.float32), device=here)
    gone = eight.buffer_from_host(np.ones(8, np.float32), device=here)
    gone.delete()
    ints = eight.buffer_from_host(np.ones(8, np.int32), device=here)
    for misuse, error, message in [
        (lambda: portable(a, a), TypeError, "belongs to no device: give execute_on"),
        (lambda: portable.execute([[a, a]]), TypeError, "belongs to no device"),
        (lambda: portable.execute([]), TypeError, "belongs to no device"),
        (lambda: portable.execute_on([a, a], there), ValueError, "for another device"),
        (lambda: portable.execute_on([a], here), TypeError, "takes 2 arguments, 1 given"),
        (lambda: portable.execute_on([a, ints], here), TypeError, "elements of i32"),
        (lambda: portable.execute_on([a, gone], here), ClosedError, "argument 1"),
        (
            lambda: portable.execute_on([a, a], client.devices[0]),
            ValueError,
            "not a device of",
        ),
        (lambda: portable.execute_on([a, a], 0), ValueError, "not a device of"),
    ]:
        with pytest.raises(error, match=message):
            misuse()
    [result], _ = portable.execute_on([a, a], here)
    assert result.tolist() == [2.0] * 8


def test_donation_and_an_event_on_every_device(eight, program):
    executable = eight.compile(program("donate"), CompileOptions(num_replicas=8))
    ones = np.ones(8, np.float32)
    rows = [[eight.buffer_from_host(ones, device=d) for _ in "ab"] for d in executable.devices]
    results, events = executable.execute(rows, return_events=True)
    assert [event.wait(10) for event in events] == [None] * 8
    assert [result.tolist() for [result] in results] == [[2.0] * 8] * 8
    assert [[buffer.is_deleted for buffer in row] for row in rows] == [[True, False]] * 8
    with pytest.raises(ClosedError, match="argument 0 is a buffer that was deleted or donated"):
        executable.execute(rows)


@pytest.mark.devices(8)
@in_child
def test_what_is_refused_on_one_device_starts_on_none():
    """Otherwise XLA's CPU client could never again finish a program on several devices."""
    eight = Together()
    donate, pairs = eight.donate, eight.pairs
    gone = pairs()
    donate.execute(gone)
    for rows in gone, [gone[0], *pairs()[1:]], [*pairs()[:7], gone[7]]:
        with pytest.raises(ClosedError, match="deleted or donated"):
            donate.execute(rows)
        eight.check_reduce(2)
    for given in range(8):
        rows = pairs()
        rows[given][1] = rows[given][0]
        with pytest.raises(ValueError, match="argument 1 is the buffer that argument 0 donates"):
            donate.execute(rows)
        eight.check_reduce(2)
    kept = donate.execute(rows, ExecuteOptions(non_donatable=[0]))
    assert [r.tolist() for [r] in kept] == [[2.0] * 8] * 8
    device = eight.client.devices[3]
    with pytest.raises(ClosedError):
        donate.execute_on(gone[3], device)
    with pytest.raises(ValueError, match="argument 1 is the buffer"):
        donate.execute_on([rows[3][0]] * 2, device)
    eight.check_reduce(2)


@pytest.mark.devices(8)
@pytest.mark.cpu("refuses within the call")
@pytest.mark.api("!=0.106", "refuses memory of another size instead of reading it")
@in_child
def test_a_client_that_cannot_finish_says_so():
    """One buffer is larger than it claims, so the plugin refuses it after other devices started."""
    eight = Together()
    client, rows = eight.client, eight.pairs()
    device = client.devices[5]
    long = client.buffer_from_host(np.ones(16, np.float32), device=device)
    rows[5][1] = type(long)._adopt(client, long.address, long._dtype, (8,), device)
    with pytest.raises(PjrtHubError):
        eight.donate.execute(rows)
    with pytest.raises(ClosedError, match="nothing on several devices any more"):
        eight.reduce.execute(eight.put(1))
    one = client.compile(ADD)
    assert one(*eight.pairs()[0]).tolist() == [2.0] * 8
    os._exit(0)  # a buffer with two owners must not be freed


@pytest.mark.devices(8)
@pytest.mark.parametrize("events", [False, True])
@in_child
def test_many_launches_that_nobody_waits_for(events):
    """Each launch takes one thread per device, and all of them together take XLA's whole pool."""
    eight = Together()
    rows = eight.put(1)
    results = [eight.reduce.execute(rows, return_events=events) for _ in range(500)]
    for result in results:
        eight.check(result[0] if events else result, 1)
    slow = [eight.slow(device, np.int32(2)) for device in eight.client.devices]
    for _ in range(40):
        busy = [run(a, rounds) for run, a, rounds in slow]
        last = eight.reduce.execute(rows)
    eight.check(last, 1)
    for result in busy:
        assert np.array_equal(result.to_numpy(), np.eye(256))


@pytest.mark.devices(8)
@pytest.mark.cpu("its launches take turns")
@in_child
def test_launches_of_several_threads():
    """Launches, whole and in parts, mix with deletions of buffers and closed executables."""
    eight = Together()
    reduce = eight.reduce

    def whole(number):
        for turn in range(200):
            rows = eight.put(number)
            result = reduce.execute(rows, ExecuteOptions(launch_id=number))
            rows[turn % 8][0].delete()
            if turn % 10 == 0:
                eight.check(result, number)
            if turn % 50 == 0:
                mine = eight.client.compile(PROGRAMS / "all_reduce.mlir", EIGHT)
                late = mine.execute(eight.put(number))
                mine.delete()
                eight.check(late, number)
        eight.check(result, number)

    def parts():
        rows = eight.put(5)

        def part(launch, i):
            options = ExecuteOptions(launch_id=launch)
            return reduce.execute_on(rows[i], reduce.devices[i], options)[0]

        for launch in range(40):
            eight.check(threads.map(partial(part, launch), range(8)), 5)

    with ThreadPoolExecutor(8) as threads, ThreadPoolExecutor(3) as callers:
        for done in [callers.submit(whole, 1), callers.submit(whole, 2), callers.submit(parts)]:
            done.result()
    eight.client.close()


@pytest.mark.devices(8)
@in_child
def test_deleted_by_another_thread_while_it_starts():
    """The launch starts on all devices or, if the buffer was deleted before, on none."""
    eight = Together()
    sys.setswitchinterval(1e-6)
    meet, rows, refused = threading.Barrier(2, timeout=60), [], []

    def delete():
        for turn in range(500):
            meet.wait()
            rows[turn % 8][0].delete()
            meet.wait()

    thread = threading.Thread(target=delete)
    thread.start()
    for turn in range(500):
        rows[:] = eight.put(3)
        meet.wait()
        try:
            results = eight.reduce.execute(rows)
        except ClosedError as exc:
            refused.append(str(exc))
        else:
            eight.check(results, 3)
        meet.wait()
        assert [row[0].is_deleted for row in rows] == [n == turn % 8 for n in range(8)]
    thread.join()
    assert all("argument 0 is a buffer that was deleted" in each for each in refused)
    eight.check_reduce(4)


@pytest.mark.devices(8)
@pytest.mark.cpu("its launches take turns")
@in_child
def test_ctrl_c_ends_the_wait_for_a_turn():
    """With 32 launches under way, the next one waits for an end of one, or is interrupted."""
    eight = Together()
    slow, eye, many = eight.slow(eight.client.devices[0], np.int32(10_000))
    under_way = [slow(eye, many) for _ in range(32)]
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        timer.start(), eight.reduce.execute(eight.put(1)), slow(eye, many)
    assert not under_way[-1].ready.is_ready()
    os._exit(0)  # this avoids waiting for all of them


@pytest.mark.devices(8)
@in_child
def test_a_close_while_launches_are_under_way():
    eight = Together()
    rows = eight.put(1)

    def run():
        with contextlib.suppress(ClosedError):
            while True:
                eight.reduce.execute(rows)

    def close():
        time.sleep(0.2)
        eight.client.close()

    in_threads(run, run, run, run, close)
