"""Buffers, transfers and layouts of a plugin that has all functions of 0.117 and heeds layouts."""

from __future__ import annotations

import contextlib
import gc
import weakref
from functools import partial

import numpy as np
from stubbed import ONE_TO_FOUR, begin, func, live, number, raises, text_of, with_stub

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.running.buffer.placement import moves_data
from pjrt_hub.running.capi import hotpath

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


@contextlib.contextmanager
def checked():
    """A client of the stub, of which nothing may be left afterwards."""
    client = begin()
    yield client
    gc.collect()
    client.close()
    assert live() == {}, live()
    assert number("stub_transfers") == number("stub_mapped") == 0


@with_stub()
def test_an_error_buffer_fails_whatever_uses_it():
    with checked() as client:
        payloads = {"who": b"\0host 3", "": b""}
        given = errors.DataLossError("the disk is gone: caf\u00e9", payloads=payloads)
        buffer = client.create_error_buffer(given, (4,))
        assert (buffer.shape, buffer.dtype.name, buffer.ready.is_ready()) == ((4,), "float32", True)
        result = client.compile(func("add"))(buffer, client.buffer_from_host(ONE_TO_FOUR))
        again = client.compile(func("copy"))(result)
        for failed in (buffer, result, again):
            for use in (
                failed.to_numpy,
                failed.ready.wait,
                failed.tolist,
                partial(pjrt_hub.ExternalReference, failed),
            ):
                error = raises(errors.DataLossError, use)
                assert (error.code, error.payloads) == (15, given.payloads), error.payloads
                assert error.message == "the disk is gone: caf\u00e9", error
            assert "failed: the disk is gone" in repr(failed)
        raises(TypeError, client.create_error_buffer, ValueError("x"), (4,))
        column = client.create_error_buffer(errors.AbortedError(""), (2, 3), layout=(0, 1))
        assert (column.layout, raises(errors.AbortedError, column.to_numpy).payloads) == (
            (0, 1),
            {},
        )
        del buffer, result, again, failed, use, column


@with_stub("MINOR=102")
def test_an_older_plugin_gets_an_error_without_payloads():
    client = begin()
    buffer = client.create_error_buffer(errors.DataLossError("x"), (4,))
    assert raises(errors.DataLossError, buffer.to_numpy).message == "x"


@with_stub('PLATFORM="other"')
def test_a_literal_is_a_whole_buffer():
    with checked() as client:
        specs = [((4,), "f32"), ((2, 3), "f32"), ((2,), "i16")]
        with pjrt_hub.Transfer(client, specs) as transfer:
            first, second = map(transfer.retrieve_buffer, range(2))
            transfer.transfer_literal(0, ONE_TO_FOUR).wait(10)
            assert first.tolist() == [1, 2, 3, 4]
            raises(errors.ClosedError, transfer.transfer_literal, 0, ONE_TO_FOUR)
            raises(errors.ClosedError, transfer.transfer_data, 0, b"")
            for wrong, error in (
                (MATRIX.T, ValueError),
                (MATRIX.astype("f8"), TypeError),
                (MATRIX[:1], ValueError),
                (np.zeros((2, 6), "f4")[:, ::2], ValueError),
            ):
                raises(error, transfer.transfer_literal, 1, wrong)
            transfer.transfer_data(1, MATRIX[:1])
            raises(ValueError, transfer.transfer_literal, 1, MATRIX)
            transfer.transfer_data(1, MATRIX[1:], offset=12, is_last=True).wait(10)
            assert second.tolist() == MATRIX.tolist()
            transfer.add_metadata({"name": "weights", "step": "3"})
            assert text_of("stub_metadata") == "name=weights;step=3;"
            third = transfer.retrieve_buffer(2)
            transfer.set_buffer_error(2, errors.DataLossError("never came"))
            assert raises(errors.DataLossError, third.to_numpy).message == "never came"
        del first, second, third, transfer


@with_stub('PLATFORM="other"')
def test_layouts_are_heeded():
    with checked() as client:
        assert moves_data(client) is True

        def raw(buffer):
            memory = np.zeros(buffer.on_device_nbytes // 4, np.float32)
            buffer.copy_raw_to_host(memory).wait(10)
            return memory.tolist()

        for source in (MATRIX, np.asfortranarray(MATRIX), MATRIX[::-1, ::-1][::-1, ::-1]):
            for layout, bytes_ in (((0, 1), [0, 3, 1, 4, 2, 5]), ((1, 0), [0, 1, 2, 3, 4, 5])):
                buffer = client.buffer_from_host(source, layout=layout)
                assert (buffer.layout, raw(buffer)) == (layout, bytes_)
                assert buffer.to_numpy().tolist() == MATRIX.tolist()
                assert buffer.to_numpy(layout=(0, 1)).strides == (4, 8)
        specs = [((2, 3), "f32", (0, 1)), ((2, 3), "f32", (0, 1)), ((2, 3), "f32", (1, 0))]
        with pjrt_hub.Transfer(client, specs) as transfer:
            literal, data = map(transfer.retrieve_buffer, range(2))
            transfer.transfer_literal(0, MATRIX)
            transfer.transfer_literal(2, np.asfortranarray(MATRIX))
            by_columns = transfer.retrieve_buffer(2)
            assert (by_columns.layout, raw(by_columns)) == ((1, 0), [0, 1, 2, 3, 4, 5])
            transfer.transfer_data(1, np.ascontiguousarray(MATRIX.T), is_last=True)
            for buffer in (literal, data):
                assert (buffer.layout, raw(buffer)) == ((0, 1), [0, 3, 1, 4, 2, 5])
                assert buffer.tolist() == MATRIX.tolist()
        del buffer, literal, data, by_columns, transfer


@with_stub("MOVES_DATA=0")
def test_a_layout_that_is_only_a_label_is_a_right_one():
    with checked() as client:
        assert moves_data(client) is False
        for source in (MATRIX, np.asfortranarray(MATRIX)):
            buffer = client.buffer_from_host(source, layout=(0, 1))
            lying = np.zeros(6, np.float32)
            buffer.copy_raw_to_host(lying).wait(10)
            assert (buffer.layout, lying.tolist()) == ((0, 1), [0, 3, 1, 4, 2, 5])
            assert buffer.tolist() == MATRIX.tolist()
        del buffer


@with_stub("HEEDS_LAYOUTS=0")
def test_a_plugin_that_ignores_layouts_is_found_out():
    with checked() as client:
        given = client.buffer_from_host(ONE_TO_FOUR)
        wish = {"layout": (0, 1)}
        for make in (
            partial(client.buffer_from_host, MATRIX, **wish),
            partial(client.create_error_buffer, errors.AbortedError("x"), (2, 3), **wish),
            partial(pjrt_hub.Transfer, client, [((2, 3), "f32", (0, 1))]),
            partial(given.bitcast, "f32", (2, 2), **wish),
        ):
            error = raises(errors.UnsupportedByPluginError, make)
            assert "layout (0, 1) and made one of (1, 0)" in str(error), error
            del error
        assert client.buffer_from_host(MATRIX, layout=(1, 0)).tolist() == MATRIX.tolist()
        del given, make
        gc.collect()
        assert live() == {"client": 1}, live()


@with_stub()
def test_a_bitcast_takes_the_memory():
    with checked() as client:
        floats = client.buffer_from_host(ONE_TO_FOUR)
        bits = floats.bitcast("i32", (2, 2))
        assert floats.is_deleted
        assert not bits.is_deleted
        assert (bits.dtype.name, bits.shape) == ("int32", (2, 2))
        assert bits.tolist() == ONE_TO_FOUR.view(np.int32).reshape(2, 2).tolist()
        raises(errors.ClosedError, floats.bitcast, "i32", (4,))
        for dtype, shape in (("i32", (3,)), ("i64", (4,)), ("int8", (4,))):
            raises(ValueError, bits.bitcast, dtype, shape)
        column = bits.bitcast("f32", (2, 2), layout=(0, 1))
        assert (column.layout, column.tolist()) == ((0, 1), [[1, 3], [2, 4]])
        del floats, bits, column


@with_stub()
def test_a_donated_buffer_waits_for_its_dependency():
    with checked() as client:
        source = client.buffer_from_host(ONE_TO_FOUR)
        dependency = pjrt_hub.ControlDependency(source)
        heir = dependency.buffer
        assert source.is_deleted
        assert not heir.ready.is_ready()
        assert (heir.shape, heir.dtype, dependency.closed) == ((4,), np.float32, False)
        dependency.fulfill()
        assert heir.tolist() == [1, 2, 3, 4]
        raises(errors.ClosedError, dependency.fulfill)
        raises(errors.ClosedError, pjrt_hub.ControlDependency, source)
        dependency = pjrt_hub.ControlDependency(heir)
        dependency.fail(errors.AbortedError("no more"))
        assert str(raises(errors.AbortedError, dependency.buffer.to_numpy)) == "no more"
        forgotten = pjrt_hub.ControlDependency(client.buffer_from_host(ONE_TO_FOUR)).buffer
        assert "nobody kept" in str(raises(errors.CancelledError, forgotten.to_numpy))
        dependency = pjrt_hub.ControlDependency(client.buffer_from_host(ONE_TO_FOUR))
        del source, heir, forgotten
        client.close()
        assert dependency.closed
        raises(errors.ClosedError, dependency.fulfill)


@with_stub()
def test_mapped_memory_is_kept_and_unmapped_once():
    with checked() as client:

        class Watched(np.ndarray):
            pass

        memory = np.zeros(4096, np.uint8).view(Watched)
        gone = weakref.ref(memory)
        mapping = pjrt_hub.DmaMapping(client, memory)
        assert number("stub_mapped") == 4096
        del memory
        gc.collect()
        assert gone() is not None
        raises(errors.AlreadyExistsError, pjrt_hub.DmaMapping, client, np.zeros(8))
        mapping.close()
        mapping.close()
        assert number("stub_mapped") == 0
        del mapping
        gc.collect()
        assert gone() is None
        with pjrt_hub.DmaMapping(client, bytearray(64)):
            assert number("stub_mapped") == 64
        assert number("stub_mapped") == 0
        for wrong in (np.zeros((4, 4))[:, 1], np.zeros(0)):
            raises(ValueError, pjrt_hub.DmaMapping, client, wrong)
        raises(TypeError, pjrt_hub.DmaMapping, client, 3)
        left = pjrt_hub.DmaMapping(client, np.zeros(8))
        client.close()
        assert left.closed
        assert number("stub_mapped") == 0


@with_stub()
def test_a_plugin_that_copies_what_it_may_share():
    """A large array goes through our own copy once; from then on the plugin makes the copies."""
    with checked() as client:
        large = np.arange(1 << 20, dtype=np.float32)
        for turn in range(3):
            source = large + turn
            buffer = client.buffer_from_host(source)
            source[:] = -1
            assert np.array_equal(buffer.to_numpy(), large + turn)
            kept = hotpath.Staging._kept()
            assert kept in (0, large.nbytes), kept  # it is 0 where there are no huge pages
            hotpath.Staging._trim()
            assert kept == 0 or turn == 0, (turn, kept)
            buffer.delete()
        del buffer
