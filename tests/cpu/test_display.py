"""How things look: buffers of every rank and dtype, and HTML for notebooks."""

from __future__ import annotations

import html.parser

import ml_dtypes
import numpy as np
import pytest

from pjrt_hub.errors import PjrtError
from pjrt_hub.runtime import display, dtypes


class Checker(html.parser.HTMLParser):
    """Raises where tags do not nest; gathers the text."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attributes):
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


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array(2.5, np.float32), "2.5\n[cpu:0 f32[]]"),
        (np.zeros((2, 0), np.int8), "[]\n[cpu:0 i8[2,0]]"),
        (np.array([True, False]), "[ True, False]\n[cpu:0 i1[2]]"),
        (np.array([1 + 2j], np.complex64), "[1.+2.j]\n[cpu:0 complex<f32>[1]]"),
        (
            np.array([[0.1, 100], [-2, 3]], ml_dtypes.bfloat16),
            "[[  0.1001, 100.    ],\n [ -2.    ,   3.    ]]\n[cpu:0 bf16[2,2]]",
        ),
        (
            np.array([0.25, -240, np.nan], ml_dtypes.float8_e4m3fn),
            "[   0.25, -240.  ,     nan]\n[cpu:0 f8E4M3FN[3]]",
        ),
        (np.array([-8, 7, 0], ml_dtypes.int4), "[-8,  7,  0]\n[cpu:0 i4[3]]"),
        (np.array([15, 7, 0], ml_dtypes.uint4), "[15,  7,  0]\n[cpu:0 ui4[3]]"),
        (np.array([1, 0.5], ml_dtypes.float4_e2m1fn), "[1. , 0.5]\n[cpu:0 f4E2M1FN[2]]"),
    ],
)
def test_a_value_is_aligned(client, array, expected):
    assert repr(client.buffer_from_host(array)) == expected
    assert str(client.buffer_from_host(array)) == expected.rpartition("\n")[0].replace(",", "")


#: Those of API 0.81.
KNOWN = [element for element in dtypes.ELEMENT_TYPES if element.since <= 81]


@pytest.mark.parametrize("element", KNOWN, ids=lambda element: element.name)
def test_every_dtype_prints(client, element):
    dtype = dtypes.numpy_dtype(element.code)
    buffer = client.buffer_from_host(np.ones((3, 300), np.float32).astype(dtype))
    lines = repr(buffer).splitlines()
    assert lines[-1] == f"[cpu:0 {element.name}[3,300]]"
    assert len({len(line.rstrip("],")) for line in lines[:3]}) == 1
    assert all("..." in line for line in lines[:3])


@pytest.mark.parametrize("rank", range(1, 11))
def test_every_rank_is_short(client, rank):
    big = repr(client.buffer_from_host(np.zeros((4,) * rank, np.int8)))
    assert len(big) < 2500
    assert big.startswith("at [" + "0, " * (rank - 6) + "...]\n" if rank > 6 else "[")
    small = repr(client.buffer_from_host(np.zeros((1,) * rank, np.int8)))
    assert small == f"{'[' * rank}0{']' * rank}\n[cpu:0 i8[{','.join('1' * rank)}]]"


def test_a_long_value_is_truncated(client):
    assert (
        repr(client.buffer_from_host(np.arange(1000, dtype=np.int32)))
        == "[  0,   1,   2, ..., 997, 998, 999]\n[cpu:0 i32[1000]]"
    )


@pytest.mark.parametrize(
    "shape", [(400000,), (700, 900), (3, 7, 90000), (2, 300, 6, 500), (5, 2, 300, 3, 90)]
)
@pytest.mark.parametrize("order", ["row-major", "reversed"])
def test_only_what_is_shown_is_fetched(client, monkeypatch, shape, order):
    """As from a device whose memory the host cannot read: equal to what numpy truncates."""
    layout = None if order == "row-major" else tuple(range(len(shape)))
    stored = np.arange(np.prod(shape), dtype=np.float32)
    buffer = client.buffer_from_host(stored.reshape(shape))
    value = stored.reshape(shape) if layout is None else stored.reshape(shape[::-1]).T
    expected = display.of_array(value)
    fetched = []
    real = display._fetched
    monkeypatch.setattr(
        display, "_fetched", lambda b, start, n: fetched.append(n) or real(b, start, n)
    )
    monkeypatch.setattr(client, "_lends", False)
    monkeypatch.setattr(type(buffer), "_order", lambda self: layout)
    assert repr(buffer).rpartition("\n")[0].replace(",", "") == expected
    assert fetched
    assert sum(fetched) * 4 < buffer.nbytes


def test_a_failed_value_says_so(client, monkeypatch):
    buffer = client.buffer_from_host([1.0])

    def fail(self):
        raise PjrtError("out of <memory>\nmore")

    monkeypatch.setattr(type(buffer), "to_numpy", fail)
    assert repr(buffer) == "<Buffer failed: out of <memory> [cpu:0 f32[1]]>"
    markup = buffer._repr_html_()
    assert "&lt;memory&gt;" in markup
    assert text_of(markup) == "<Buffer failed: out of <memory>>[cpu:0 f32[1]]"


def test_html_of_a_buffer(client, slowly):
    buffer = client.buffer_from_host(np.arange(4, dtype=np.int32).reshape(2, 2))
    assert text_of(buffer._repr_html_()) == "[[0, 1],\n [2, 3]][cpu:0 i32[2,2]]"
    pending = slowly(2000)
    assert text_of(pending._repr_html_()) == "<Buffer pending>[cpu:0 f32[256,256]]"
    pending.ready.wait()


def test_html_of_the_rest(plugin, program):
    client = plugin.client({"cpu_device_count": 9})
    executable = client.compile(program("two_outputs"))
    shown = [client, client.devices[0], executable, plugin]
    texts = [text_of(each._repr_html_()) for each in shown]
    assert texts[0].startswith("Clientcpu")
    assert "cpu:7 cpu\n... and 1 more" in texts[0]
    assert texts[1].startswith("Devicecpu:0")
    assert "unpinned_host" in texts[1]
    assert texts[2].startswith("LoadedExecutable")
    assert str(executable.signature.outputs[1]) in texts[2]
    assert texts[3].startswith("Plugin")
    assert "xla_version" in texts[3]
    assert "Layouts" in texts[3]
    client.close()
    assert [text_of(each._repr_html_()) for each in shown[:3]] == [repr(e) for e in shown[:3]]


def test_html_has_no_colours_of_its_own(client, plugin):
    """So that it can be read in light and in dark."""
    for each in (client, client.devices[0], plugin, client.buffer_from_host([1])):
        markup = each._repr_html_()
        assert "color" not in markup
        assert "background" not in markup
        assert len(markup) < 6000
