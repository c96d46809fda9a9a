"""Arrays stored in tiles, as on a TPU, by the layer `discrete` with the setting `tiled`."""

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from children import in_child
from texts import DONATED, cut, doubling
from tiles import ARRAYS, dtype_of, lying, tiles_in

import pjrt_hub
from pjrt_hub import CompileOptions
from pjrt_hub.errors import InvalidArgumentError, ResourceExhaustedError, UnimplementedError
from pjrt_hub.running.array.shape_spec import ShapeSpec
from pjrt_hub.running.buffer.upload import in_parts
from pjrt_hub.running.capi import table
from pjrt_hub.running.extensions import layouts
from pjrt_hub.running.program.signature import Slot

pytestmark = pytest.mark.cpu("sets the layer itself")

ON = {"PJRT_HUB_LAYERS": "discrete", "PJRT_HUB_DISCRETE": "tiled"}
SMALL = {**ON, "PJRT_HUB_DISCRETE": "tiled,capacity=64KiB"}
HELD = {**ON, "PJRT_HUB_DISCRETE": "tiled,hold,seed=5"}
VALIDATED = {**ON, "PJRT_HUB_LAYERS": "validate,discrete"}
ORDERS = {0: [()], 1: [(0,)], 2: [(1, 0), (0, 1)], 3: [(2, 1, 0), (0, 2, 1), (1, 0, 2)]}
ORDERS_OF_ROWS = [tuple(reversed(range(rank))) for rank in range(5)]


def values_of(name, shape):
    """Mostly different values of both signs."""
    whole = np.random.default_rng(7).integers(-100, 100, shape)
    if dtype_of(name).name.endswith(("int4", "int2")):
        bits = int(name[-1])
        whole = whole % 2**bits - (0 if name.startswith("u") else 2 ** (bits - 1))
    return whole.astype(dtype_of(name))


def raw(buffer, offset=0, nbytes=None):
    memory = np.zeros(buffer.on_device_nbytes - offset if nbytes is None else nbytes, np.uint8)
    buffer.copy_raw_to_host(memory, offset).wait(10)
    return memory


def put(client, values, order):
    """A buffer in an order of dimensions, or None if the plugin refuses packed elements in it."""
    packed = values.dtype.name.endswith(("int4", "int2"))
    if not packed or order == ORDERS_OF_ROWS[values.ndim] or client.api.version.minor < 106:
        return client.buffer_from_host(values, layout=order)
    with pytest.raises(UnimplementedError, match="layout"):
        client.buffer_from_host(values, layout=order)
    return None


def lies_in_tiles(client, values, order):
    """Whether an array is stored in tiles and read back, or the plugin refuses its order."""
    buffer = put(client, values, order)
    if buffer is None:
        return True
    text = str(layouts.buffer_layout(buffer)).partition(":")[2].rstrip("}")
    expected, there = lying(values, order, text)
    assert buffer.layout == order
    assert same(buffer.to_numpy(), values)
    assert same(buffer.to_numpy(layout=order), values)
    return np.array_equal(raw(buffer) & there, expected & there)


def same(array, values):
    """Whether both have the same dtype, shape and bits."""
    return (array.dtype, array.shape, array.tobytes()) == (
        values.dtype,
        values.shape,
        np.ascontiguousarray(values).tobytes(),
    )


def test_the_order_of_tiles():
    """The test's own model of tiles, checked by hand: two rows of three in tiles of 2 x 2."""
    found, there = lying(np.arange(6, dtype=np.uint8).reshape(2, 3), (1, 0), "T(2,2)")
    assert (found.tolist(), there.tolist()) == (
        [0, 1, 3, 4, 2, 0, 5, 0],
        [255, 255, 255, 255, 255, 0, 255, 0],
    )
    found, _ = lying(np.arange(8, dtype=np.uint8).reshape(4, 2), (1, 0), "T(4,2)(2,1)")
    assert found.tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@in_child(**ON)
def test_every_kind_of_array_lies_in_its_tiles(client):
    for name, shape, text, nbytes in ARRAYS:
        values = values_of(name, shape)
        buffer = client.buffer_from_host(values)
        rows = ",".join(map(str, ORDERS[len(shape)][0]))
        told = layouts.buffer_layout(buffer)
        assert (str(told), buffer.on_device_nbytes) == (f"{{{rows}:{text}}}", nbytes)
        assert told.tiles == tuple(tiles_in(text))
        assert layouts.default_layout(client, dtype_of(name), shape) == told
        expected, there = lying(values, ORDERS[len(shape)][0], text)
        found = raw(buffer)
        assert len(found) == len(expected) == nbytes, (name, shape)
        assert np.array_equal(found & there, expected & there), (name, shape)
        assert np.array_equal(found | there, np.full(nbytes, 255)), (name, shape)
        assert same(buffer.to_numpy(), values)
        assert buffer.nbytes == values.nbytes


@in_child(**ON)
def test_every_order_of_dimensions(client):
    for name in ("float32", "bfloat16", "int8", "int4", "uint2"):
        for shape in ((9, 13), (3, 9, 13)):
            values = values_of(name, shape)
            for order in ORDERS[len(shape)]:
                assert lies_in_tiles(client, values, order), (name, order)


@in_child(**ON)
def test_arrays_of_random_shapes(client):
    choose = np.random.default_rng(11)
    for _ in range(80):
        name = choose.choice(["float64", "int32", "bfloat16", "int8", "bool", "uint4", "int2"])
        shape = tuple(int(each) for each in choose.integers(1, 40, choose.integers(1, 5)))
        order = tuple(int(each) for each in choose.permutation(len(shape)))
        assert lies_in_tiles(client, values_of(name, shape), order), (name, shape, order)


@in_child(**ON)
def test_an_array_without_elements_has_no_tiles(client):
    buffer = client.buffer_from_host(np.zeros((0, 3), np.float32))
    assert (str(layouts.buffer_layout(buffer)), buffer.on_device_nbytes) == ("{1,0}", 0)
    assert buffer.to_numpy().shape == (0, 3)


@in_child(**ON)
def test_a_part_of_the_raw_bytes(client):
    buffer = client.buffer_from_host(values_of("bfloat16", (9, 130)))
    whole = raw(buffer)
    assert np.array_equal(raw(buffer, 4000, 300), whole[4000:4300])
    with pytest.raises(ValueError, match="lie outside of the buffer's 8192"):
        raw(buffer, 8000, 300)


@in_child(**SMALL)
def test_the_capacity_counts_what_tiles_take(client):
    [device] = client.devices
    kept = [client.buffer_from_host(np.zeros((1, 1), np.float64)) for _ in range(60)]
    assert device.memory_stats()["bytes_in_use"] == 60 * 1024
    with pytest.raises(ResourceExhaustedError, match="allocate 8192 bytes"):
        client.buffer_from_host(np.zeros((9, 130), np.float16))
    fits = client.buffer_from_host(np.zeros((9, 130), ml_dtypes.int4))
    assert device.memory_stats()["bytes_in_use"] == 60 * 1024 + 2048
    del kept, fits
    empty = client.create_uninitialized_buffer((9, 130))
    with pjrt_hub.Transfer(client, [((9, 130), "f32")] * 4) as transfer:
        parts = [transfer.retrieve_buffer(each) for each in range(3)]
        assert device.memory_stats()["bytes_in_use"] == 4 * 16384
        with pytest.raises(ResourceExhaustedError, match="allocate 16384 bytes"):
            transfer.retrieve_buffer(3)
        with pytest.raises(ResourceExhaustedError, match="allocate 16384 bytes"):
            client.create_uninitialized_buffer((9, 130))
        parts[0].delete()
        again = client.create_uninitialized_buffer((9, 130))
    assert {empty.on_device_nbytes, again.on_device_nbytes} == {16384}


TWO = """func.func @main(%a: tensor<9x130xf32>) -> (tensor<9x130xbf16>, tensor<9x130xi4>) {
  %0 = stablehlo.convert %a : (tensor<9x130xf32>) -> tensor<9x130xbf16>
  %1 = stablehlo.convert %a : (tensor<9x130xf32>) -> tensor<9x130xi4>
  return %0, %1 : tensor<9x130xbf16>, tensor<9x130xi4>
}"""
DONATE = doubling("9x130xf32", DONATED)


def check_results(client):
    values = values_of("int4", (9, 130)).astype(np.float32)
    executable = client.compile(TWO)
    told = [str(each) for each in layouts.output_layouts(executable)]
    assert told == ["{1,0:T(8,128)(2,1)}", "{1,0:T(8,128)(8,1)E(4)}"]
    for _ in range(3):
        results = executable(client.buffer_from_host(values))
        for result, text in zip(results, told, strict=True):
            expected = values.astype(result.dtype)
            assert result.layout == (1, 0)
            assert str(layouts.buffer_layout(result)) == text
            tiles, there = lying(expected, (1, 0), text.partition(":")[2].rstrip("}"))
            assert np.array_equal(raw(result) & there, tiles & there)
            assert same(result.to_numpy(), expected)
    return executable


@pytest.mark.parametrize("env", [ON, HELD, VALIDATED])
def test_results_lie_in_tiles(child, env):
    child(check_results, **env)


@in_child(**ON)
def test_programs_that_are_saved_and_loaded(client):
    executable = check_results(client)
    again = client.load(executable.serialize())
    values = values_of("int4", (9, 130)).astype(np.float32)
    first, second = again(client.buffer_from_host(values))
    assert same(first.to_numpy(), values.astype(ml_dtypes.bfloat16))
    assert same(second.to_numpy(), values.astype(ml_dtypes.int4))
    assert layouts.output_layouts(again) == layouts.output_layouts(executable)


@in_child(**ON)
def test_donation(client):
    donate, values = client.compile(DONATE), values_of("float32", (9, 130))
    for turn in range(3):
        buffer = client.buffer_from_host(values + turn)
        result = donate(buffer)
        assert buffer.is_deleted
        assert np.array_equal(result.to_numpy(), 2 * (values + turn))
        assert result.on_device_nbytes == 16384


@in_child(**ON)
def test_a_program_of_columns(client):
    values = values_of("float32", (9, 130))
    options = CompileOptions(argument_layouts=[Slot.of("f32", (9, 130), (0, 1))])
    executable = client.compile(doubling("9x130xf32"), options)
    for given in (client.buffer_from_host(values, layout=(0, 1)), values):
        assert np.array_equal(executable(given).to_numpy(), 2 * values)


@in_child(**ON)
def test_copies_between_devices_and_memories():
    with pjrt_hub.load("cpu").client({"cpu_device_count": 2}) as client:
        first, second = client.devices
        values = values_of("int4", (9, 130))
        tiles, there = lying(values, (1, 0), "T(8,128)(8,1)E(4)")
        buffer = client.buffer_from_host(values, device=first)
        host = next(each for each in first.memories if each.kind == "pinned_host")
        copies = [buffer.copy_to_device(second), buffer.copy_to_memory(host)]
        copies.append(copies[-1].copy_to_device(second))
        for copy in copies:
            assert np.array_equal(raw(copy) & there, tiles & there)
            assert (copy.on_device_nbytes, copy.layout) == (2048, (1, 0))
            assert same(copy.to_numpy(), values)


def send_tiles(client):
    for name, text, nbytes in (("float32", "T(8,128)", 16384), ("int4", "T(8,128)(8,1)E(4)", 2048)):
        values = values_of(name, (9, 130))
        tiles, _ = lying(values, (1, 0), text)
        with pjrt_hub.Transfer(client, [((9, 130), values.dtype)]) as transfer:
            assert transfer.buffer_size(0) == nbytes
            buffer = transfer.retrieve_buffer(0)
            transfer.transfer_data(0, tiles[1000:], offset=1000)
            transfer.transfer_data(0, tiles[:1000], is_last=True)
            assert same(buffer.to_numpy(), values)


@pytest.mark.parametrize("env", [ON, HELD, VALIDATED])
def test_a_transfer_takes_bytes_as_they_lie_in_tiles(child, env):
    child(send_tiles, **env)


@in_child(**ON)
def test_a_transfer_refuses_rows_for_tiles(client):
    """Equal sizes are refused too, because the elements would end up in wrong places."""
    values = values_of("float32", (8, 256))
    tiles, _ = lying(values, (1, 0), "T(8,128)")
    for is_retrieved in (True, False):
        with pjrt_hub.Transfer(client, [values] * 2) as transfer:
            assert transfer.buffer_size(0) == values.nbytes
            buffers = [transfer.retrieve_buffer(each) for each in range(2) if is_retrieved]
            for array in (values, values.reshape(-1), values.view(np.uint8), memoryview(values)):
                with pytest.raises(
                    ValueError, match=r"buffer 0 is f32\[8,256\] in tiles"
                ) as caught:
                    transfer.transfer_data(0, array, is_last=True)
            assert "transfer_literal() or client.buffer_from_host()" in str(caught.value)
            transfer.transfer_data(0, tiles, is_last=True)
            transfer.transfer_data(1, tiles.tobytes(), is_last=True)
            buffers = buffers or [transfer.retrieve_buffer(each) for each in range(2)]
            assert all(same(buffer.to_numpy(), values) for buffer in buffers)


@in_child(**ON)
def test_a_transfer_takes_a_vector_whose_tile_only_fills_it_up(client):
    values = values_of("float32", (1024,))
    with pjrt_hub.Transfer(client, [values, ((1024,), "bf16")]) as transfer:
        transfer.transfer_data(0, values[512:], offset=2048)
        transfer.transfer_data(0, values[:512], is_last=True)
        assert same(transfer.retrieve_buffer(0).to_numpy(), values)
        with pytest.raises(ValueError, match=r"buffer 1 is bf16\[1024\] in tiles"):
            transfer.transfer_data(1, values.astype(ml_dtypes.bfloat16), is_last=True)


@in_child(PJRT_HUB_LAYERS="discrete", PJRT_HUB_DISCRETE="tiled,platform=cuda")
def test_tiles_are_lent_to_nobody_and_copied_to_the_host(client):
    values = values_of("float32", (9, 130))
    buffer = client.buffer_from_host(values)
    for wish in ({}, {"copy": True}, {"copy": False}):
        with pytest.raises(BufferError, match="tiles"):
            buffer.__dlpack__(**wish)
    with pytest.raises(BufferError, match="only a copy on the host would do"):
        buffer.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="tiles"):
        _ = buffer.__cuda_array_interface__
    with pytest.raises(BufferError):
        memoryview(buffer)
    [result] = [client.compile(DONATE)(buffer)]
    with pytest.raises(BufferError, match="tiles"):
        result.__dlpack__()
    assert np.array_equal(np.asarray(result), 2 * values)
    assert math.isfinite(float(result[0, 0]))


@in_child(**ON)
def test_what_would_show_the_plugins_own_bytes_is_refused(client):
    buffer = client.buffer_from_host(values_of("float32", (9, 130)))
    with (
        pjrt_hub.ExternalReference(buffer) as reference,
        pytest.raises(UnimplementedError, match="tiles"),
    ):
        client.create_view_of_device_buffer(reference.pointer, (9, 130), np.float32)


@in_child(**ON)
def test_arrays_that_the_host_does_not_give(client):
    values = values_of("bfloat16", (9, 130))
    for order, nbytes in (((1, 0), 8192), ((0, 1), 34816)):
        empty = client.create_uninitialized_buffer((9, 130), "bfloat16", layout=order)
        assert (empty.layout, empty.on_device_nbytes) == (order, nbytes)
        alias = pjrt_hub.Alias(client, (9, 130), "bfloat16", layout=order)
        alias.fulfill(client.buffer_from_host(values, layout=order))
        assert (alias.buffer.layout, alias.buffer.on_device_nbytes) == (order, nbytes)
        assert same(alias.buffer.to_numpy(), values)


@in_child(**ON)
def test_an_array_of_a_file(client, tmp_path):
    file, values = Path(tmp_path, "array"), np.arange(3 << 20, dtype=np.float32).reshape(-1, 256)
    file.write_bytes(values.tobytes())
    buffer = client.buffer_from_file(file, values.shape)
    assert buffer.on_device_nbytes == values.nbytes  # equal sizes: only the order differs
    assert same(buffer.to_numpy(), values)
    assert not np.array_equal(raw(buffer).view(np.float32).reshape(values.shape), values)


@in_child(**ON)
def test_a_vector_of_a_file_goes_in_parts(client, tmp_path):
    file, values = Path(tmp_path, "array"), np.arange(4096, dtype=np.float32)
    file.write_bytes(values.tobytes())
    with file.open("rb") as opened:
        for shape, parts in (((4096,), True), ((16, 256), False)):
            spec = ShapeSpec.of(shape, "float32", client.api.version)
            buffer = in_parts(client, opened.fileno(), spec, 0, part_nbytes=4096)
            assert (buffer is not None) is parts
            assert not parts or same(buffer.to_numpy(), values)


@in_child(PJRT_HUB_LAYERS="discrete", PJRT_HUB_DISCRETE="tiled,platform=cuda")
def test_the_preview_of_a_large_array_is_of_its_values(client):
    values = np.arange(2**20, dtype=np.int32).reshape(1024, 1024)
    buffer = client.buffer_from_host(values)
    buffer.ready.wait()
    shown = " ".join(repr(buffer).replace(",", "").split())
    for line in str(values).splitlines():
        assert " ".join(line.strip("[] ").split()) in shown


def wish(client, values, order, *tiles):
    """Put an array with a request for tiles, as JAX does, and return the buffer's address."""
    layout = {
        "minor_to_major": order,
        "tile_dims": [size for tile in tiles for size in tile],
        "tile_dim_sizes": [len(tile) for tile in tiles],
    }
    return client.api.call(
        "PJRT_Client_BufferFromHostBuffer",
        client=client.address,
        data=values.ctypes.data,
        type=table.ENUMS["PJRT_Buffer_Type"]["PJRT_Buffer_Type_S8"],
        dims=values.shape,
        host_buffer_semantics=0,
        device=client.devices[0].address,
        device_layout={"type": 0, "tiled": layout},
    ).buffer


@in_child(**ON)
def test_a_wish_for_tiles(client):
    values = values_of("int8", (32, 130))
    device, code = client.devices[0], table.ENUMS["PJRT_Buffer_Type"]["PJRT_Buffer_Type_S8"]
    given = wish(client, values, (1, 0), (32, 128), (4, 1))
    granted = pjrt_hub.Buffer._adopt(client, given, code, values.shape, device)
    assert same(granted.to_numpy(), values)
    tiles, there = lying(values, (1, 0), "T(32,128)(4,1)")
    assert np.array_equal(raw(granted) & there, tiles & there)
    for order, *others in (
        ((1, 0), (8, 128), (4, 1)),
        ((1, 0), (32, 128)),
        ((0, 1), (32, 128), (4, 1)),
    ):
        with pytest.raises(InvalidArgumentError, match="the device has other tiles"):
            wish(client, values, order, *others)


@in_child(**ON)
def test_dynamic_dimensions(client):
    values = values_of("float32", (4, 3))
    result = client.compile(cut("?x3"))(client.buffer_from_host(values), client.buffer_from_host(2))
    assert result.dynamic_dimensions == (0,)
    assert result.on_device_nbytes == 2048
    assert np.array_equal(result.to_numpy(), values[:2])
    with pytest.raises(UnimplementedError, match="dynamic dimensions"):
        raw(result)


@in_child(**ON)
def test_a_copy_on_another_client():
    plugin = pjrt_hub.load("cpu")
    with plugin.client() as first, plugin.client() as second:
        values = values_of("uint4", (9, 130))
        for order in ORDERS[2]:
            buffer = put(first, values, order)
            if buffer is None:
                continue
            copy = buffer.copy_to_device(second.devices[0])
            assert copy.layout == order
            assert same(copy.to_numpy(), values)
