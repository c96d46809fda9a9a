"""pjrt_hub.frameworks.safetensors: what a valid file gives, and what each kind of junk is told."""

import json
import os
import pickle
import struct
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pjrt_hub.errors import FileFormatError, PjrtHubError
from pjrt_hub.frameworks import safetensors

DTYPES = {
    "BOOL": np.bool_,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
    "U8": np.uint8,
    "U16": np.uint16,
    "U32": np.uint32,
    "U64": np.uint64,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
    "C64": np.complex64,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}
#: Those whose elements share bytes, and their bits.
PACKED = {
    "F4": (ml_dtypes.float4_e2m1fn, 4),
    "F6_E2M3": (ml_dtypes.float6_e2m3fn, 6),
    "F6_E3M2": (ml_dtypes.float6_e3m2fn, 6),
}
ALL = DTYPES | {code: dtype for code, (dtype, _) in PACKED.items()}


def encoded(header, data=b""):
    """A file's bytes: `header` is text, or an object to write as JSON."""
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack("<Q", len(text.encode())) + text.encode() + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.safetensors"


@pytest.mark.parametrize(("code", "dtype"), DTYPES.items())
def test_values_and_dtype(path, code, dtype):
    values = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    path.write_bytes(encoded({"t": entry(code, [2, 3], 0, values.nbytes)}, values.tobytes()))
    array = safetensors.open_file(path)["t"]
    assert array.dtype == dtype
    assert array.tobytes() == values.tobytes()
    assert array.shape == (2, 3)


def test_the_values_of_short_floats_are_the_formats(path):
    data = b"\x80\x3f\x40\xc0" + b"\x38\x7e" + b"\x3c\x7b"
    header = {
        "bf16": entry("BF16", [2], 0, 4),
        "e4m3": entry("F8_E4M3", [2], 4, 6),
        "e5m2": entry("F8_E5M2", [2], 6, 8),
    }
    path.write_bytes(encoded(header, data))
    arrays = safetensors.open_file(path)
    assert arrays["bf16"].astype(float).tolist() == [1.0, -3.0]
    assert arrays["e4m3"].astype(float).tolist() == [1.0, 448.0]
    assert arrays["e5m2"].astype(float).tolist() == [1.0, 57344.0]


def test_arrays_are_read_only_views_of_the_file(path):
    path.write_bytes(encoded({"t": entry("F32", [1024], 0, 4096)}, bytes(4096)))
    array = safetensors.open_file(path)["t"]
    assert not array.flags.owndata
    assert not array.flags.writeable
    with path.open("r+b") as file:
        file.seek(-4, 2)
        file.write(struct.pack("<f", 2.5))
    assert array[-1] == 2.5


def test_scalars_empty_tensors_metadata_and_unaligned_data(path):
    header = {
        "__metadata__": {"format": "np"},
        "empty": entry("F32", [0, 3], 9, 9),
        "byte": entry("U8", [1], 0, 1),
        "scalar": entry("F64", [], 1, 9),
    }
    path.write_bytes(encoded(header, b"\x07" + struct.pack("<d", -1.5)))
    arrays = safetensors.open_file(path)
    assert list(arrays) == ["empty", "byte", "scalar"]
    assert arrays["empty"].shape == (0, 3)
    assert arrays["scalar"].shape == ()
    assert arrays["scalar"] == -1.5


def test_a_file_without_tensors(path):
    path.write_bytes(encoded("{}   "))
    assert safetensors.open_file(path) == {}


def test_a_missing_file_is_an_oserror(path):
    with pytest.raises(FileNotFoundError):
        safetensors.open_file(path)


F32X2 = entry("F32", [2], 0, 8)

JUNK = {
    "empty file": (b"", "empty file"),
    "shorter than a length": (b"\x02\0\0", "does not fit its 3 bytes"),
    "header past the end": (struct.pack("<Q", 100) + b"{}", "a header of 100 bytes"),
    "huge header": (struct.pack("<Q", 2**63) + b"{}", f"a header of {2**63} bytes"),
    "not JSON": (encoded("{'a'"), "Expecting property name"),
    "not UTF-8": (struct.pack("<Q", 2) + b"\xff\xfe", "codec can't decode"),
    "a pickle": (pickle.dumps({"a": [1.5] * 64}), "does not fit"),
    "deep nesting": (encoded("[" * 200_000), "recursion|Stack overflow"),
    "a JSON list": (encoded("[]"), "not a JSON object"),
    "a name twice": (encoded('{"t": {}, "t": {}}'), "names 't' twice"),
    "not an entry": (encoded({"t": 5}), "'t' needs a dtype"),
    "no shape": (encoded({"t": {"dtype": "F32", "data_offsets": [0, 8]}}), "'t' needs a dtype"),
    "one offset": (encoded({"t": F32X2 | {"data_offsets": [0]}}), "two data_offsets"),
    "a fraction": (encoded({"t": F32X2 | {"shape": [2.0]}}, bytes(8)), "'t' has a size"),
    "a truth value": (encoded({"t": F32X2 | {"shape": [True]}}, bytes(4)), "'t' has a size"),
    "a negative size": (encoded({"t": entry("F32", [-1, -2], 0, 8)}, bytes(8)), "'t' has a size"),
    "an overflow": (encoded({"t": entry("F32", [0, 2**70], 0, 0)}), "'t' has the impossible"),
    "a huge tensor": (encoded({"t": entry("I8", [2**62], 0, 2**62)}), "'t' has the impossible"),
    "too many dimensions": (encoded({"t": entry("I8", [1] * 65, 0, 1)}, b"a"), "impossible"),
    "unknown dtype": (encoded({"t": entry("F31", [2], 0, 8)}, bytes(8)), "'t' has the dtype 'F31'"),
    "part of a byte": (encoded({"t": entry("F4", [3], 0, 2)}, bytes(2)), "'t' is .* within a byte"),
    "packed and wrong": (encoded({"t": entry("F6_E2M3", [4], 0, 4)}, bytes(4)), "'t' is .* in 4 b"),
    "wrong length": (encoded({"t": entry("F32", [3], 0, 8)}, bytes(8)), r"'t' is F32\[3\] in 8"),
    "backwards": (encoded({"t": entry("F32", [2], 8, 0)}, bytes(8)), "'t' is F32"),
    "truncated data": (encoded({"t": F32X2}, bytes(5)), "'t' ends 3 bytes past the end"),
    "data left over": (encoded({"t": F32X2}, bytes(9)), "1 bytes follow the last tensor"),
    "a hole": (
        encoded({"t": F32X2, "u": entry("F32", [1], 12, 16)}, bytes(16)),
        "'u' begins at byte 12 of the data, not 8",
    ),
    "an overlap": (
        encoded({"t": F32X2, "u": entry("F32", [2], 4, 12)}, bytes(12)),
        "'u' begins at byte 4 of the data, not 8",
    ),
}


def test_a_header_that_is_larger_than_the_format_allows(path):
    """Though the file has that many bytes; it is not read."""
    path.write_bytes(struct.pack("<Q", 100_000_001) + b"{}")
    os.truncate(path, 200_000_000)
    with pytest.raises(FileFormatError, match="a header of 100000001 bytes"):
        safetensors.open_file(path)


@pytest.mark.parametrize(("content", "reason"), JUNK.values(), ids=JUNK)
def test_junk_is_told_what_it_is(path, content, reason):
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=reason) as caught:
        safetensors.open_file(path)
    assert str(path) in caught.value.message
    assert caught.value.path == str(path)
    assert caught.value.hint


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
    length=st.integers(0, 400),
)
def test_damaged_files_are_refused_or_stay_inside_the_file(path, edits, length):
    header = {"a": entry("F32", [4, 4], 0, 64), "b": entry("I8", [3], 64, 67)}
    content = bytearray(encoded(header, bytes(67))[:length])
    for position, value in edits:
        if content:
            content[position % len(content)] = value
    path.write_bytes(content)
    try:
        arrays = safetensors.open_file(path)
    except PjrtHubError:
        return
    spans = sorted((a.ctypes.data, a.nbytes) for a in arrays.values())
    assert sum(a.nbytes for a in arrays.values()) <= len(content)
    assert all(first + nbytes <= second for (first, nbytes), (second, _) in pairwise(spans))


class Client:
    """Records what it is asked to move."""

    def __init__(self):
        self.calls = []

    def buffer_from_host(self, array, *, device, semantics):
        self.calls.append((array, device, semantics.name))
        return f"buffer {len(self.calls)}"


@pytest.fixture
def three(path):
    values = np.arange(6, dtype=np.float32)
    header = {n: entry("F32", [2], 8 * i, 8 * i + 8) for i, n in enumerate(["q", "k", "v"])}
    path.write_bytes(encoded(header, values.tobytes()))
    return path


def test_load_moves_the_mapped_bytes_without_a_copy(three):
    client = Client()
    assert safetensors.load_file(three, client) == {
        "q": "buffer 1",
        "k": "buffer 2",
        "v": "buffer 3",
    }
    assert [array.tolist() for array, _, _ in client.calls] == [[0, 1], [2, 3], [4, 5]]
    assert all(not array.flags.owndata for array, _, _ in client.calls)
    assert {semantics for _, _, semantics in client.calls} == {"IMMUTABLE_ZERO_COPY"}


def test_load_follows_the_names_and_the_device(three):
    client = Client()
    assert list(safetensors.load_file(three, client, names=("v", "q"), device="cpu:1")) == [
        "v",
        "q",
    ]
    assert [(array.tolist(), device) for array, device, _ in client.calls] == [
        ([4, 5], "cpu:1"),
        ([0, 1], "cpu:1"),
    ]


def test_a_function_says_the_device_of_each_name(three):
    client = Client()
    safetensors.load_file(three, client, device={"q": "cpu:0", "k": "cpu:1", "v": "cpu:7"}.get)
    assert [device for _, device, _ in client.calls] == ["cpu:0", "cpu:1", "cpu:7"]


def test_load_moves_nothing_when_a_name_is_missing(three):
    client = Client()
    with pytest.raises(FileFormatError, match="3 tensors, none of them named 'vv'") as caught:
        safetensors.load_file(three, client, names=["q", "vv"])
    assert "'v'" in caught.value.hint
    assert client.calls == []


@pytest.mark.parametrize(("code", "dtype"), DTYPES.items())
def test_what_is_saved_is_read_back(path, code, dtype):
    values = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    assert safetensors.save_file({"t": values}, path) == path
    array = safetensors.open_file(path)["t"]
    assert (array.dtype, array.shape) == (dtype, (2, 3))
    assert array.tobytes() == values.tobytes()
    header = path.read_bytes()[8:]
    assert json.loads(header[: header.index(b"}}") + 2])["t"]["dtype"] == code


def tensors():
    rng = np.random.default_rng(0)
    return {
        "f32": rng.standard_normal((3, 5)).astype(np.float32),
        "ä": np.arange(7, dtype=np.int8),
        "scalar": np.float64(2.5),
        "empty": np.zeros((0, 3), np.float16),
        "strided": np.arange(24, dtype=np.int32).reshape(4, 6)[::2, ::-3].T,
        "big": np.arange(3, dtype=">i4"),
        "bf16": np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3),
    }


def same(read, saved):
    assert set(read) == set(saved)
    for name, array in read.items():
        assert array.dtype == saved[name].dtype.newbyteorder("=")
        assert array.tolist() == saved[name].tolist()


def test_every_tensor_is_aligned_to_its_elements(path):
    safetensors.save_file(tensors(), path, metadata={"made by": "a test"})
    arrays = safetensors.open_file(path)
    same(arrays, tensors())
    assert all(a.ctypes.data % a.dtype.itemsize == 0 for a in arrays.values())
    first = min(a.ctypes.data for a in arrays.values() if a.size)
    assert first % 64 == 0


def bits_of(code, dtype, shape=(4, 8)):
    """Every bit pattern of a dtype in turn, as an array."""
    bits = PACKED[code][1] if code in PACKED else 8
    top = 2 if code == "BOOL" else 2**bits
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return (np.arange(count) * 5 % top).astype(np.uint8).view(dtype).reshape(shape)


@pytest.mark.parametrize(("code", "dtype"), ALL.items())
def test_every_dtype_of_the_format_comes_back_bit_for_bit(path, code, dtype):
    values = bits_of(code, dtype)
    safetensors.save_file({"t": values, "scalars": values[0]}, path)
    arrays = safetensors.open_file(path)
    assert (arrays["t"].dtype, arrays["t"].shape) == (dtype, (4, 8))
    assert arrays["t"].tobytes() == values.tobytes()
    assert arrays["scalars"].tobytes() == values[0].tobytes()
    assert not arrays["t"].flags.writeable


@pytest.mark.parametrize(("code", "dtype"), ALL.items())
def test_the_library_of_the_format_agrees_on_every_dtype(path, code, dtype):
    """Its own reader on our file, and its own file, of the same bytes, for us."""
    import safetensors as library

    values = bits_of(code, dtype)
    safetensors.save_file({"t": values}, path)
    [(name, found)] = library.deserialize(path.read_bytes())
    assert (name, found["dtype"], list(found["shape"])) == ("t", code, [4, 8])
    data = np.frombuffer(bytes(found["data"]), np.uint8)
    if code not in PACKED:
        assert data.tobytes() == values.tobytes()
    path.write_bytes(encoded({"t": entry(code, [4, 8], 0, data.size)}, data.tobytes()))
    assert safetensors.open_file(path)["t"].tobytes() == values.tobytes()


#: What the library's writer calls the dtypes that it can write; it has no 6-bit ones.
THEIRS = {
    code: {"F4": "float4_e2m1fn_x2"}.get(code, np.dtype(dtype).name)
    for code, dtype in ALL.items()
    if not code.startswith("F6")
}


@pytest.mark.parametrize(("code", "theirs"), THEIRS.items())
def test_we_read_every_dtype_that_the_library_writes(path, code, theirs):
    import safetensors as library

    values = bits_of(code, ALL[code])
    data = values.tobytes()
    shape = [4, 8]
    if code == "F4":  # two elements each, as torch has them
        low = values.view(np.uint8).reshape(-1, 2)
        data, shape = (low[:, 0] | low[:, 1] << 4).tobytes(), [4, 4]
    held = np.frombuffer(data, np.uint8)
    spec = library.TensorSpec(
        dtype=theirs, shape=shape, data_ptr=held.ctypes.data, data_len=held.nbytes
    )
    library.serialize_file({"t": spec}, str(path))
    array = safetensors.open_file(path)["t"]
    assert (array.dtype, array.shape) == (ALL[code], (4, 8))
    assert array.tobytes() == values.tobytes()


def test_elements_that_share_bytes_lie_as_in_torch(path):
    """The first in the low bits, and the next tensor on the next byte."""
    values = np.array([[0.5, -6], [1, 2]]).astype(ml_dtypes.float4_e2m1fn)
    header = {"t": entry("F4", [2, 2], 0, 2), "u": entry("U8", [1], 2, 3)}
    path.write_bytes(encoded(header, bytes([0xF1, 0x42, 9])))
    arrays = safetensors.open_file(path)
    assert arrays["t"].astype(float).tolist() == values.astype(float).tolist()
    assert arrays["u"].tolist() == [9]
    safetensors.save_file({"t": values.T}, path)
    assert path.read_bytes()[-2:] == bytes([0x21, 0x4F])


@pytest.mark.parametrize(("count", "code"), [(3, "F4"), (3, "F6_E2M3"), (1, "F6_E3M2")])
def test_elements_that_do_not_fill_their_last_byte(path, count, code):
    with pytest.raises(ValueError, match=f"the {count} elements of tensor 't' end within a byte"):
        safetensors.save_file({"t": np.zeros(count, ALL[code])}, path)
    assert not path.exists()


def test_the_library_of_the_format_refuses_what_we_refuse():
    import safetensors as library

    def takes(content):
        try:
            library.deserialize(content)
        except library.SafetensorError:
            return False
        return True

    assert [name for name, (content, _) in JUNK.items() if takes(content)] == [
        "too many dimensions",  # for numpy
    ]


def test_the_library_of_the_format_reads_it(path):
    from safetensors.numpy import load_file

    numbers = {n: a for n, a in tensors().items() if a.dtype.kind in "fi"}
    safetensors.save_file(numbers, path, metadata={"a": "b"})
    same(load_file(path), numbers)


def test_we_read_what_the_library_of_the_format_writes(path):
    from safetensors.numpy import save_file

    numbers = {n: np.ascontiguousarray(a) for n, a in tensors().items() if a.dtype.kind in "fi"}
    numbers = {n: a.astype(a.dtype.newbyteorder("=")) for n, a in numbers.items()}
    save_file(numbers, path)
    same(safetensors.open_file(path), numbers)


def test_shards_with_an_index(tmp_path):
    index = safetensors.save_file(tensors(), tmp_path / "m.safetensors", max_shard_nbytes=64)
    assert index == tmp_path / "m.safetensors.index.json"
    content = json.loads(index.read_text())
    assert content["metadata"]["total_size"] == sum(a.nbytes for a in tensors().values())
    files = sorted(set(content["weight_map"].values()))
    count = len(files)
    assert count == 2
    assert files == [f"m-{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)]
    same(safetensors.open_file(index), tensors())
    for file in files:
        arrays = safetensors.open_file(tmp_path / file)
        assert sum(a.nbytes for a in arrays.values()) <= 64 or len(arrays) == 1


def test_load_opens_only_the_files_that_it_needs(tmp_path):
    values = {f"t{n}": np.full(4, n, np.float32) for n in range(3)}
    index = safetensors.save_file(values, tmp_path / "m.safetensors", max_shard_nbytes=16)
    (tmp_path / "m-00001-of-00003.safetensors").unlink()
    client = Client()
    assert list(safetensors.load_file(index, client, names=["t2", "t1"])) == ["t2", "t1"]
    assert [array.tolist() for array, _, _ in client.calls] == [[2.0] * 4, [1.0] * 4]
    with pytest.raises(FileNotFoundError):
        safetensors.load_file(index, client)
    with pytest.raises(FileFormatError, match="none of them named 't3'"):
        safetensors.load_file(index, client, names=["t3"])


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {"t": 5}}',
        '{"weight_map": {"t": "../x.safetensors"}}',
        '{"weight_map": {"t": "/x.safetensors"}}',
        '{"weight_map": {"t": ""}}',
        '{"weight_map": {"t": "m.safetensors.index.json"}}',
        '{"weight_map": {"t": ["x"]}}',
    ],
)
def test_an_index_of_junk(tmp_path, content):
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(content)
    with pytest.raises(FileFormatError, match="not the index"):
        safetensors.open_file(index)


def test_an_index_that_is_too_large_is_not_read(tmp_path):
    index = tmp_path / "m.safetensors.index.json"
    index.touch()
    os.truncate(index, 1 << 42)  # a sparse file, which nothing could hold
    with pytest.raises(OSError, match="larger than 67,108,864 bytes"):
        safetensors.open_file(index)


def test_an_index_that_names_the_wrong_file(tmp_path):
    safetensors.save_file({"a": np.zeros(2)}, tmp_path / "x.safetensors")
    index = tmp_path / "m.safetensors.index.json"
    index.write_text('{"weight_map": {"b": "x.safetensors"}}')
    with pytest.raises(FileFormatError, match="none of them named 'b'"):
        safetensors.open_file(index)


@pytest.mark.parametrize(
    ("saved", "extra", "reason"),
    [
        ({"t": np.zeros(2, np.complex128)}, {}, "'t' has the dtype complex128"),
        ({"t": np.zeros(2, ml_dtypes.int4)}, {}, "'t' has the dtype int4"),
        ({"t": np.array(["a"])}, {}, "'t' has the dtype <U1"),
        ({5: np.zeros(2)}, {}, "named 5"),
        ({"__metadata__": np.zeros(2)}, {}, "named '__metadata__'"),
        ({}, {"metadata": {"a": 5}}, "not text by name"),
    ],
)
def test_what_the_format_has_no_place_for(path, saved, extra, reason):
    with pytest.raises(TypeError, match=reason):
        safetensors.save_file(saved, path, **extra)
    assert not path.exists()


def test_a_failed_save_leaves_the_old_file(path, monkeypatch):
    safetensors.save_file({"t": np.ones(2)}, path)
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        safetensors.save_file({"t": np.zeros(2)}, path)
    assert safetensors.open_file(path)["t"].tolist() == [1, 1]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_threads_that_save_to_one_path_publish_whole_files(path):
    kinds = [{"t": np.full(4096, number, "i4")} for number in range(2)]

    def save(kind):
        for _ in range(40):
            safetensors.save_file(kind, path)
            found = set(safetensors.open_file(path)["t"].tolist())
            assert found in ({0}, {1}), found

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(save, kinds))
    assert [each.name for each in path.parent.iterdir()] == [path.name]
