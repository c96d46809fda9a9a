"""How objects are shown: buffers of every rank and dtype as text, and HTML for notebooks."""

from __future__ import annotations

import html.parser
import re
import textwrap

import ml_dtypes
import numpy as np
import pytest
from children import IS_CPU, NAME, device_count, promise, there
from elements import KNOWN

from pjrt_hub.errors import PjrtError
from pjrt_hub.running.array import display, dtypes
from pjrt_hub.running.buffer import preview


class Checker(html.parser.HTMLParser):
    """Raises if tags are not nested correctly, and collects the text."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attributes):
        if tag == "br":
            self.text += "\n"
        else:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def text_of(markup):
    checker = Checker()
    checker.feed(markup)
    checker.close()
    assert checker.open == []
    return checker.text


def value_in(text):
    """The value in the repr of a buffer of one or more dimensions."""
    inside = textwrap.dedent(text.replace("Buffer(", " " * len("Buffer(")))
    return f"{inside.rpartition('],')[0]}]"


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("value", "dtype", "shown"),
    [
        (2.5, "f32", "2.5"),
        (np.zeros((2, 0), np.int8), None, "[]"),
        ([True, False], "bool", "[ True, False]"),
        ([1 + 2j], "c8", "[1.+2.j]"),
        ([[0.1, 100], [-2, 3]], "bf16", "[[  0.1001, 100.    ],\n [ -2.    ,   3.    ]]"),
        ([0.25, -240, NAN], "f8E4M3FN", "[   0.25, -240.  ,     nan]"),
        ([-8, 7, 0], "int4", "[-8,  7,  0]"),
        ([15, 7, 0], "uint4", "[15,  7,  0]"),
        (np.array([1, 0.5], ml_dtypes.float4_e2m1fn), None, "[1. , 0.5]"),
        (True, "bool", "True"),
        (-8, "int4", "-8"),
        (1 - 1j, "c16", "1.-1.j"),
        (np.zeros((3, 0, 2)), "f8E5M2", "[]"),
        ([NAN, INF, -INF, 1.5, -0.0], "f32", "[ nan,  inf, -inf,  1.5, -0. ]"),
        ([NAN, -INF, 1], "bf16", "[ nan, -inf,   1.]"),
        ([complex(NAN, -1), complex(INF, 0)], "c16", "[nan-1.j, inf+0.j]"),
        ([[1e-10, 1e10], [3, NAN]], "f64", "[[1.e-10, 1.e+10],\n [3.e+00,    nan]]"),
        (np.array([2**64 - 1, 0], np.uint64), None, "[18446744073709551615,                    0]"),
        (np.arange(1000), "i32", "[  0,   1,   2, ..., 997, 998, 999]"),
    ],
)
def test_a_value_is_aligned(client, value, dtype, shown):
    buffer = there(client.buffer_from_host(value, dtype=dtype))
    kind = f"{buffer.element_type}[{','.join(map(str, np.shape(value)))}]"
    indented = shown.replace("\n", "\n       ")
    assert repr(buffer) == f"Buffer({indented}, {kind} on {NAME}:0)"
    assert str(buffer) == shown.replace(",", "")


@pytest.mark.parametrize("element", KNOWN)
def test_every_dtype_prints(client, element):
    dtype = dtypes.numpy_dtype(element.code)
    buffer = client.buffer_from_host(np.ones((3, 300), np.float32).astype(dtype))
    assert buffer.element_type == element.name
    shown, _, kind = repr(there(buffer)).partition("]], ")
    assert kind == f"{element.name}[3,300] on {NAME}:0)"
    lines = shown.splitlines()
    assert len({len(line.rstrip("],")) for line in lines}) == 1
    assert ["..." in line for line in lines] == [True] * 3


@pytest.mark.parametrize("rank", range(1, 11))
def test_every_rank_is_short(client, rank):
    big = repr(there(client.buffer_from_host(np.zeros((4,) * rank, np.int8))))
    assert len(big) < 2500
    assert big.startswith(f"Buffer({'at [' + '0, ' * (rank - 6) if rank > 6 else '['}")
    small = repr(there(client.buffer_from_host(np.zeros((1,) * rank, np.int8))))
    assert small == f"Buffer({'[' * rank}0{']' * rank}, i8[{','.join('1' * rank)}] on {NAME}:0)"


WIDE = {
    "f64": np.linspace(-1e-3, 1e9, 30_000).reshape(300, 100),
    "complex<f64>": np.linspace(-1e-3, 1e9 + 1e-7j, 30_000).reshape(300, 100),
    "i64": np.linspace(-(2**62), 2**62, 30_000).astype(np.int64).reshape(300, 100),
    "of three dimensions": np.linspace(0, 1, 30_000).reshape(3, 100, 100),
    "vector": np.linspace(-1e-300, 1e300, 500),
}


@pytest.mark.parametrize("array", WIDE.values(), ids=WIDE)
def test_the_rows_of_a_wide_value_stay_in_their_lines(client, array):
    text = repr(there(client.buffer_from_host(array)))
    assert max(map(len, text.splitlines())) <= 100
    lines = value_in(text).splitlines()
    rows = [line for line in lines if line.strip() not in ("", "...,")]
    assert all(line.lstrip().startswith("[") and "..." in line for line in rows)
    assert len({line.rstrip("],").rindex(",") for line in rows}) == 1  # columns are aligned


@pytest.mark.parametrize(
    "shape", [(400000,), (700, 900), (3, 7, 90000), (2, 300, 6, 500), (5, 2, 300, 3, 90)]
)
@pytest.mark.parametrize("order", ["row-major", "reversed"])
@pytest.mark.skipif(NAME not in preview.LINEAR, reason="nobody says how its bytes are ordered")
def test_only_what_is_shown_is_fetched(client, monkeypatch, shape, order):
    """The device's memory counts as unreadable here; the text equals numpy's truncated text."""
    layout = None if order == "row-major" else tuple(range(len(shape)))
    stored = np.arange(np.prod(shape), dtype=np.float32)
    buffer = there(client.buffer_from_host(stored.reshape(shape)))
    value = stored.reshape(shape) if layout is None else stored.reshape(shape[::-1]).T
    expected = display.of_array(value)
    fetched = []
    real = preview._fetch
    monkeypatch.setattr(
        preview, "_fetch", lambda b, start, n: fetched.append(n) or real(b, start, n)
    )
    monkeypatch.setattr(client, "_lends", False)
    monkeypatch.setattr(type(buffer), "_order", lambda self: layout)
    shown = value_in(repr(buffer)).replace(",", "")
    assert shown == expected
    assert fetched
    assert sum(fetched) * 4 < buffer.nbytes


def test_a_failed_value_says_so(client, monkeypatch):
    buffer = there(client.buffer_from_host([1.0]))

    def fail(self):
        raise PjrtError("out of <memory>\nmore")

    monkeypatch.setattr(type(buffer), "to_numpy", fail)
    assert repr(buffer) == f"<Buffer failed: out of <memory>, f32[1] on {NAME}:0>"
    markup = buffer._repr_html_()
    assert "&lt;memory&gt;" in markup
    assert text_of(markup) == f"<Buffer failed: out of <memory>>f32[1] on {NAME}:0"


def test_what_a_buffer_says_of_itself_without_waiting(client):
    (pending, keep), deleted = promise(client), client.buffer_from_host(np.zeros((2, 3), np.int16))
    if not IS_CPU:  # the layout must be read before the deletion
        assert deleted.layout == (1, 0)
    deleted.delete()
    known = [
        (pending, (np.float32, (256, 256), 256 * 256 * 4, (1, 0))),
        (deleted, (np.int16, (2, 3), 12, (1, 0))),
    ]
    for buffer, told in known:
        assert (buffer.dtype, buffer.shape, buffer.nbytes, buffer.layout) == told
        assert buffer.device is client.devices[0]
    assert repr(pending) == f"<Buffer pending, f32[256,256] on {NAME}:0>"
    assert repr(deleted) == f"<Buffer deleted, i16[2,3] on {NAME}:0>"
    assert text_of(pending._repr_html_()) == f"<Buffer pending>f32[256,256] on {NAME}:0"
    assert text_of(deleted._repr_html_()) == f"<Buffer deleted>i16[2,3] on {NAME}:0"
    assert not pending.ready.is_ready()
    keep()
    assert text_of(there(pending)._repr_html_()).endswith(f"]]f32[256,256] on {NAME}:0")


def test_html_of_a_buffer(client):
    buffer = there(client.buffer_from_host(np.arange(4, dtype=np.int32).reshape(2, 2)))
    assert text_of(buffer._repr_html_()) == f"[[0, 1],\n [2, 3]]i32[2,2] on {NAME}:0"


def test_the_columns_of_a_buffer_need_no_style_sheet(client):
    """The style sheet of nbconvert has no monospaced font for `pre`."""
    markup = client.buffer_from_host(np.arange(4).reshape(2, 2))._repr_html_()
    (style,) = re.findall(r'<pre style="(.*?)">', markup)
    assert {"font-family:monospace", "white-space:pre"} <= set(style.split(";"))
    assert "class=" not in markup


@pytest.mark.cpu("is as wide as its name")
def test_devices_and_memories_are_tables(pair, plugin):
    (first, second), kinds = pair.devices, "device, pinned_host, unpinned_host"
    assert repr(pair.devices) == (
        "DEVICE  KIND  PROCESS  MEMORIES\n"
        f"cpu:0   cpu   0        {kinds}\n"
        f"cpu:1   cpu   0        {kinds}"
    )
    assert repr(first.memories) == (
        "MEMORY           KIND           DEVICES\n"
        "device:0         device         cpu:0\n"
        "pinned_host:1    pinned_host    cpu:0\n"
        "unpinned_host:2  unpinned_host  cpu:0"
    )
    assert repr(pair.topology.device_descriptions) == (
        "DEVICE  KIND  PROCESS\n0       cpu   0\n1       cpu   0"
    )
    assert text_of(second.memories[0].devices._repr_html_()) == (
        f"devicekindprocessmemoriescpu:1cpu0{kinds}"
    )
    assert pair.devices == pair.all_devices == (first, second)
    assert {pair.devices: 1}[first, second] == 1
    assert pair.memories[:3] == first.memories
    client = plugin.client()
    devices = client.devices
    client.close()
    assert repr(devices) == "(<Device closed>,)"
    assert text_of(devices._repr_html_()) == "(<Device closed>,)"


@pytest.mark.cpu("is as wide as its name")
def test_html_of_the_rest(plugin, program):
    client = plugin.client(device_count(9))
    executable = client.compile(program("two_outputs"))
    shown = [client, client.devices[0], executable, client.memories[0], client.topology, plugin]
    texts = [text_of(each._repr_html_()) for each in shown]
    assert texts[0].startswith("Clientcpu")
    assert "cpu:7 cpu\n... and 1 more" in texts[0]
    assert texts[1].startswith("Devicecpu:0")
    assert "unpinned_host" in texts[1]
    assert texts[2].startswith("LoadedExecutable")
    assert str(executable.signature.outputs[1]) in texts[2]
    memory = client.memories[0]
    where = "\n".join(f"{device} cpu" for device in memory.devices)
    assert texts[3] == f"Memory{memory}kind{memory.kind}devices{where}"
    assert texts[4].startswith("Topologycpuversioncpudevices0 cpu\n1 cpu\n")
    assert texts[4].endswith("7 cpu\n... and 1 more")
    assert texts[5].startswith("Plugin")
    assert "xla_version" in texts[5]
    assert "Layouts" in texts[5]
    client.close()
    assert [text_of(each._repr_html_()) for each in shown[:5]] == [repr(e) for e in shown[:5]]


def test_a_long_cell_is_cut(own, monkeypatch):
    shown = "\n".join(["<x>" * 100, "<y>" * 101, *"12345678"])
    monkeypatch.setattr(type(own.devices[0]), "attributes", {"target": shown})
    text = text_of(own.devices[0]._repr_html_())
    cut = "\n".join(["<x>" * 100, "<y>" * 100 + "...", *"123456", "... and 2 more"])
    assert text.endswith("target" + cut)


def test_html_has_no_colours_of_its_own(client, plugin):
    """It must be readable in light and dark themes."""
    things = [client, client.devices[0], client.memories[0], client.topology, plugin]
    for each in (*things, client.buffer_from_host([1])):
        markup = each._repr_html_()
        assert "color" not in markup
        assert "background" not in markup
        assert len(markup) < 6000
