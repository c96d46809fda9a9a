"""Functions for several devices (layer 3): whole arrays to parts on devices, and back.

The order of devices is that of their mesh, the last axis fastest, as JAX's AbstractMesh has it.
Must not decide how anything is split: the exporter did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pjrt_hub.errors import NotRunnableError
from pjrt_hub.frozen import replace
from pjrt_hub.runtime.compile_options import CompileOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pjrt_hub.bridges.exported.function import ExportedFunction, Sharding
    from pjrt_hub.runtime.buffer import Buffer
    from pjrt_hub.runtime.client import Client
    from pjrt_hub.runtime.loaded_executable import LoadedExecutable

Part = tuple[slice, ...]


def options(function: ExportedFunction, given: CompileOptions | None) -> CompileOptions | None:
    """Compile options that split a program as its exporter did; the given ones for one device."""
    if function.nr_devices == 1:
        return given
    return replace(
        given or CompileOptions(),
        num_partitions=function.nr_devices,
        use_spmd_partitioning=True,
        use_shardy_partitioner=function.uses is None or "sdy" in function.uses.dialects,
    )


def parts(sharding: Sharding | None, shape: Sequence[int], count: int, origin: str) -> list[Part]:
    """Which part of an array each device has: all of it where nothing splits it.

    Raises:
        NotRunnableError: the mesh has another number of devices, or a dimension cannot be split.
    """
    whole = tuple(slice(0, size) for size in shape)
    if sharding is None:
        return [whole] * count
    sizes = dict(sharding.axes)
    devices = 1
    for size in sizes.values():
        devices *= size
    if devices != count or len(sharding.spec) > len(shape):
        raise NotRunnableError(
            f"{origin} splits an array of {len(shape)} dimensions as {sharding.spec} over a mesh "
            f"of {devices} devices, and is for {count}"
        )
    found = []
    for device in range(count):
        coordinates, left = {}, device
        for axis, size in reversed(sharding.axes):
            left, coordinates[axis] = divmod(left, size)
        part = list(whole)
        for dimension, axes in enumerate(sharding.spec):
            number, pieces = 0, 1
            for axis in axes:
                number, pieces = number * sizes[axis] + coordinates[axis], pieces * sizes[axis]
            length, rest = divmod(shape[dimension], pieces)
            if rest:
                raise NotRunnableError(
                    f"{origin} splits a dimension of {shape[dimension]} into {pieces} parts"
                )
            part[dimension] = slice(number * length, (number + 1) * length)
        found.append(tuple(part))
    return found


def call(
    client: Client,
    executable: LoadedExecutable,
    arguments: Sequence[tuple[NDArray[Any], list[Part]]],
    results: Sequence[tuple[tuple[int, ...], list[Part]]],
) -> list[Buffer]:
    """Runs it on all its devices, and waits for what has to be put together.

    Args:
        client: whose devices they are.
        executable: compiled with `options`.
        arguments: whole arrays, each with the part of each device.
        results: the shapes of whole results, each with the part of each device.

    Returns:
        Whole results on the first device.
    """
    rows = [
        [client.buffer_from_host(array[each[number]], device=device) for array, each in arguments]
        for number, device in enumerate(executable.devices)
    ]
    outputs = executable.execute(rows)
    return list(_joined(client, outputs, results))


def _joined(
    client: Client,
    outputs: list[tuple[Buffer, ...]],
    results: Sequence[tuple[tuple[int, ...], list[Part]]],
) -> Iterator[Buffer]:
    import numpy as np

    for (shape, each), buffers in zip(results, zip(*outputs, strict=True), strict=True):
        first = buffers[0]
        if all(part == each[0] for part in each):
            yield first
            continue
        array = np.empty(shape, first.dtype)
        for part, buffer in zip(each, buffers, strict=True):
            array[part] = np.asarray(buffer)
        yield client.buffer_from_host(array, device=first.device)


def check(
    executable: LoadedExecutable,
    arguments: Sequence[list[Part]],
    results: Sequence[list[Part]],
    origin: str,
) -> None:
    """Refuses a program whose compiler split it otherwise than its file says.

    Raises:
        NotRunnableError: an old form of shardings, or one that only its exporter's compiler knows.
    """
    signature = executable.signature
    for slots, expected in ((signature.parameters, arguments), (signature.outputs, results)):
        shapes = [tuple(s.stop - s.start for s in each[0]) for each in expected]
        if [slot.shape for slot in slots] != shapes:
            raise NotRunnableError(
                f"{origin} does not say how its arrays are split: its file says parts of {shapes}, "
                f"the compiled program has {[slot.shape for slot in slots]}",
                hint="export it again with a JAX of 2026, whose files say it",
            )
