"""Functions for several devices: whole arrays to parts on devices, and back.

The compiled program says how arrays are split, because the compiler decides what an exporter left
open. Must not decide how anything is split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.errors import NotRunnableError
from pjrt_hub.running.program import op_sharding
from pjrt_hub.running.program.op_sharding import Part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pjrt_hub.running.buffer.buffer import Buffer
    from pjrt_hub.running.client.client import Client
    from pjrt_hub.running.executable.loaded_executable import LoadedExecutable
    from pjrt_hub.running.program.signature import Slot


class Split(NamedTuple):
    """The parts of arrays on devices; a dimension's last part may reach beyond the array's end."""

    arguments: list[list[Part]]  # Each device's part of each argument.
    results: list[list[Part]]  # Each device's part of each result.
    shapes: list[tuple[int, ...]]  # The shapes of the whole results.


def split(
    executable: LoadedExecutable,
    arguments: Sequence[Sequence[int]],
    results: Sequence[Sequence[int]],
    origin: str,
) -> Split:
    """Return which part of each array each device has, from the shapes of the whole arrays.

    Arrays that the compiler split in a way that cannot be followed raise NotRunnableError.
    """
    optimized = executable.optimized_program()
    given, gives = op_sharding.of_program(optimized.code, optimized.format)
    signature, count = executable.signature, len(executable.devices)
    try:
        return Split(
            _parts(signature.parameters, arguments, given, count),
            _parts(signature.outputs, results, gives, count),
            [tuple(shape) for shape in results],
        )
    except ValueError as exc:
        raise NotRunnableError(
            f"{origin} is for several devices, and its compiled program does not say how it splits "
            f"arrays: {exc}"
        ) from exc


def _parts(
    slots: Sequence[Slot], shapes: Sequence[Sequence[int]], shardings: list[bytes], count: int
) -> list[list[Part]]:
    """Return the parts of all arguments or of all results; without shardings all are whole."""
    shardings = shardings or [b""] * len(shapes)
    if not len(slots) == len(shapes) == len(shardings):
        raise ValueError(
            f"{len(shapes)} arrays, {len(shardings)} shardings, and {len(slots)} in the program"
        )
    found = [op_sharding.parts(*each, count) for each in zip(shardings, shapes, strict=True)]
    for slot, each in zip(slots, found, strict=True):
        if any(slot.shape != tuple(s.stop - s.start for s in part) for part in each):
            raise ValueError(f"a device takes or gives {slot}, and its part is {each[0]}")
    return found


def call(
    client: Client, executable: LoadedExecutable, arguments: Sequence[NDArray[Any]], split: Split
) -> list[Buffer]:
    """Call an executable with whole arguments; return whole results on its first device."""
    rows = [
        [
            client.buffer_from_host(_piece(array, each[number]), device=device)
            for array, each in zip(arguments, split.arguments, strict=True)
        ]
        for number, device in enumerate(executable.devices)
    ]
    return list(_join(client, executable.execute(rows), split))


def _piece(array: NDArray[Any], part: Part) -> NDArray[Any]:
    """Return one device's part, padded with zeros if the array ends before the part does."""
    import numpy as np

    piece = array[part]
    missing = [s.stop - s.start - size for s, size in zip(part, piece.shape, strict=True)]
    return np.pad(piece, [(0, each) for each in missing]) if any(missing) else piece


def _join(client: Client, outputs: list[tuple[Buffer, ...]], split: Split) -> Iterator[Buffer]:
    import numpy as np

    for shape, each, buffers in zip(
        split.shapes, split.results, zip(*outputs, strict=True), strict=True
    ):
        first = buffers[0]
        if all(part == each[0] for part in each):
            yield first
            continue
        array = np.empty(shape, first.dtype)
        for part, buffer in zip(each, buffers, strict=True):
            place = array[part]
            place[...] = np.asarray(buffer)[tuple(slice(0, size) for size in place.shape)]
        yield client.buffer_from_host(array, device=first.device)
