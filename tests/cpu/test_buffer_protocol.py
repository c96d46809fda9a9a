"""memoryview of a buffer, and numpy beside it."""

from __future__ import annotations

import ctypes
import hashlib
import io
import signal

import ml_dtypes
import numpy as np
import pytest
from children import in_child, promise

from pjrt_hub.errors import ClosedError

pytestmark = pytest.mark.cpu("shares memory with the host")

FORMATS = {"bool": "?", "int8": "b", "uint16": "H", "int32": "i", "float16": "e", "float32": "f"}
FORMATS |= {"float64": "d", "complex64": "Zf", "complex128": "Zd"}


@pytest.mark.parametrize("name", FORMATS)
def test_a_view_has_format_and_strides(client, name):
    values = np.ones((2, 3), name)
    buffer = client.buffer_from_host(values)
    view = memoryview(buffer)
    assert (view.format, view.shape, view.itemsize) == (FORMATS[name], (2, 3), values.itemsize)
    assert view.readonly
    assert bytes(view) == bytes(buffer) == values.tobytes()
    assert hashlib.sha256(buffer).digest() == hashlib.sha256(values).digest()


def test_a_view_shares_the_memory(client, vector):
    buffer = vector()
    shared = np.asarray(memoryview(buffer)).__array_interface__["data"]
    assert shared == buffer.to_numpy().__array_interface__["data"]
    assert np.asarray(buffer).__array_interface__["data"] == shared


def test_a_view_follows_the_layout(client, executables):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    view = memoryview(executables("column_major")(client.buffer_from_host(values)))
    assert view.strides == (4, 8)
    assert view.tolist() == (2 * values).tolist()


def test_a_view_waits_and_outlives_its_buffer(slowly):
    buffer = slowly(50)
    view = memoryview(buffer)
    buffer.delete()
    assert np.array_equal(np.asarray(view), np.eye(256))
    with pytest.raises(ClosedError, match="deleted"):
        memoryview(buffer)
    with pytest.raises(ClosedError, match="deleted"):
        np.asarray(buffer)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "int4"])
def test_what_python_has_no_format_for(client, name):
    values = np.ones(4).astype(getattr(ml_dtypes, name))
    buffer = client.buffer_from_host(values)
    with pytest.raises(BufferError, match="to_numpy"):
        memoryview(buffer)
    assert np.asarray(buffer).dtype == values.dtype
    assert np.array_equal(np.asarray(buffer), values)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 5)])
def test_every_shape(client, shape):
    values = np.zeros(shape, np.int16)
    view = memoryview(client.buffer_from_host(values))
    assert (view.shape, view.nbytes) == (shape, values.nbytes)
    assert view.tolist() == values.tolist()


def test_nobody_writes(vector):
    with pytest.raises(TypeError, match="read-write"):
        io.BytesIO(bytes(32)).readinto(vector())


def test_a_view_without_strides_must_be_row_major(client, executables):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = executables("column_major")(client.buffer_from_host(values))
    with pytest.raises(BufferError, match="not row-major"):
        hashlib.sha256(result)


STRIDES, ROW_MAJOR, COLUMN_MAJOR, EITHER = 0x18, 0x38, 0x58, 0x98


def export(buffer, flags):
    """Ask for the memory as C code does."""
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    release.argtypes = [ctypes.c_void_p]
    view = ctypes.create_string_buffer(256)
    get(buffer, view, flags)
    release(view)


def test_only_the_order_that_is_there_is_given(client, executables):
    by_row = client.buffer_from_host(np.arange(6, dtype=np.float32).reshape(2, 3))
    by_column = executables("column_major")(by_row)
    for flags in (0, STRIDES, ROW_MAJOR, EITHER):
        export(by_row, flags)
    export(by_column, STRIDES)
    export(client.buffer_from_host([1.0]), COLUMN_MAJOR)
    with pytest.raises(BufferError, match="not column-major"):
        export(by_row, COLUMN_MAJOR)
    for flags in (0, ROW_MAJOR, COLUMN_MAJOR, EITHER):
        with pytest.raises(BufferError, match="not row-major"):
            export(by_column, flags)


def test_a_plugin_that_lends_nothing_has_no_views(own, monkeypatch):
    buffer = own.buffer_from_host([1.0])
    monkeypatch.setattr(own, "_lends", False)
    with pytest.raises(BufferError, match="to_numpy"):
        memoryview(buffer)
    assert np.asarray(buffer).tolist() == [1]


class Late(Exception):
    """One that nobody can make of a message."""

    def __init__(self, *, when):
        super().__init__(when, "late")


@in_child
def test_what_a_signal_raises_passes_through_numpy(client):
    """As itself, whatever its class wants to be made of; and once, not again at the next look."""
    late = Late(when="now")

    def interrupt(*_):
        raise late

    signal.signal(signal.SIGALRM, interrupt)
    result, keep = promise(client)
    for look in (
        *(np.asarray, np.array, memoryview, bytes, str, type(result).to_numpy),
        *(type(result).tolist, type(result).__array__, lambda it: np.add(it, 1)),
        *(lambda it: it.ready.wait(), lambda it: it.ready.wait(60)),
    ):
        with pytest.raises(Late) as caught:
            signal.setitimer(signal.ITIMER_REAL, 0.1), look(result)
        assert caught.value is late
    assert not result.ready.is_ready()
    keep()
    assert np.array_equal(np.asarray(result), np.eye(256))
