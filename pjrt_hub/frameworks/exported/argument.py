"""Arguments of exported functions: checks of values against types.

Owns which values are accepted, and the errors, which name the place; must not compile or run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pjrt_hub.errors import FileFormatError
from pjrt_hub.frameworks.exported.aval import Aval, Place
from pjrt_hub.frameworks.exported.function import Constant, Weight
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.array.host_array import convert, refuse_mask

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pjrt_hub.frameworks.exported.function import ExportedFunction
    from pjrt_hub.frameworks.exported.tree import Tree
    from pjrt_hub.running.buffer.buffer import Buffer
    from pjrt_hub.running.device.device import Device


def count(
    function_name: str,
    positional: Sequence[Tree],
    named: Tree,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Refuse a wrong number of arguments, or wrong names, by a TypeError such as Python's own."""
    name, takes = function_name or "the function", len(positional)
    if len(args) != takes:
        raise TypeError(
            f"{name} takes {takes} positional argument(s), {len(args)} were given\n\n"
            f"hint: they are nested as ({', '.join(map(str, positional))})"
        )
    if kwargs.keys() != set(named.keys):
        missing = sorted(set(named.keys) - kwargs.keys())
        unknown = sorted(kwargs.keys() - set(named.keys))
        told = [f"{', '.join(missing)} missing"] if missing else []
        told += [f"{', '.join(unknown)} unknown"] if unknown else []
        known = ", ".join(named.keys) or "none: its exporter passed all by place"
        raise TypeError(f"of the arguments by name: {'; '.join(told)}\n\nhint: there are {known}")


def host_array(value: Any, aval: Aval, function: ExportedFunction, index: int) -> NDArray[Any]:
    """Return the value as an array; only Python's numbers and lists are converted to the type.

    A wrong element type raises TypeError, a wrong shape ValueError.
    """
    import numpy as np

    wanted = aval.dtype
    if isinstance(value, bool | int | float | complex | list | tuple):
        try:
            found = np.asarray(value)
            if found.dtype.kind not in "biufc" or dtypes.rank(found.dtype) > dtypes.rank(wanted):
                raise _other_dtype(function, index, aval, found)
            value = convert(found, aval.element)
        except (ValueError, OverflowError) as exc:
            raise ValueError(f"{function.input_paths[index]}: expected {aval}: {exc}") from None
    refuse_mask(value, f"{function.input_paths[index]}: the array")
    array = np.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    check(array, aval, function, index)
    return array


def put_brought(
    arguments: Iterable[int | Weight | Constant], device: Device
) -> dict[Weight | Constant, Buffer]:
    """Move what a function brings beside its program to a device, once each.

    A file that is missing, malformed, or holds another type raises FileFormatError.
    """
    brought = dict.fromkeys(each for each in arguments if not isinstance(each, int))
    weights = _put_weights([each for each in brought if isinstance(each, Weight)], device)
    return {
        each: each.contents.buffer(each.start, each.aval, device)
        if isinstance(each, Constant)
        else weights[each]
        for each in brought
    }


def _put_weights(weights: Iterable[Weight], device: Device) -> dict[Weight, Buffer]:
    from pjrt_hub.frameworks import safetensors
    from pjrt_hub.running.buffer.buffer import HostBufferSemantics

    files: dict[Path, list[Weight]] = {}
    for weight in weights:
        files.setdefault(weight.path, []).append(weight)
    buffers: dict[Weight, Buffer] = {}
    for path, held in files.items():
        try:
            if path.suffix == ".safetensors":
                names = dict.fromkeys(each.name for each in held)
                found = safetensors.load_file(path, names=names, device=device)
                buffers |= {each: found[each.name] for each in held}
            else:
                put = partial(
                    device.client.buffer_from_host,
                    device=device,
                    semantics=HostBufferSemantics.IMMUTABLE_ZERO_COPY,
                )
                buffers |= {each: put(_mapped(each)) for each in held}
        except OSError as exc:
            raise _unreadable(held[0], exc.strerror or str(exc)) from None
    for weight, buffer in buffers.items():
        if buffer.dtype != weight.aval.dtype or buffer.shape != weight.aval.dimensions:
            raise FileFormatError(
                f"the weight {weight.name} is {_describe(buffer)} in {weight.path}, the program "
                f"takes {weight.aval}",
                path=weight.path,
            )
    return buffers


def _mapped(weight: Weight) -> NDArray[Any]:
    from numpy.lib.format import open_memmap

    try:
        array: NDArray[Any] = open_memmap(weight.path, mode="r")
    except (ValueError, EOFError) as exc:
        raise _unreadable(weight, str(exc)) from None
    return array


def _unreadable(weight: Weight, why: str) -> FileFormatError:
    return FileFormatError(
        f"the weight {weight.name} cannot be read from {weight.path}: {why}",
        path=weight.path,
        hint="save the function and its weights again; arrays of objects cannot be passed",
    )


def check(value: NDArray[Any] | Buffer, aval: Aval, function: ExportedFunction, index: int) -> None:
    """Refuse an array or a buffer of another element type (TypeError) or shape (ValueError).

    `places` checks the shapes of symbolic dimensions.
    """
    if value.dtype != aval.dtype:
        raise _other_dtype(function, index, aval, value)
    if aval.is_static and tuple(value.shape) != aval.dimensions:
        raise ValueError(
            f"{function.input_paths[index]}: expected {aval}, found {_describe(value)}"
        )


def places(
    function: ExportedFunction, symbolic: Sequence[int], leaves: Sequence[Any]
) -> list[Place]:
    """Return the symbolic dimensions of arguments, with the sizes that they have.

    A wrong number of dimensions, or a wrong size of one that is not symbolic, raises ValueError.
    """
    import numpy as np

    found = []
    for index in symbolic:
        aval, path = function.inputs[index], function.input_paths[index]
        leaf = leaves[index]
        shape = leaf.shape if hasattr(leaf, "shape") else np.shape(leaf)
        fits = len(shape) == len(aval.dimensions) and all(
            isinstance(wanted, str) or wanted == size
            for wanted, size in zip(aval.dimensions, shape, strict=True)
        )
        if not fits:
            sizes = ",".join(map(str, shape))
            raise ValueError(f"{path}: expected {aval}, found the shape [{sizes}]")
        for number, (wanted, size) in enumerate(zip(aval.dimensions, shape, strict=True)):
            if isinstance(wanted, str):
                found.append(Place(wanted, int(size), path, number))
    return found


def _other_dtype(function: ExportedFunction, index: int, aval: Aval, value: Any) -> TypeError:
    has_numbers = value.dtype.kind in "biufc" or _element_name(value) is not None
    hint = f"numpy.asarray(value, {aval.dtype.name!r}) converts it"
    return TypeError(
        f"{function.input_paths[index]}: expected {aval}, found {_describe(value)}\n\n"
        f"hint: {hint if has_numbers else 'give numbers, or an array or a buffer of them'}"
    )


def _describe(value: Any) -> str:
    name = _element_name(value) or value.dtype
    return f"{name}[{','.join(map(str, value.shape))}]"


def _element_name(value: Any) -> str | None:
    try:
        return dtypes.of_numpy(value.dtype).name
    except TypeError:
        return None
