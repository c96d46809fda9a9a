"""Every kind of host memory under all semantics is kept as long as needed and no longer."""

import gc
import mmap
import weakref

import numpy as np
import pytest
from children import IS_CPU, PLATFORM, in_child
from texts import DONATED, doubling

import pjrt_hub
from pjrt_hub import HostBufferSemantics

COPIED, UNTIL_DONE, SHARED, OVERWRITTEN = HostBufferSemantics
COUNT = 1 << 12


def aligned():
    array = pjrt_hub.empty_aligned(COUNT, "i32")
    array[:] = np.arange(COUNT)
    return array


def of_bytes():
    return np.frombuffer(np.arange(COUNT, dtype="i4").tobytes(), "i4")


def read_only():
    array = aligned()
    array.flags.writeable = False
    return array


def mapped():
    pages = mmap.mmap(-1, 4 * COUNT)
    array = np.frombuffer(pages, "i4")
    array[:] = np.arange(COUNT)
    return array


#: Name -> a function that makes an array. Zero copy shares aligned row-major native arrays only.
ARRAYS = {
    "aligned": aligned,
    "read-only": read_only,
    "pages": mapped,
    "bytes": of_bytes,
    "unaligned": lambda: np.frombuffer(bytearray(1 + 4 * COUNT), "i4", COUNT, 1),
    "matrix": lambda: aligned().reshape(64, -1),
    "transposed": lambda: aligned().reshape(64, -1).T,
    "backwards": lambda: aligned()[::-1],
    "backwards in two": lambda: aligned().reshape(64, -1)[::-1, ::-1],
    "every third": lambda: aligned()[1::3],
    "far apart": lambda: np.arange(8 << 14, dtype="i4")[:: 1 << 14],
    "one for all": lambda: np.broadcast_to(np.int32(7), (3, 5)),
    "a row for all": lambda: np.broadcast_to(aligned()[:8], (4, 8)),
    "the other byte order": lambda: aligned().astype(">i4"),
    "no elements": lambda: np.zeros((0, 5), "i4"),
    "no elements, far apart": lambda: np.zeros((4, 1 << 14), "i4")[::2, :0],
    "a scalar": lambda: np.array(5, "i4"),
    "one element": lambda: np.full((1, 1, 1), 5, "i4"),
    "a field": lambda: np.full(9, 3, [("a", "i4"), ("b", "f8")])["a"],
}
READ_ONLY = {"read-only", "bytes", "one for all", "a row for all"}
SHAREABLE = {"aligned", "read-only", "pages", "matrix"}


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("semantics", HostBufferSemantics)
@pytest.mark.parametrize("name", ARRAYS)
def test_the_value_is_the_arrays_as_it_was(client, name, semantics):
    source = ARRAYS[name]()
    expected = np.array(source, "i4", order="C")
    if semantics == OVERWRITTEN and name in READ_ONLY:
        with pytest.raises(ValueError, match="the array is read-only"):
            client.buffer_from_host(source, semantics=semantics)
        return
    buffer = client.buffer_from_host(source, semantics=semantics)
    assert (buffer.shape, buffer.dtype) == (source.shape, np.int32)
    if semantics == UNTIL_DONE:
        buffer.ready.wait(10)
    shared = buffer.size and buffer.unsafe_pointer() == address(source)
    fits = address(source) % 64 == 0  # some arrays are aligned by luck
    may_share = IS_CPU and fits and semantics in (SHARED, OVERWRITTEN)
    assert bool(shared) is (name in SHAREABLE and may_share) or (shared and may_share)
    if not shared and source.flags.writeable and semantics in (COPIED, UNTIL_DONE):
        source[...] = -1
    assert np.array_equal(buffer.to_numpy(), expected)
    del source
    litter = [np.full(COUNT, -2, "i4") for _ in range(8)]
    assert np.array_equal(buffer.to_numpy(), expected)
    del litter


def mapped_file(path):
    aligned().tofile(path)
    return np.memmap(path, "i4", mode="r")


def of_buffer(path):
    with pjrt_hub.client(PLATFORM) as client:
        return client.buffer_from_host(aligned()).to_numpy()


@pytest.mark.parametrize("layout", [None, (0,)])
@pytest.mark.parametrize("make", [mapped_file, of_buffer, lambda _: read_only()])
def test_what_is_read_only_is_never_given_to_be_overwritten(client, tmp_path, make, layout):
    source = make(tmp_path / "numbers")
    for given in (source, source.view("u4"), memoryview(source)):
        with pytest.raises(ValueError, match="hint: give IMMUTABLE_ZERO_COPY"):
            client.buffer_from_host(given, semantics=OVERWRITTEN, layout=layout)
    assert source.tolist() == list(range(COUNT))


@pytest.mark.cpu("shares memory with the host")
@pytest.mark.parametrize(
    "way",
    [
        *("copied", "until", "shared", "view", "file"),
        pytest.param("dlpack", marks=pytest.mark.numpy("2.1")),
    ],
)
def test_what_is_read_only_stays_when_its_buffer_is_donated(client, tmp_path, way):
    source = mapped_file(tmp_path / "numbers") if way == "file" else read_only()
    buffer = {
        "copied": lambda: client.buffer_from_host(source, semantics=COPIED),
        "until": lambda: client.buffer_from_host(source, semantics=UNTIL_DONE),
        "shared": lambda: client.buffer_from_host(source, semantics=SHARED),
        "dlpack": lambda: client.from_dlpack(source),
        "view": lambda: client.create_view_of_device_buffer(source, (COUNT,), "i32"),
        "file": lambda: client.buffer_from_file(tmp_path / "numbers", (COUNT,), "i32"),
    }[way]()
    assert client.compile(doubling("4096xi32", DONATED))(buffer).tolist() == list(
        range(0, 2 * COUNT, 2)
    )
    assert source.tolist() == list(range(COUNT))


@pytest.mark.parametrize("semantics", HostBufferSemantics)
def test_a_large_array_may_go_at_once(client, semantics):
    source = pjrt_hub.empty_aligned(1 << 22, "i32")
    source[:] = 3
    buffers = [client.buffer_from_host(source[i << 20 :], semantics=semantics) for i in range(4)]
    del source
    gc.collect()
    litter = pjrt_hub.empty_aligned(1 << 22, "i32")
    litter[:] = 4
    assert all(np.all(buffer.to_numpy() == 3) for buffer in buffers)


@pytest.mark.cpu("asked without the functions")
@pytest.mark.parametrize("layout", [None, (0,)])
@in_child(PJRT_HUB_LAYERS="without", PJRT_HUB_WITHOUT="PJRT_Event_OnReady,PJRT_Event_IsReady")
def test_an_array_is_released_by_a_plugin_without_callbacks(client, layout):
    source = aligned()
    gone = weakref.ref(source)
    (buffer := client.buffer_from_host(source, semantics=UNTIL_DONE, layout=layout)).ready.wait()
    del source
    assert (gone(), buffer.is_deleted) == (None, False)


@pytest.mark.cpu("shares memory with the host")
@pytest.mark.parametrize("semantics", HostBufferSemantics)
def test_an_array_is_kept_as_long_as_it_is_read(client, semantics, wait_until):
    source = aligned()
    gone = weakref.ref(source)
    buffer = client.buffer_from_host(source, semantics=semantics)
    buffer.ready.wait(10)
    del source
    gc.collect()
    if semantics in (COPIED, UNTIL_DONE):
        wait_until(lambda: gone() is None)
        assert buffer.to_numpy()[-1] == COUNT - 1
        return
    assert gone() is not None
    array = buffer.to_numpy()
    buffer.delete()
    gc.collect()
    assert array[-1] == COUNT - 1
    assert gone() is not None  # the array of to_numpy is a view of it
    del array, buffer
    wait_until(lambda: gone() is None)


def test_records_are_refused(client):
    for records in (np.zeros(3, [("a", "i4")]), np.zeros(3, "i4,f4"), np.rec.array([(1, 2.0)])):
        for semantics in HostBufferSemantics:
            with pytest.raises(TypeError, match="no element type"):
                client.buffer_from_host(records, semantics=semantics)
