"""pjrt_hub.frameworks.safetensors: valid files are read, and each kind of junk has its error."""

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

#: The dtypes of the format, each followed by numpy's name.
NAMES = """BOOL bool, I8 int8, I16 int16, I32 int32, I64 int64, U8 uint8, U16 uint16, U32 uint32,
U64 uint64, F16 float16, F32 float32, F64 float64, C64 complex64, BF16 bfloat16,
F8_E4M3 float8_e4m3fn, F8_E5M2 float8_e5m2, F8_E4M3FNUZ float8_e4m3fnuz,
F8_E5M2FNUZ float8_e5m2fnuz, F8_E8M0 float8_e8m0fnu,
F4 float4_e2m1fn, F6_E2M3 float6_e2m3fn, F6_E3M2 float6_e3m2fn"""
DTYPES = {code: np.dtype(name) for code, name in map(str.split, NAMES.split(","))}
#: The bits of dtypes whose elements share bytes.
PACKED = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


def encoded(header, data=b""):
    """The bytes of a file; `header` is text, or an object that is written as JSON."""
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack("<Q", len(text.encode())) + text.encode() + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.safetensors"


@pytest.fixture
def index(tmp_path):
    """The path of an index, beside a file with one tensor."""
    safetensors.save_file({"a": np.zeros(2)}, tmp_path / "x.safetensors")
    return tmp_path / "m.safetensors.index.json"


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


def test_no_file_and_no_tensors_and_scalars_empty_and_unaligned_ones(path):
    header = {
        "__metadata__": {"format": "np"},
        "empty": entry("F32", [0, 3], 9, 9),
        "byte": entry("U8", [1], 0, 1),
        "scalar": entry("F64", [], 1, 9),
    }
    with pytest.raises(FileNotFoundError):
        safetensors.open_file(path)
    path.write_bytes(encoded("{}   "))
    assert safetensors.open_file(path) == {}
    path.write_bytes(encoded(header, b"\x07" + struct.pack("<d", -1.5)))
    arrays = safetensors.open_file(path)
    assert list(arrays) == ["empty", "byte", "scalar"]
    assert arrays["empty"].shape == (0, 3)
    assert arrays["scalar"].shape == ()
    assert arrays["scalar"] == -1.5


F32X2 = entry("F32", [2], 0, 8)


def one(tensor, nbytes=0):
    """The bytes of a file with one tensor and `nbytes` zero bytes of data."""
    return encoded({"t": tensor}, bytes(nbytes))


def after(begin, end):
    """The bytes of a file with two tensors, the second with these offsets."""
    return encoded({"t": F32X2, "u": entry("F32", [(end - begin) // 4], begin, end)}, bytes(end))


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
    "not an entry": (one(5), "'t' needs a dtype"),
    "no shape": (one({"dtype": "F32", "data_offsets": [0, 8]}), "'t' needs a dtype"),
    "one offset": (one(F32X2 | {"data_offsets": [0]}), "two data_offsets"),
    "a fraction": (one(F32X2 | {"shape": [2.0]}, 8), "'t' has a size"),
    "a truth value": (one(F32X2 | {"shape": [True]}, 4), "'t' has a size"),
    "a negative size": (one(entry("F32", [-1, -2], 0, 8), 8), "'t' has a size"),
    "an overflow": (one(entry("F32", [0, 2**70], 0, 0)), "'t' has the impossible"),
    "a huge tensor": (one(entry("I8", [2**62], 0, 2**62)), "'t' has the impossible"),
    "too many dimensions": (one(entry("I8", [1] * 65, 0, 1), 1), "impossible"),
    "unknown dtype": (one(entry("F31", [2], 0, 8), 8), "'t' has the dtype 'F31'"),
    "part of a byte": (one(entry("F4", [3], 0, 2), 2), "'t' is .* within a byte"),
    "packed and wrong": (one(entry("F6_E2M3", [4], 0, 4), 4), "'t' is .* in 4 b"),
    "wrong length": (one(entry("F32", [3], 0, 8), 8), r"'t' is F32\[3\] in 8"),
    "backwards": (one(entry("F32", [2], 8, 0), 8), "'t' is F32"),
    "truncated data": (one(F32X2, 5), "'t' ends 3 bytes past the end"),
    "data left over": (one(F32X2, 9), "1 bytes follow the last tensor"),
    "a hole": (after(12, 16), "'u' begins at byte 12 of the data, not 8"),
    "an overlap": (after(4, 12), "'u' begins at byte 4 of the data, not 8"),
}


def test_a_header_or_an_index_that_is_too_large_is_not_read(path, index):
    """The file is really that large."""
    index.touch()
    os.truncate(index, 1 << 42)  # this sparse file exceeds any memory
    with pytest.raises(OSError, match="larger than 67,108,864 bytes"):
        safetensors.open_file(index)
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


@pytest.mark.parametrize(
    ("how", "names", "devices"),
    [
        ({}, "qkv", [None, None, None]),
        ({"names": ("v", "q"), "device": "cpu:1"}, "vq", ["cpu:1", "cpu:1"]),
        ({"device": {"q": "cpu:0", "k": "c:1", "v": "c:7"}.get}, "qkv", ["cpu:0", "c:1", "c:7"]),
    ],
)
def test_load_moves_the_mapped_bytes_by_name_and_device(three, how, names, devices):
    client = Client()
    found = safetensors.load_file(three, client, **how)
    assert list(found.items()) == [(name, f"buffer {n}") for n, name in enumerate(names, 1)]
    moved, where, semantics = zip(*client.calls, strict=True)
    values = {"q": [0, 1], "k": [2, 3], "v": [4, 5]}
    assert [array.tolist() for array in moved] == [values[name] for name in names]
    assert list(where) == devices
    assert not any(array.flags.owndata for array in moved)
    assert set(semantics) == {"IMMUTABLE_ZERO_COPY"}


def test_load_moves_nothing_when_a_name_is_missing(three):
    client = Client()
    with pytest.raises(FileFormatError, match="3 tensors, none of them named 'vv'") as caught:
        safetensors.load_file(three, client, names=["q", "vv"])
    assert "'v'" in caught.value.hint
    assert client.calls == []


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


def bits_of(code):
    """A 4 x 8 array that takes a dtype's bit patterns in turn."""
    top = 2 if code == "BOOL" else 2 ** PACKED.get(code, 8)
    data = (np.arange(32 * DTYPES[code].itemsize) * 5 % top).astype(np.uint8)
    return data.view(DTYPES[code]).reshape(4, 8)


def told(array):
    return array.dtype, array.shape, array.tobytes()


@pytest.mark.parametrize("code", DTYPES)
def test_every_dtype_comes_back_bit_for_bit_and_as_the_library_of_the_format_reads_it(path, code):
    """The library reads our file, and we read a file with the same bytes made by hand."""
    import safetensors as library

    saved = {"t": bits_of(code), "row": bits_of(code)[0]}
    assert safetensors.save_file(saved, path) == path
    ours, theirs = safetensors.open_file(path), dict(library.deserialize(path.read_bytes()))
    assert not ours["t"].flags.writeable
    for name, values in saved.items():
        assert told(ours[name]) == told(values)
        assert (theirs[name]["dtype"], tuple(theirs[name]["shape"])) == (code, values.shape)
        assert code in PACKED or bytes(theirs[name]["data"]) == values.tobytes()
    data = bytes(theirs["t"]["data"])
    path.write_bytes(encoded({"t": entry(code, [4, 8], 0, len(data))}, data))
    assert told(safetensors.open_file(path)["t"]) == told(saved["t"])


@pytest.mark.parametrize("code", [code for code in DTYPES if not code.startswith("F6")])
def test_we_read_every_dtype_that_the_library_writes(path, code):
    """The library cannot write dtypes of 6 bits."""
    import safetensors as library

    values = bits_of(code)
    kind, shape, data = DTYPES[code].name, [4, 8], values.tobytes()
    if code == "F4":  # torch's dtype holds two elements
        low = values.view(np.uint8).reshape(-1, 2)
        kind, shape, data = f"{kind}_x2", [4, 4], (low[:, 0] | low[:, 1] << 4).tobytes()
    held = np.frombuffer(data, np.uint8)
    where = {"data_ptr": held.ctypes.data, "data_len": held.nbytes}
    library.serialize_file({"t": library.TensorSpec(dtype=kind, shape=shape, **where)}, str(path))
    assert told(safetensors.open_file(path)["t"]) == told(values)


def test_elements_that_share_bytes_lie_as_in_torch(path):
    """The first element is in the low bits, and the next tensor begins at the next byte."""
    values = np.array([[0.5, -6], [1, 2]]).astype(ml_dtypes.float4_e2m1fn)
    header = {"t": entry("F4", [2, 2], 0, 2), "u": entry("U8", [1], 2, 3)}
    path.write_bytes(encoded(header, bytes([0xF1, 0x42, 9])))
    arrays = safetensors.open_file(path)
    assert arrays["t"].astype(float).tolist() == values.astype(float).tolist()
    assert arrays["u"].tolist() == [9]
    safetensors.save_file({"t": values.T}, path)
    assert path.read_bytes()[-2:] == bytes([0x21, 0x4F])


def test_the_library_of_the_format_refuses_what_we_refuse():
    import safetensors as library

    def takes(content):
        try:
            library.deserialize(content)
        except library.SafetensorError:
            return False
        return True

    taken = [name for name, (content, _) in JUNK.items() if takes(content)]
    assert taken == ["too many dimensions"]  # only numpy limits the dimensions


def test_the_library_of_the_format_and_we_read_each_others_files(path):
    from safetensors.numpy import load_file, save_file

    numbers = {n: a for n, a in tensors().items() if a.dtype.kind in "fi"}
    safetensors.save_file(numbers, path, metadata={"a": "b"})
    same(load_file(path), numbers)
    plain = {n: np.ascontiguousarray(a, a.dtype.newbyteorder("=")) for n, a in numbers.items()}
    save_file(plain, path)
    same(safetensors.open_file(path), plain)


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


@pytest.mark.parametrize(("limit", "error"), [(0, ValueError), (-1, ValueError), (2.5, TypeError)])
def test_a_shard_holds_at_least_a_byte(tmp_path, limit, error):
    with pytest.raises(error):
        safetensors.save_file(tensors(), tmp_path / "m.safetensors", max_shard_nbytes=limit)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *((text, "not the index") for text in ("", "[]", "{}", '{"weight_map": []}')),
        ('{"weight_map": {"t": 5}}', "not the index"),
        ('{"weight_map": {"t": "../x.safetensors"}}', "not the index"),
        ('{"weight_map": {"t": "/x.safetensors"}}', "not the index"),
        ('{"weight_map": {"t": ""}}', "not the index"),
        ('{"weight_map": {"t": "m.safetensors.index.json"}}', "not the index"),
        ('{"weight_map": {"t": ["x"]}}', "not the index"),
        ('{"weight_map": {"b": "x.safetensors"}}', "none of them named 'b'"),
    ],
)
def test_an_index_of_junk(index, content, reason):
    index.write_text(content)
    with pytest.raises(FileFormatError, match=reason):
        safetensors.open_file(index)


@pytest.mark.parametrize(
    ("saved", "error", "reason"),
    [
        ({"t": np.zeros(2, np.complex128)}, TypeError, "'t' has the dtype complex128"),
        ({"t": np.zeros(2, ml_dtypes.int4)}, TypeError, "'t' has the dtype int4"),
        ({"t": np.ma.masked_equal([1.0, 2.0], 2)}, TypeError, "'t' is masked"),
        ({"t": np.array(["a"])}, TypeError, "'t' has the dtype <U1"),
        ({5: np.zeros(2)}, TypeError, "named 5"),
        ({"__metadata__": np.zeros(2)}, TypeError, "named '__metadata__'"),
        ({"t": np.zeros(3, DTYPES["F4"])}, ValueError, "the 3 elements of tensor 't' end within a"),
        ({"t": np.zeros(3, DTYPES["F6_E2M3"])}, ValueError, "the 3 elements of tensor 't' end"),
        ({"t": np.zeros(1, DTYPES["F6_E3M2"])}, ValueError, "the 1 elements of tensor 't' end"),
    ],
)
def test_what_the_format_has_no_place_for(path, saved, error, reason):
    with pytest.raises(error, match=reason):
        safetensors.save_file(saved, path)
    assert not path.exists()


def test_metadata_is_text_by_name(path):
    with pytest.raises(TypeError, match="not text by name"):
        safetensors.save_file({}, path, metadata={"a": 5})
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
