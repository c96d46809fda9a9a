"""Layouts that the caller chooses order the device's bytes and do not change the value."""

from itertools import permutations

import numpy as np
import pytest
from children import NAME
from elements import OLD
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from texts import doubling

import pjrt_hub
from pjrt_hub import CompileOptions, HostBufferSemantics
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import UnimplementedError, UnsupportedByPluginError
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.program.signature import Slot

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)
#: From this version on, the CPU plugin refuses packed elements that are not in row-major order.
NO_PACKED_LAYOUTS = ApiVersion(0, 106)
#: From this version on, the CPU plugin copies an array that is in another order.
COPIES_INTO_LAYOUTS = ApiVersion(0, 115)
SHARED = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def raw(buffer):
    """The bytes of the buffer as the device stores them."""
    memory = np.zeros(buffer.on_device_nbytes, np.uint8)
    buffer.copy_raw_to_host(memory).wait(10)
    return memory.tobytes()


def lying(array, order, bits=8):
    """The expected bytes of an array in an order of dimensions, with short elements packed."""
    flat = np.ascontiguousarray(array.transpose(order[::-1])).reshape(-1)
    if bits >= 8:
        return flat.tobytes()
    per_byte = 8 // bits
    each = np.zeros(-(-flat.size // per_byte) * per_byte, np.uint8)
    each[: flat.size] = flat.view(np.uint8) & (2**bits - 1)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(each.reshape(-1, per_byte) << shifts, axis=1).tobytes()


def reader(client, shape, order):
    """A program that takes an f32 array in a layout and returns its double in row-major order."""
    options = CompileOptions(argument_layouts=[Slot.of("f32", shape, order)])
    return client.compile(doubling("x".join([*map(str, shape), "f32"])), options)


@pytest.mark.parametrize("rank", range(5))
@pytest.mark.rows
def test_every_order(client, rank):
    shape = (2, 3, 4, 5)[:rank]
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for order in permutations(range(rank)):
        buffer = client.buffer_from_host(values, layout=order)
        assert (buffer.layout, buffer.shape) == (order, shape)
        assert raw(buffer) == lying(values, order)
        assert np.array_equal(buffer.to_numpy(), values)


def test_a_program_reads_it_in_its_layout(client, executables):
    read = reader(client, (2, 3), (0, 1))
    buffer = client.buffer_from_host(MATRIX, layout=(0, 1))
    assert read(buffer).tolist() == (2 * MATRIX).tolist()
    assert read(executables("column_major")(client.buffer_from_host(MATRIX))).tolist() == (
        (4 * MATRIX).tolist()
    )
    for wrong in (None, (1, 0)):
        with pytest.raises(ValueError, match=r"in the order \(0, 1\), the buffer has \(1, 0\)"):
            read(client.buffer_from_host(MATRIX, layout=wrong))


@st.composite
def puts(draw):
    """Arguments of a put: an array of any dtype and strides, a layout and semantics."""
    element = draw(st.sampled_from(OLD))
    shape = draw(st.lists(st.integers(0, 4), max_size=4).map(tuple))
    seed = draw(st.integers(0, 2**32 - 1))
    random, dtype = np.random.default_rng(seed), dtypes.numpy_dtype(element.code)
    wide = tuple(2 * size + 1 for size in shape)
    if element.bits < 8:
        values = random.integers(0, 2**element.bits, wide).astype(np.uint8)
        base = values.view(dtype).astype(np.float32).astype(dtype)
    elif dtype.kind == "b":
        base = random.integers(0, 2, wide).astype(bool)
    else:
        bytes_ = random.integers(0, 256, (*wide, dtype.itemsize)).astype(np.uint8)
        base = bytes_.view(dtype).reshape(wide)
    steps = [draw(st.sampled_from([slice(1, None, 2), slice(-2, None, -2)])) for _ in shape]
    view = base[tuple(steps)] if shape else base
    if draw(st.booleans()):
        view = np.ascontiguousarray(view).reshape(view.shape)
    view = view.transpose(draw(st.permutations(range(view.ndim))))
    if dtype.kind in "iufc" and draw(st.booleans()):
        view = view.astype(view.dtype.newbyteorder())
    order = tuple(draw(st.permutations(range(view.ndim))))
    return element, view, order, draw(st.sampled_from(HostBufferSemantics))


@SHARED
@given(put=puts())
@pytest.mark.rows
def test_any_dtype_strides_layout_and_semantics(client, put):
    element, view, order, semantics = put
    native = np.array(view, dtypes.numpy_dtype(element.code), order="C")
    plain = client.buffer_from_host(view, semantics=semantics)
    assert plain.to_numpy().tobytes() == native.tobytes()
    in_rows = order == tuple(reversed(range(view.ndim)))
    if element.bits < 8 and not in_rows and client.api.version >= NO_PACKED_LAYOUTS:
        # The layer `discrete` sees the refusal too late, after it made a row-major buffer.
        with pytest.raises((UnimplementedError, UnsupportedByPluginError), match="layout"):
            client.buffer_from_host(view, layout=order, semantics=semantics)
        return
    buffer = client.buffer_from_host(view, layout=order, semantics=semantics)
    assert (buffer.layout, buffer.shape, buffer.dtype) == (order, view.shape, native.dtype)
    assert buffer.to_numpy().tobytes() == native.tobytes()
    assert raw(buffer) == lying(native, order, element.bits)


@pytest.mark.cpu("shares memory with the host")
@pytest.mark.parametrize("semantics", HostBufferSemantics)
def test_semantics_hold_in_a_layout(client, semantics):
    memory = pjrt_hub.empty_aligned((3, 2))
    memory[...] = MATRIX.T
    buffer = client.buffer_from_host(memory.T, layout=(0, 1), semantics=semantics)
    buffer.ready.wait(10)
    wanted = semantics >= HostBufferSemantics.IMMUTABLE_ZERO_COPY
    shared = wanted and client.api.version < COPIES_INTO_LAYOUTS
    assert (buffer.unsafe_pointer() == memory.ctypes.data) is shared
    del memory
    assert buffer.tolist() == MATRIX.tolist()


def test_what_is_no_layout(client):
    for layout, error in (
        ((0, 0), ValueError),
        ((0,), ValueError),
        (1, TypeError),
        ("ab", TypeError),
    ):
        for make in (
            lambda layout: client.buffer_from_host(MATRIX, layout=layout),
            lambda layout: client.create_uninitialized_buffer((2, 3), layout=layout),
            lambda layout: client.buffer_from_host(MATRIX).to_numpy(layout=layout),
        ):
            with pytest.raises(error, match="layout"):
                make(layout)


@pytest.mark.cpu("shares memory with the host")
def test_to_the_host_in_a_layout(client, executables):
    for buffer in (
        client.buffer_from_host(MATRIX),
        client.buffer_from_host(MATRIX, layout=(0, 1)),
        executables("column_major")(client.buffer_from_host(MATRIX / 2)),
    ):
        for layout, strides in (((0, 1), (4, 8)), ((1, 0), (12, 4))):
            array = buffer.to_numpy(layout=layout)
            assert (array.strides, array.tolist()) == (strides, MATRIX.tolist())
            assert not array.flags.writeable
        own = buffer.to_numpy(layout=buffer.layout)
        assert own.ctypes.data == buffer.to_numpy().ctypes.data
    scalar = client.buffer_from_host(np.float32(3)).to_numpy(layout=())
    assert (scalar.shape, scalar.item()) == ((), 3)


@pytest.mark.cpu("shares memory with the host")
def test_buffers_without_an_array(client):
    read = reader(client, (2, 3), (0, 1))
    memory = pjrt_hub.empty_aligned((3, 2))
    memory[...] = MATRIX.T
    view = client.create_view_of_device_buffer(memory, (2, 3), layout=(0, 1))
    assert (view.layout, view.tolist()) == ((0, 1), MATRIX.tolist())
    assert read(view).tolist() == (2 * MATRIX).tolist()
    empty = client.create_uninitialized_buffer((2, 3), layout=(0, 1))
    assert (empty.layout, empty.to_numpy().strides) == ((0, 1), (4, 8))
    alias = pjrt_hub.Alias(client, (2, 3), layout=(0, 1))
    with pytest.raises(ValueError, match=r"f32\[2,3\]\{0,1\}, the buffer has the layout \(1, 0\)"):
        alias.fulfill(client.buffer_from_host(MATRIX))
    alias.fulfill(client.buffer_from_host(MATRIX, layout=(0, 1)))
    assert alias.buffer.tolist() == MATRIX.tolist()


@pytest.mark.rows
def test_copies_keep_the_layout(pair):
    source = pair.buffer_from_host(MATRIX, layout=(0, 1))
    for copy in (
        source.copy_to_device(pair.devices[1]),
        source.copy_to_memory(pair.devices[0].memories[1]),
        pair.buffer_from_host(MATRIX, layout=(0, 1), device=pair.devices[1]),
        pair.buffer_from_host(MATRIX, layout=(0, 1), memory=pair.devices[1].memories[2]),
    ):
        assert (copy.layout, copy.tolist()) == ((0, 1), MATRIX.tolist())
        assert raw(copy) == lying(MATRIX, (0, 1))


@pytest.mark.rows
def test_a_transfer_takes_bytes_as_they_lie(client):
    specs = [((2, 3), "f32", (0, 1)), ((2, 3), "f32", (1, 0))]
    with pjrt_hub.Transfer(client, specs) as transfer:
        first, second = map(transfer.retrieve_buffer, range(2))
        for index in range(2):
            with pytest.raises(ValueError, match="retrieved before"):
                transfer.retrieve_buffer(index)
        assert repr(transfer) == f"<Transfer of f32[2,3]{{0,1}}, f32[2,3]{{1,0}} to {NAME}:0>"
        transfer.transfer_data(0, lying(MATRIX, (0, 1)), is_last=True)
        transfer.transfer_data(1, MATRIX, is_last=True)
        assert (first.layout, first.tolist()) == ((0, 1), MATRIX.tolist())
        assert (second.layout, second.tolist()) == ((1, 0), MATRIX.tolist())
        assert reader(client, (2, 3), (0, 1))(first).tolist() == (2 * MATRIX).tolist()
    with pytest.raises(ValueError, match="all or none"):
        pjrt_hub.Transfer(client, [((2, 3), "f32", (1, 0)), ((2, 3), "f32")])


@pytest.mark.cpu("shares memory with the host")
def test_a_transposed_array_is_shared_where_no_copy_is_wanted(client):
    memory = pjrt_hub.empty_aligned((4, 3, 2))
    memory[...] = np.arange(24).reshape(4, 3, 2)
    for axes in permutations(range(3)):
        source = memory.transpose(axes)
        copied, shared = client.from_dlpack(source), client.from_dlpack(source, copy=False)
        assert copied.layout == (2, 1, 0)
        assert shared.layout == tuple(axes.index(d) for d in (2, 1, 0))
        assert shared.unsafe_pointer() == memory.ctypes.data
        assert copied.tolist() == shared.tolist() == source.tolist()
        assert reader(client, source.shape, shared.layout)(shared).tolist() == (
            (2 * source).tolist()
        )
    with pytest.raises(BufferError, match="strides are"):
        client.from_dlpack(memory[:, ::2], copy=False)
