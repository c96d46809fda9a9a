"""Arrays from the text of `run --arg`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.errors import FileFormatError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Value = NDArray[Any] | dict[str, NDArray[Any]] | bool | int | float

#: This matches "f32[2,3]:1,2,3,4,5,6": XLA's or StableHLO's name of a type, a shape, and values.
_TYPED = re.compile(r"(?P<type>[A-Za-z][\w<>]*)\[(?P<shape>(\d+(,\d+)*)?)\]:(?P<values>.*)")

#: This matches "x=..." or "args[0]['w']=...", with or without the quotes.
_NAMED = re.compile(r"(?P<place>[A-Za-z_][\w.\-]*(\[[^\]=]*\]|\.\w+)*)=(?P<value>.*)", re.DOTALL)

_TYPE_OF_BARE = {bool: "pred", int: "s32", float: "f32"}
#: numpy counts bytes in these names, and programs count bits.
_OF_BITS = {f"{name[0]}{bits}": f"{name}{bits}" for name in ("int", "uint") for bits in (2, 4, 8)}


class Argument(NamedTuple):
    """One argument of the command line."""

    place: str | None  # The name before "=".
    value: Value  # An array, a file's arrays by name, or the number of a bare literal.
    text: str  # The value as it was written.

    def array(self) -> NDArray[Any]:
        """Return the value as an array of its own type.

        If the value is a file's arrays, of which none was named, it raises FileFormatError.
        """
        if isinstance(self.value, dict):
            return _pick(self.text, self.value, "")
        return parse(self.text) if isinstance(self.value, bool | int | float) else self.value


def parse_named(text: str) -> Argument:
    """Read an argument that may have a name, and may be a whole file of arrays.

    The value is what `parse` takes, an `.npz` or `.safetensors` file, or "FILE.npz:NAME". It may
    follow the argument's name and "=", and a file may follow an "@". The errors are those of
    `parse`.
    """
    place = None
    if (match := _NAMED.fullmatch(text)) and not Path(text).exists():
        place, text = match.group("place", "value")
    text = text.removeprefix("@")
    if Path(text).is_fifo() or Path(text.rpartition(":")[0]).is_fifo():
        hint = "write it into a file first: of a program alone a pipe is read"
        raise FileFormatError(f"{text} is a pipe, and arrays are mapped", path=text, hint=hint)
    path, is_npz, name = text.partition(".npz")
    if is_npz and name[:1] in ("", ":"):
        arrays = _npz(Path(path + is_npz))
        value = _pick(path + is_npz, arrays, name[1:]) if name else arrays
        return Argument(place, value, text)
    if text.endswith(".safetensors"):
        from pjrt_hub.frameworks.safetensors import open_file

        tensors = open_file(text)
        one = next(iter(tensors.values())) if len(tensors) == 1 else tensors
        return Argument(place, one, text)
    array = parse(text)
    is_bare = not array.ndim and "[" not in text and not text.endswith(".npy")
    return Argument(place, array.item() if is_bare and ".safetensors" not in text else array, text)


def parse(text: str) -> NDArray[Any]:
    """Read an array from a file, which is mapped, or from a literal.

    A file is `.npy`, or `.safetensors` with ":" and a tensor's name if it holds several; a
    literal is "3.0", "true" or "f32[2,2]:1,2,3,4". One value fills any shape; without a type it is
    f32, s32 or pred. A malformed literal raises ValueError; a file that is not of its format, or
    lacks the tensor, FileFormatError.
    """
    path, is_safetensors, tensor = text.partition(".safetensors")
    if is_safetensors and tensor[:1] in ("", ":"):
        return _safetensors(Path(path + is_safetensors), tensor[1:])
    if text.endswith(".npy"):
        return _npy(Path(text))
    return _literal(text)


def _npy(path: Path) -> NDArray[Any]:
    from numpy.lib.format import open_memmap

    try:
        array: NDArray[Any] = open_memmap(path, mode="r")
    except (ValueError, EOFError) as exc:
        raise FileFormatError(
            f"{path} is not a .npy file of numbers: {exc}",
            path=path,
            hint="write it with numpy.save; arrays of objects cannot be passed",
        ) from None
    if array.dtype.kind == "V":  # numpy.save keeps the bytes of bfloat16, but loses its name.
        raise FileFormatError(
            f"{path} does not say what its elements are: a .npy file cannot name bfloat16, float8 "
            "and int4",
            path=path,
            hint="write it as .safetensors, or as float32",
        )
    return array


def _npz(path: Path) -> dict[str, NDArray[Any]]:
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as exc:
        raise FileFormatError(
            f"{path} is not a .npz file of numbers: {exc}",
            path=path,
            hint="write it with numpy.savez; arrays of objects cannot be passed",
        ) from None


def _safetensors(path: Path, name: str) -> NDArray[Any]:
    from pjrt_hub.frameworks.safetensors import open_file

    tensors = open_file(path)
    if not name and len(tensors) == 1:
        return next(iter(tensors.values()))
    return _pick(path, tensors, name, "tensors")


def _pick(
    path: Path | str, arrays: Mapping[str, NDArray[Any]], name: str, what: str = "arrays"
) -> NDArray[Any]:
    """Return the array of a file that was named."""
    if name in arrays:
        return arrays[name]
    raise FileFormatError(
        f"{path} holds {len(arrays)} {what}, "
        + (f"none of them named {name!r}" if name else "and none was named"),
        path=path,
        hint=f"name one of them: {path}:{next(iter(arrays), 'NAME')}",
    )


def _literal(text: str) -> NDArray[Any]:
    import numpy as np

    if match := _TYPED.fullmatch(text):
        name, sizes, words = match.group("type", "shape", "values")
    else:
        name, sizes, words = _TYPE_OF_BARE[type(_scalar(text))], "", text
    dtype = _dtype(name)
    shape = tuple(int(size) for size in sizes.split(",") if size)
    values = [_value(word.strip(), dtype) for word in words.split(",") if word.strip()]
    count = math.prod(shape)
    if len(values) not in (1, count):
        raise ValueError(f"{list(shape)} holds {count} values, found {len(values)}")
    with np.errstate(over="ignore"):  # As an f32, 1e39 is infinite.
        array = np.array(values, dtype)
    return array.reshape(shape) if len(values) == count else np.full(shape, array)


def _dtype(name: str) -> np.dtype[Any]:
    """Return the dtype that programs call by a name, such as "f32", else the dtype of that name."""
    import pjrt_hub

    meant = "bool" if name == "i1" else _OF_BITS.get(name, name)
    try:
        dtype: np.dtype[Any] = pjrt_hub.empty_aligned(0, meant).dtype
    except TypeError:
        raise ValueError(
            f"{name!r} is not an element type such as f32, bf16, s32 or pred"
        ) from None
    return dtype


def _scalar(word: str) -> bool | int | float:
    if word in ("true", "false"):
        return word == "true"
    for read in (int, float, lambda digits: int(digits, 0)):
        try:
            return read(word)
        except ValueError:
            pass
    raise ValueError(f"{word[:80]!r} is not a number, true or false")


def _value(word: str, dtype: np.dtype[Any]) -> bool | int | float | complex:
    if dtype.kind == "c":
        try:
            return complex(word)
        except ValueError:
            raise ValueError(f"{word!r} is not a complex number such as 1+2j") from None
    value = _scalar(word)
    if dtype.kind == "b" and value not in (0, 1):
        raise ValueError(f"{word!r} is not true, false, 1 or 0")
    if "int" in dtype.name:
        bits = int(dtype.name.lstrip("uint"))
        low = 0 if dtype.name.startswith("u") else -(2 ** (bits - 1))
        high = low + 2**bits - 1
        if not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{word!r} is not a value of {dtype.name}: {low} to {high}")
    return value
