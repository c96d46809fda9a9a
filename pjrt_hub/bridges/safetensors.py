"""safetensors files as memory-mapped arrays and device buffers (layer 3).

The header is read here, to the "Format" section of the safetensors project's README, because
that library copies every tensor that it hands to NumPy. Nothing here may copy tensor bytes.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from pjrt_hub.errors import FileFormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pjrt_hub.runtime.buffer import Buffer
    from pjrt_hub.runtime.client import Client
    from pjrt_hub.runtime.device import Device

# The format's own limit, which keeps a junk length from becoming a huge allocation.
_MAX_HEADER_NBYTES = 100_000_000

# The format's F4 and F6 types pack several elements into a byte, which no NumPy dtype can view.
_NUMPY_NAMES = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "BF16": "bfloat16",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}


def open_file(path: str | PathLike[str]) -> dict[str, NDArray[Any]]:
    """Maps a safetensors file into memory and checks its whole header.

    The arrays are read-only views of the mapped file: opening reads the header alone, and the
    system reads a tensor's bytes when they are first touched. The mapping lives as long as any
    array. While it does, the file must not be written to or shortened.

    Returns:
        Every tensor's array by name, in the header's order.

    Raises:
        OSError: the file cannot be opened.
        FileFormatError: it is not a valid safetensors file; the message names the tensor at fault.
    """
    with open(path, "rb") as file:
        try:
            return dict(_arrays(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
        except (ValueError, RecursionError) as exc:
            raise FileFormatError(
                f"{path} is not a valid safetensors file: {exc}",
                path=path,
                hint="check that the file is whole and of this format, or fetch it again",
            ) from exc


def load(
    client: Client,
    path: str | PathLike[str],
    names: Iterable[str] | None = None,
    *,
    device: Device | None = None,
) -> dict[str, Buffer]:
    """Moves tensors of a safetensors file to a device, straight from the mapped file.

    The XLA CPU plugin uses the mapped bytes in place where they begin on a 64-byte boundary, and
    otherwise makes its own copy; the format promises no alignment.

    Args:
        client: the client that will own the buffers.
        path: the file, under the rules of `open_file` until the buffers are gone.
        names: the tensors wanted, in this order; all of them where None.
        device: where to put them; the client's first device where None.

    Returns:
        A buffer by name, in the order of `names`.

    Raises:
        OSError: the file cannot be opened.
        FileFormatError: the file is invalid or lacks a tensor.
        PjrtError: the plugin refused a transfer (`PJRT_Client_BufferFromHostBuffer`).
    """
    from pjrt_hub.runtime.buffer import HostBufferSemantics

    arrays = open_file(path)
    wanted = list(arrays) if names is None else list(names)
    for name in wanted:
        if name not in arrays:
            raise _missing(path, name, arrays)
    return {
        name: client.buffer_from_host(
            arrays[name], device=device, semantics=HostBufferSemantics.IMMUTABLE_ZERO_COPY
        )
        for name in wanted
    }


def _missing(path: str | PathLike[str], name: str, arrays: Mapping[str, object]) -> FileFormatError:
    from difflib import get_close_matches

    close = get_close_matches(name, arrays, n=3) or list(arrays)[:3]
    return FileFormatError(
        f"{path} holds {len(arrays)} tensors, none of them named {name!r}",
        path=path,
        hint=f"its names look like {', '.join(map(repr, close))}" if close else "",
    )


def _arrays(mapped: mmap.mmap) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yields each tensor's name and view; a ValueError says what is wrong with the file."""
    import ml_dtypes  # noqa: F401 - teaches NumPy the names of the short floats
    import numpy as np

    start, tensors = _header(mapped)
    spans = []
    for name, fields in tensors.items():
        code, shape, begin, end = _tensor(name, fields)
        dtype = np.dtype(_NUMPY_NAMES[code])
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"tensor {name!r} is {code}{shape} in {end - begin} bytes")
        if start + end > len(mapped):
            raise ValueError(f"tensor {name!r} ends {start + end - len(mapped)} bytes past the end")
        spans.append((begin, end, name))
        yield name, np.ndarray(shape, dtype, buffer=mapped, offset=start + begin)

    position = 0
    for begin, end, name in sorted(spans):
        if begin != position:
            raise ValueError(f"tensor {name!r} begins at byte {begin} of the data, not {position}")
        position = end
    if start + position != len(mapped):
        raise ValueError(f"{len(mapped) - start - position} bytes follow the last tensor")


def _header(mapped: mmap.mmap) -> tuple[int, dict[str, object]]:
    """Returns where the data begins, and the header's entry for each tensor."""
    nbytes = int.from_bytes(mapped[:8], "little")
    if nbytes > min(_MAX_HEADER_NBYTES, len(mapped) - 8):
        raise ValueError(f"a header of {nbytes} bytes does not fit its {len(mapped)} bytes")
    header = json.loads(mapped[8 : 8 + nbytes].decode("utf-8"), object_pairs_hook=_unique)
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    header.pop("__metadata__", None)
    return 8 + nbytes, header


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Builds a JSON object, in which no name may stand twice."""
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the header names {name!r} twice")
        members[name] = value
    return members


def _tensor(name: str, fields: object) -> tuple[str, list[int], int, int]:
    """Returns a tensor's dtype code, shape, and the span of its bytes in the data."""
    match fields:
        case {"dtype": str(code), "shape": [*shape], "data_offsets": [begin, end]}:
            pass
        case _:
            raise ValueError(f"tensor {name!r} needs a dtype, a shape and two data_offsets")
    if any(type(size) is not int or size < 0 for size in (*shape, begin, end)):
        raise ValueError(f"tensor {name!r} has a size that is not a whole number of 0 or more")
    if code not in _NUMPY_NAMES:
        raise ValueError(f"tensor {name!r} has the dtype {code!r}, which NumPy cannot view")
    return code, shape, begin, end
