"""Files put on devices: right values from any offset, also in parts, or an error."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from texts import DONATED, doubling

from pjrt_hub.errors import FileFormatError
from pjrt_hub.frameworks import safetensors
from pjrt_hub.running.array.shape_spec import ShapeSpec
from pjrt_hub.running.buffer import upload

COUNT = (1 << 20) + 5


@pytest.fixture
def numbers(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(b"head" + np.arange(COUNT, dtype=np.float32).tobytes() + b"tail")
    return path


@pytest.mark.parametrize("count", [COUNT, 7, 1, 0])
def test_the_values_are_the_files(client, numbers, count):
    buffer = client.buffer_from_file(numbers, (count,), offset=4)
    assert (buffer.shape, buffer.dtype) == ((count,), np.float32)
    numbers.write_bytes(b"")  # the file may change at once
    assert np.array_equal(buffer.to_numpy(), np.arange(count))


def test_a_system_without_huge_pages(client, numbers, monkeypatch):
    none = SimpleNamespace(Staging=SimpleNamespace(of=lambda nbytes: None))
    monkeypatch.setattr(upload, "hotpath", none)
    buffer = client.buffer_from_file(numbers, (COUNT,), offset=4)
    assert np.array_equal(buffer.to_numpy(), np.arange(COUNT))


@pytest.mark.parametrize("dtype", ["bf16", "f8E5M2", "complex<f64>", "bool", "int8"])
def test_other_elements(client, tmp_path, dtype):
    path = tmp_path / "bytes"
    path.write_bytes(bytes([0, 1]) * 64)
    buffer = client.buffer_from_file(path, (2, 2), dtype, offset=16)
    assert buffer.to_numpy().tobytes() == path.read_bytes()[16 : 16 + buffer.nbytes]


def test_where_it_is_put(pair, numbers):
    buffer = pair.buffer_from_file(numbers, 8, device=pair.devices[1], offset=4)
    assert buffer.device is pair.devices[1]
    assert buffer.tolist() == list(range(8))
    memory = pair.devices[1].default_memory
    assert pair.buffer_from_file(numbers, 8, memory=memory, offset=4).memory is memory


def test_a_short_file(client, numbers):
    with pytest.raises(FileFormatError, match=r"too short for f32\[1048582\] at byte 8: 4 bytes"):
        client.buffer_from_file(numbers, (COUNT + 1,), offset=8)
    with pytest.raises(ValueError, match="the offset -4 is negative"):
        client.buffer_from_file(numbers, 4, offset=-4)
    with pytest.raises(TypeError, match="share bytes"):
        client.buffer_from_file(numbers, 4, "int4")
    with pytest.raises(FileNotFoundError):
        client.buffer_from_file(numbers.with_name("none"), 4)


@pytest.mark.parametrize("part_nbytes", [4096, 1 << 20, 1 << 24])
@pytest.mark.rows
def test_in_parts(client, numbers, part_nbytes):
    spec = ShapeSpec.of(COUNT, "f32", client.api.version)
    with numbers.open("rb") as file:
        buffer = upload.in_parts(client, file.fileno(), spec, 4, part_nbytes=part_nbytes)
    assert np.array_equal(buffer.to_numpy(), np.arange(COUNT))


@pytest.mark.rows
def test_a_file_that_ends_between_parts(own, numbers):
    spec = ShapeSpec.of(2 * COUNT, "f32", own.api.version)
    before = own._num_children
    with numbers.open("rb") as file, pytest.raises(EOFError, match="bytes are missing"):
        upload.in_parts(own, file.fileno(), spec, 4, part_nbytes=1 << 20)
    assert own._num_children == before


def test_a_pipe_is_no_file(client, tmp_path):
    import os

    path = tmp_path / "pipe"
    os.mkfifo(path)
    threading.Thread(target=lambda: path.open("wb").close(), daemon=True).start()
    with pytest.raises(OSError, match="seek"):
        client.buffer_from_file(path, 4)


@pytest.mark.cpu("shares memory with the host")
@pytest.mark.parametrize("padding", range(0, 64, 8))
def test_tensors_that_begin_anywhere(client, tmp_path, padding):
    """Headers of every length: aligned tensors are shared, and large unaligned ones are read."""
    import json

    values = np.arange(COUNT, dtype=np.float32)
    header = {"t": {"dtype": "F32", "shape": [COUNT], "data_offsets": [0, 4 * COUNT]}}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64 + padding)
    path = tmp_path / "t.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + values.tobytes())
    buffer = safetensors.load_file(path, client)["t"]
    with path.open("r+b") as file:
        file.seek(-4, 2)
        file.write(np.float32(5).tobytes())
    assert buffer.to_numpy()[-1] == (5 if padding == 0 else COUNT - 1)
    assert np.array_equal(buffer.to_numpy()[:-1], values[:-1])


def test_a_donated_file_stays(own, numbers):
    text = doubling(f"{COUNT}xf32", DONATED)
    before = numbers.read_bytes()
    given = own.buffer_from_file(numbers, (COUNT,), offset=4)
    assert np.array_equal(own.compile(text)(given).to_numpy(), 2 * np.arange(COUNT))
    assert given.is_deleted
    assert numbers.read_bytes() == before
