"""safetensors files as memory-mapped arrays and device buffers.

The header is read and written here, to the "Format" section of the safetensors project's README,
because that library copies every tensor that it hands to NumPy. `open_file` must not copy tensors,
except those whose elements share bytes, which NumPy cannot view.
"""

from __future__ import annotations

import json
import math
import mmap
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.base import digest
from pjrt_hub.errors import FileFormatError
from pjrt_hub.finding.store import disk
from pjrt_hub.running.array import dtypes, host_array, packing

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from pjrt_hub.running.buffer.buffer import Buffer
    from pjrt_hub.running.client.client import Client
    from pjrt_hub.running.device.device import Device

# The format's own limit, which keeps a junk length from becoming a huge allocation.
_MAX_HEADER_NBYTES = 100_000_000

#: The element types, by the names that the format has for them.
_ELEMENTS = {
    code: dtypes.of_numpy(name)
    for code, name in {
        **{"BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64"},
        **{"U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64"},
        **{"F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16"},
        **{"C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"},
        **{"F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"},
        **{"F8_E8M0": "float8_e8m0fnu", "F6_E2M3": "float6_e2m3fn", "F6_E3M2": "float6_e3m2fn"},
        **{"F4": "float4_e2m1fn"},
    }.items()
}
_CODES = {element.numpy: code for code, element in _ELEMENTS.items()}

#: The data begins at a multiple of this many bytes, so the first tensor can be used in place.
_ALIGNMENT = 64
#: A tensor this large that cannot be used in place is read, not copied from the mapped file.
_READ_NBYTES = 1 << 21
_INDEX_SUFFIX = ".index.json"
#: numpy describes no array with more elements, where dimensions of 0 do not count, or with more
#: dimensions.
_MAX_ELEMENTS, _MAX_RANK = 1 << 59, 64


def open_file(path: str | PathLike[str]) -> dict[str, NDArray[Any]]:
    """Map a safetensors file into memory and check its whole header.

    A path that ends in ".index.json" is the index of a model in several files: it maps all of them.

    The arrays are read-only views of the mapped file: opening reads the header alone, and the
    system reads a tensor's bytes when they are first touched. The mapping lives as long as any
    array. While it does, the file must not be written to or shortened. Only F4, F6_E2M3 and
    F6_E3M2, whose elements share bytes, become copies with a byte for each.

    Args:
        path: the path of the file, or of an index.

    Returns:
        Every tensor's array by name, in the header's order.

    Raises:
        OSError: the file cannot be opened, or an index is larger than 64 MiB.
        TypeError: `path` is not a path; bytes are taken for the contents of a file.
        FileFormatError: it is not a valid safetensors file; the message names the tensor at fault.
    """
    if _is_index(path):
        index = _index(Path(path))
        tensors = _open_indexed(index, Path(path), index)
    else:
        tensors = _open(path)
    return {name: tensor.array() for name, tensor in tensors.items()}


def _is_index(path: str | PathLike[str]) -> bool:
    name = os.fspath(path)
    if isinstance(name, bytes):
        raise TypeError(
            f"{len(name)} bytes were given; the file must be given by its path, which is mapped"
        )
    return name.endswith(_INDEX_SUFFIX)


def _open(path: str | PathLike[str]) -> dict[str, _Tensor]:
    with open(path, "rb") as file:
        try:
            if not file.seekable():
                raise ValueError("it is a pipe, which cannot be mapped")
            mapped = _Mapped(file.fileno(), 0, access=mmap.ACCESS_READ)
            mapped.path, mapped.identity = path, digest.identity(file.fileno())
            return dict(_tensors(mapped))
        except (ValueError, RecursionError) as exc:
            raise FileFormatError(
                f"{path} is not a valid safetensors file: {exc}",
                path=path,
                hint="check that the file is whole and of this format, or fetch it again",
            ) from None


def read_metadata(path: str | PathLike[str]) -> dict[str, str]:
    """Return the text by name beside a file's tensors; the errors are those of `open_file`."""
    opened = _open(path)
    return _header(next(iter(opened.values())).mapped)[1] if opened else {}


def load_file(
    path: str | PathLike[str],
    client: Client | None = None,
    *,
    names: Iterable[str] | None = None,
    device: Device | Callable[[str], Device] | None = None,
) -> dict[str, Buffer]:
    """Move tensors of a safetensors file to devices, copying each at most once.

    The XLA CPU plugin uses the mapped bytes in place where they begin on a 64-byte boundary, which
    the format does not promise. Other large tensors are read into the memory of their buffers; on
    devices with memory of their own the next part is read while the last ones are copied.

    Args:
        path: the file, or the index of several, of which only those with a wanted tensor are
            opened; the rules of `open_file` apply until the buffers are gone.
        client: the client that will own the buffers. None means the client of `device`, if that is
            a device, else a new one from `pjrt_hub.client()`, which `buffer.client` returns.
        names: the tensors wanted, in this order; None means all of them.
        device: the device to put them on, or a function that returns one for each name; None means
            the client's first device.

    Returns:
        The buffers by name, in the order of `names`.

    Raises:
        OSError: the file cannot be opened, or an index is larger than 64 MiB.
        TypeError: `path` is not a path; bytes are taken for the contents of a file.
        FileFormatError: the file is invalid or lacks a tensor.
        PjrtError: the plugin refused a transfer (`PJRT_Client_BufferFromHostBuffer`).
    """
    indexed = _is_index(path)
    index: Mapping[str, object] = _index(Path(path)) if indexed else _open(path)
    wanted = list(index) if names is None else list(names)
    for name in wanted:
        if name not in index:
            raise _missing_error(path, name, index)
    tensors: Mapping[str, Any] = _open_indexed(index, Path(path), wanted) if indexed else index
    if client is None:
        from pjrt_hub.door.client import client as make_client

        client = make_client() if device is None or callable(device) else device.client
    return {
        name: _put(client, tensors[name], device(name) if callable(device) else device)
        for name in wanted
    }


def _put(client: Client, tensor: _Tensor, device: Device | None) -> Buffer:
    from pjrt_hub.running.array.shape_spec import ShapeSpec
    from pjrt_hub.running.buffer import upload
    from pjrt_hub.running.buffer.buffer import HostBufferSemantics

    spec = ShapeSpec(tensor.shape, tensor.element)
    whole = tensor.element.bits >= 8 and spec.nbytes >= _READ_NBYTES
    if whole and not (client.platform_name == "cpu" and tensor.start % _ALIGNMENT == 0):
        with open(tensor.mapped.path, "rb") as file:
            if digest.identity(file.fileno()) == tensor.mapped.identity:  # Nobody replaced it.
                return upload.from_file(client, file.fileno(), spec, tensor.start, device)
    return client.buffer_from_host(
        tensor.array(), device=device, semantics=HostBufferSemantics.IMMUTABLE_ZERO_COPY
    )


def save_file(
    tensors: Mapping[str, ArrayLike | Buffer],
    path: str | PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    max_shard_nbytes: int | None = None,
) -> Path:
    """Write arrays and buffers to a safetensors file, or to several with an index.

    A file appears whole or not at all. Buffers are waited for and written from where they lie.

    Args:
        tensors: buffers, or values that numpy makes arrays of, by name.
        path: the path of the file, "model.safetensors".
        metadata: text by name, which readers may show.
        max_shard_nbytes: the bytes of tensors that one file may hold, unless a tensor is larger;
            then the files are "model-00001-of-00002.safetensors", ... and the index stands beside
            them. None writes one file.

    Returns:
        The file's path, or the index's, for `open_file` and `load_file`.

    Raises:
        TypeError: the format has no such dtype, or a name or the metadata is not a str.
        ValueError: `path` does not end in ".safetensors" and shards are wanted, a shard may hold
            less than 1 byte, or elements that share bytes do not fill the last one.
        OSError: the file cannot be written.
    """
    import numpy as np

    target = Path(path)
    arrays = {}
    for name, tensor in tensors.items():
        if host_array.is_masked(tensor):
            raise TypeError(f"tensor {name!r} is masked, and a file has no masks: fill it first")
        arrays[name] = array = np.asarray(tensor)
        if not isinstance(name, str) or name == "__metadata__":
            raise TypeError(f"a tensor cannot be named {name!r}")
        if array.dtype.name not in _CODES:
            raise TypeError(f"tensor {name!r} has the dtype {array.dtype}, which the format lacks")
        if array.size * _element(array).bits % 8:
            raise ValueError(f"the {array.size} elements of tensor {name!r} end within a byte")
    texts = dict(metadata or {})
    if not all(isinstance(each, str) for pair in texts.items() for each in pair):
        raise TypeError(f"the metadata {texts!r} is not text by name")
    if max_shard_nbytes is None:
        _write(target, arrays, texts)
        return target
    if target.suffix != ".safetensors":
        raise ValueError(f"{target} must end in '.safetensors' to be written in shards")
    if operator.index(max_shard_nbytes) < 1:
        raise ValueError(f"max_shard_nbytes is {max_shard_nbytes}; it must be at least 1")
    shards = list(_shards(arrays, max_shard_nbytes))
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file = target.with_name(f"{target.stem}-{number:05}-of-{len(shards):05}.safetensors")
        _write(file, shard, texts)
        weight_map.update(dict.fromkeys(shard, file.name))
    total = sum(map(_nbytes, arrays.values()))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    place = target.with_name(target.name + _INDEX_SUFFIX)
    disk.replace(place, json.dumps(index, indent=2).encode())
    return place


def _shards(arrays: Mapping[str, NDArray[Any]], limit: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield one shard after the other, filled in the order of the tensors."""
    shard: dict[str, NDArray[Any]] = {}
    nbytes = 0
    for name, array in arrays.items():
        if shard and nbytes + _nbytes(array) > limit:
            yield shard
            shard, nbytes = {}, 0
        shard[name] = array
        nbytes += _nbytes(array)
    yield shard


def _element(array: NDArray[Any]) -> dtypes.ElementType:
    return _ELEMENTS[_CODES[array.dtype.name]]


def _nbytes(array: NDArray[Any]) -> int:
    """Return the number of bytes that an array takes in a file."""
    return packing.nbytes(array.size, _element(array).bits)


def _write(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    import numpy as np

    # The widest elements come first, so that each tensor is aligned to its elements.
    ordered = sorted(arrays.items(), key=lambda item: (-_element(item[1]).bits, item[0]))
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    position = 0
    parts: list[Any] = []
    for name, array in ordered:
        end = position + _nbytes(array)
        header[name] = {
            "dtype": _CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [position, end],
        }
        bits = _element(array).bits
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        whole = packing.pack(array, bits) if bits < 8 else np.ascontiguousarray(little).reshape(-1)
        parts.append(whole.view(np.uint8))
        position = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    if len(text) > _MAX_HEADER_NBYTES:
        raise ValueError(f"a header of {len(text)} bytes is larger than the format allows")
    disk.replace(path, len(text).to_bytes(8, "little"), text, *parts)


def _index(path: Path) -> dict[str, object]:
    """Return the file of each tensor, by the index of a model in several files."""
    content = digest.content(path)
    try:
        index = json.loads(content, object_pairs_hook=_unique)
        files = index["weight_map"]
        for name in set(files.values()):
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise ValueError(f"{name!r} is not the name of a safetensors file beside it")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise FileFormatError(
            f"{path} is not the index of a model in several files: {exc}",
            path=path,
            hint="it has to map each tensor's name to a file, under 'weight_map'",
        ) from None
    return dict(files)


def _open_indexed(
    index: Mapping[str, object], path: Path, names: Iterable[str]
) -> dict[str, _Tensor]:
    """Return the named tensors; open each file that holds some of them once."""
    opened: dict[str, dict[str, _Tensor]] = {}
    tensors = {}
    for name in names:
        file = str(index[name])
        if file not in opened:
            opened[file] = _open(path.with_name(file))
        if name not in opened[file]:
            raise _missing_error(path.with_name(file), name, opened[file])
        tensors[name] = opened[file][name]
    return tensors


def _missing_error(
    path: str | PathLike[str], name: str, tensors: Mapping[str, object]
) -> FileFormatError:
    from difflib import get_close_matches

    close = get_close_matches(name, tensors, n=3) or list(tensors)[:3]
    return FileFormatError(
        f"{path} holds {len(tensors)} tensors, none of them named {name!r}",
        path=path,
        hint=f"its names look like {', '.join(map(repr, close))}" if close else "",
    )


class _Mapped(mmap.mmap):
    """A mapped file, with its path and its `digest.identity`."""

    path: str | PathLike[str]
    identity: str


class _Tensor(NamedTuple):
    """Where a tensor lies in a mapped file, all of it checked."""

    mapped: _Mapped
    start: int
    shape: tuple[int, ...]
    element: dtypes.ElementType

    def array(self) -> NDArray[Any]:
        """Return the tensor's values: a view of the file, or a copy if elements share bytes."""
        import numpy as np

        dtype = dtypes.numpy_dtype(self.element.code)
        if self.element.bits >= 8:
            return np.ndarray(self.shape, dtype, buffer=self.mapped, offset=self.start)
        nbytes = packing.nbytes(math.prod(self.shape), self.element.bits)
        data = np.ndarray((nbytes,), np.uint8, buffer=self.mapped, offset=self.start)
        array = packing.unpack(data, self.shape, self.element.bits, dtype)
        array.flags.writeable = False
        return array


def _tensors(mapped: _Mapped) -> Iterator[tuple[str, _Tensor]]:
    """Yield each tensor by its name; a ValueError says what is wrong with the file."""
    start, _, entries = _header(mapped)
    spans = []
    for name, fields in entries.items():
        code, shape, begin, end = _entry(name, fields)
        element, size = _ELEMENTS[code], math.prod(shape[: _MAX_RANK + 1])
        elements = math.prod(filter(None, shape[: _MAX_RANK + 1]))
        if size > len(mapped) * 8 or len(shape) > _MAX_RANK or elements > _MAX_ELEMENTS:
            raise ValueError(f"tensor {name!r} has the impossible dimensions {shape}")
        if size * element.bits % 8:
            raise ValueError(f"tensor {name!r} is {code}{shape}, which ends within a byte")
        if end - begin != packing.nbytes(size, element.bits):
            raise ValueError(f"tensor {name!r} is {code}{shape} in {end - begin} bytes")
        if start + end > len(mapped):
            raise ValueError(f"tensor {name!r} ends {start + end - len(mapped)} bytes past the end")
        spans.append((begin, end, name))
        yield name, _Tensor(mapped, start + begin, tuple(shape), element)

    position = 0
    for begin, end, name in sorted(spans):
        if begin != position:
            raise ValueError(f"tensor {name!r} begins at byte {begin} of the data, not {position}")
        position = end
    if start + position != len(mapped):
        raise ValueError(f"{len(mapped) - start - position} bytes follow the last tensor")


def _header(mapped: mmap.mmap) -> tuple[int, dict[str, str], dict[str, object]]:
    """Return where the data begins, the metadata, and the header's entry for each tensor."""
    nbytes = int.from_bytes(mapped[:8], "little")
    if nbytes > min(_MAX_HEADER_NBYTES, len(mapped) - 8):
        raise ValueError(f"a header of {nbytes} bytes does not fit its {len(mapped)} bytes")
    header = json.loads(mapped[8 : 8 + nbytes].decode("utf-8"), object_pairs_hook=_unique)
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise ValueError("the metadata is not a JSON object")
    return 8 + nbytes, metadata, header


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build a JSON object, in which no name may stand twice."""
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the header names {name!r} twice")
        members[name] = value
    return members


def _entry(name: str, fields: object) -> tuple[str, list[int], int, int]:
    """Return a tensor's dtype code, shape, and the span of its bytes in the data."""
    match fields:
        case {"dtype": str(code), "shape": [*shape], "data_offsets": [begin, end]}:
            pass
        case _:
            raise ValueError(f"tensor {name!r} needs a dtype, a shape and two data_offsets")
    if any(type(size) is not int or size < 0 for size in (*shape, begin, end)):
        raise ValueError(f"tensor {name!r} has a size that is not a whole number of 0 or more")
    if code not in _ELEMENTS:
        raise ValueError(f"tensor {name!r} has the dtype {code!r}, which the format lacks")
    return code, shape, begin, end
