"""Which buffers of a client live, and the report of what holds its memory."""

from __future__ import annotations

import gc
import html
import json
import re
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from children import in_child
from texts import DONATED, doubling

from pjrt_hub.errors import ClosedError, ResourceExhaustedError
from pjrt_hub.running.client import memory_report

EIGHT = np.arange(8, dtype=np.float32)
ORIGINS = {"PJRT_HUB_BUFFER_ORIGINS": "1"}


def test_living_buffers_are_given_in_the_order_in_which_they_were_made(own):
    first, second = own.buffer_from_host(EIGHT), own.buffer_from_host(EIGHT)
    exe = own.compile(doubling("8xf32"))
    result = exe(first)
    assert all(a is b for a, b in zip(own.live_buffers(), [first, second, result], strict=True))
    second.delete()
    del first
    assert [each is result for each in own.live_buffers()] == [True]
    del result
    assert own.live_buffers() == []


def test_a_donated_buffer_holds_nothing(own):
    exe, a = own.compile(doubling("8xf32", DONATED)), own.buffer_from_host(EIGHT)
    result = exe(a)
    assert [each is result for each in own.live_buffers()] == [True]
    assert a.is_deleted


def test_garbage_lives_until_it_is_collected(own):
    gc.collect()
    cycle = [own.buffer_from_host(EIGHT)]
    cycle.append(cycle)
    del cycle
    assert len(own.live_buffers()) == 1
    gc.collect()
    assert own.live_buffers() == []


def test_a_buffer_that_is_being_freed_is_not_given(own):
    """Its weak references are told while it is still listed; who took it then took what is gone."""
    seen = []
    kept, dying = own.buffer_from_host(EIGHT), own.buffer_from_host(EIGHT)
    ref = weakref.ref(dying, lambda _: seen.extend(own.live_buffers()))
    del dying
    assert ref() is None
    assert [each is kept for each in seen] == [True]


def test_threads_that_make_and_drop_buffers_do_not_disturb_it(own):
    done = threading.Event()

    def churn():
        while not done.is_set():
            kept = [own.buffer_from_host(EIGHT) for _ in range(20)]
            kept[3].delete()

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for each in threads:
        each.start()
    try:
        for _ in range(50):
            assert {each.shape for each in own.live_buffers()} <= {(8,)}
            assert sum(each.number for each in own.memory_report().holders) <= 160
    finally:
        done.set()
        for each in threads:
            each.join()
    assert own.live_buffers() == []


def test_a_closed_client_has_no_report(plugin):
    client = plugin.client()
    client.close()
    with pytest.raises(ClosedError):
        client.live_buffers()
    with pytest.raises(ClosedError):
        client.memory_report()


def made(client):
    return [
        *(client.buffer_from_host(np.zeros((100, 8), np.float32)) for _ in range(2)),
        client.buffer_from_host(np.zeros(5000, np.uint8)),
        client.buffer_from_host(EIGHT, memory=client.memories[-1]),
    ]


@pytest.mark.rows
def test_a_report_has_the_largest_first_and_counts_equal_ones(own):
    kept = made(own)
    [device], last = own.devices, own.memories[-1]
    report = own.memory_report()
    nbytes = [each.on_device_nbytes for each in kept]
    place = (str(device), str(device.default_memory))
    assert [tuple(each) for each in report.holders] == [
        (2 * nbytes[0], 2, "f32[100,8]", *place, 1, None, ""),
        (nbytes[2], 1, "ui8[5000]", *place, 3, None, ""),
        (nbytes[3], 1, "f32[8]", str(device), str(last), 4, None, ""),
    ]
    assert report.devices == {str(device): device.memory_stats() or {}}


@pytest.mark.rows
def test_a_report_prints_as_text_and_html_and_json(own):
    kept = made(own)
    report = own.memory_report()
    lines = repr(report).splitlines()
    assert lines[0].startswith("4 buffers, ")
    at = len(lines) - 4
    assert lines[at].split() == ["SIZE", "COUNT", "TYPE", "DEVICE", "MEMORY", "ORDER"]
    where = [str(own.devices[0]), str(own.devices[0].default_memory)]
    assert lines[at + 1].split() == ["6.25", "KiB", "2", "f32[100,8]", *where, "1"]
    cells = re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", report._repr_html_())
    words = [html.unescape(each) for each in cells][-24:]
    assert words[:6] == ["size", "count", "type", "device", "memory", "order"]
    assert words[6:12] == ["6.25 KiB", "2", "f32[100,8]", *where, "1"]
    told = json.loads(report.to_json())
    assert told.keys() == {"holders", "devices"}
    assert told["holders"][0]["nbytes"] == report.holders[0].nbytes == 6400
    assert told["devices"] == report.devices
    del kept


@pytest.mark.rows
def test_a_long_report_shows_the_largest(own):
    kept = [own.buffer_from_host(np.zeros(n, np.uint8)) for n in range(1, 31)]
    lines = repr(own.memory_report()).splitlines()
    assert lines[0].startswith("30 buffers, ")
    assert lines[0].endswith(", 10 smaller kinds not shown")
    assert [line.split()[3] for line in lines[-20:]] == [f"ui8[{n}]" for n in range(30, 10, -1)]
    del kept


def test_a_report_of_nothing(own):
    assert repr(own.memory_report()).startswith("0 buffers, 0 B")
    assert "0 buffers, 0 B" in own.memory_report()._repr_html_()


def test_a_report_keeps_nothing(own):
    kept = made(own)
    children = own._num_children
    report = own.memory_report()
    assert own._num_children == children
    del kept
    assert own.live_buffers() == []
    assert len(report.holders) == 3


@in_child(**ORIGINS)
def test_a_report_names_the_lines_that_made_buffers(client):
    def put():
        return client.buffer_from_host(EIGHT)

    at = put.__code__.co_firstlineno + 1
    first = [put() for _ in range(3)]
    exe = client.compile(doubling("8xf32"))
    results = [exe(EIGHT), exe.bind(first[0])(), exe.execute([[first[0]]])[0][0]]
    report = client.memory_report()
    here = Path(__file__)
    lines = [each.origin for each in report.holders]
    assert lines == [f"{here}:{at}", f"{here}:{at + 5}"]
    assert [each.number for each in report.holders] == [3, 3]
    assert 0 <= report.holders[1].seconds <= report.holders[0].seconds < 1000
    head, row = repr(report).splitlines()[-3:-1]
    assert head.split()[-2:] == ["AGE", "ORIGIN"]
    assert row.split()[-1] == f"{here.parent.name}/{here.name}:{at}"
    return results


@in_child(**ORIGINS)
def test_the_state_of_a_stepper_is_of_the_line_that_made_the_stepper(client):
    exe = client.compile(doubling("1024xf32"))
    step = exe.stepper({0: 0}, state={0: np.ones(1024, np.float32)})  # the stepper
    for _ in range(3):
        step()
    [held] = client.memory_report().holders
    lines = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith("# the stepper"))
    assert held.origin == f"{__file__}:{line}"
    assert (held.nbytes, held.type, held.device) == (4096, "f32[1024]", str(client.devices[0]))
    assert held.seconds > 0
    # A report, and the hint of an error, which waits for nothing, leave the state as it is.
    assert step._hidden() == [0]
    assert f": 1 x f32[1024] on {held.device}, made by" in memory_report.hint(client.api.address)


@in_child(**ORIGINS)
def test_the_record_of_lines_does_not_outgrow_what_lived_at_once(client):
    from pjrt_hub.running.client import memory_report

    exe, a = client.compile(doubling("8xf32")), client.buffer_from_host(EIGHT)
    for _ in range(3000):
        a = exe(a)
    assert [each.number for each in client.memory_report().holders] == [1]
    assert len(memory_report._origins or ()) < 100


@in_child(**ORIGINS)
def test_an_interrupt_while_a_line_is_recorded_reaches_the_caller(client):
    from pjrt_hub.base import frames

    def interrupt(frame):
        raise KeyboardInterrupt

    exe, a = client.compile(doubling("8xf32")), client.buffer_from_host(EIGHT)
    outside, frames.outside = frames.outside, interrupt
    for make in (lambda: client.buffer_from_host(EIGHT), lambda: exe(a), exe.bind(a)):
        with pytest.raises(KeyboardInterrupt):
            make()
    frames.outside = outside
    assert np.array_equal(exe(a).to_numpy(), 2 * EIGHT)
    assert len(client.live_buffers()) == 1


@in_child(PJRT_HUB_LAYERS="discrete", PJRT_HUB_DISCRETE="capacity=1MiB")
def test_a_report_tells_what_the_plugin_counts(client):
    kept = client.buffer_from_host(np.zeros(1 << 19, np.uint8))
    report = client.memory_report()
    assert report.devices["discrete:0"]["bytes_in_use"] == 1 << 19
    assert repr(report).splitlines() == [
        "1 buffer, 512 KiB",
        "in use on discrete:0: 512 KiB, 512 KiB at most, 1 MiB there",
        "SIZE     COUNT  TYPE         DEVICE      MEMORY    ORDER",
        "512 KiB  1      ui8[524288]  discrete:0  device:0  1",
    ]
    return kept


@in_child(PJRT_HUB_LAYERS="discrete", PJRT_HUB_DISCRETE="capacity=1MiB")
def test_a_value_that_failed_holds_nothing(client):
    a = client.buffer_from_host(EIGHT)
    failed = client.compile("""func.func @main(%a: tensor<8xf32>) -> tensor<65536x8xf32> {
      %0 = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<8xf32>) -> tensor<65536x8xf32>
      return %0 : tensor<65536x8xf32>
    }""")(a)
    with pytest.raises(ResourceExhaustedError, match="allocate 2097152 bytes") as caught:
        failed.ready.wait()
    assert "most is held by\n  32 B: 1 x f32[8] on discrete:0\n" in caught.value.hint
    assert [each.type for each in client.memory_report().holders] == ["f32[8]"]
    assert len(client.live_buffers()) == 2
