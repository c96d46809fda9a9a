"""DLPack: what its numbers mean, and the lending of buffers to other frameworks.

Not among the bridges, because DLPack belongs to no framework and `Buffer` supports it itself. The
capsules are made in `capi`; `tensor` borrows what others lend. Must not import `buffer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.errors import ClosedError, PjrtError
from pjrt_hub.running.array import dtypes, packing
from pjrt_hub.running.array.host_array import address_of
from pjrt_hub.running.capi import callbacks, hotpath

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    from pjrt_hub.running.buffer.handle import BufferHandle

_CPU, _CUDA, _CUDA_HOST, _ROCM, _ROCM_HOST, _CUDA_MANAGED, _ONEAPI = 1, 2, 3, 10, 11, 13, 14
PLATFORMS = {"cpu": _CPU, "cuda": _CUDA, "rocm": _ROCM, "sycl": _ONEAPI}
_PINNED = {_CUDA: _CUDA_HOST, _ROCM: _ROCM_HOST}
#: The types of memory that the host can read directly.
ON_HOST = frozenset({_CPU, _CUDA_HOST, _ROCM_HOST, _CUDA_MANAGED})
#: Stream numbers that the protocol forbids, because their meaning is ambiguous.
_NO_STREAMS = {_CUDA: (0,), _ROCM: (1, 2)}

_READ_ONLY, _IS_COPIED, PADDED = 1, 2, 4
MAX_VERSION = (1, 1)
#: Widths in bits that DLPack packs, but whose format on a device PJRT does not define.
UNSETTLED_BITS = frozenset({6})
#: The functions that are needed to lend a buffer's memory; some plugins lack them.
LENDING = (
    "PJRT_Buffer_IncreaseExternalReferenceCount",
    "PJRT_Buffer_OpaqueDeviceMemoryDataPointer",
    "PJRT_Buffer_DecreaseExternalReferenceCount",
)

_KINDS = {"i": 0, "ui": 1, "s": 0, "u": 1, "f": 2, "bf": 4}
#: The floats in the order of their DLPack codes, which begin at 7.
_SMALL_FLOATS = (
    *("f8E3M4", "f8E4M3", "f8E4M3B11FNUZ", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ"),
    *("f8E8M0FNU", "f6E2M3FN", "f6E3M2FN", "f4E2M1FN"),
)
_CODES = {"i1": 6, "complex<f32>": 5, "complex<f64>": 5}
_CODES |= {name: code for code, name in enumerate(_SMALL_FLOATS, 7)}


def _type_of(element: dtypes.ElementType) -> tuple[int, int]:
    """Return DLPack's type code and the number of bits of an element type."""
    code = _CODES.get(element.name)
    return _KINDS[element.name.rstrip("0123456789")] if code is None else code, element.bits


ELEMENTS = {_type_of(element): element for element in dtypes.ELEMENT_TYPES}


def device_of(buffer: BufferHandle) -> tuple[int, int]:
    """Return DLPack's (device type, id) of a buffer's place; BufferError if there is none."""
    client = buffer.client
    kind = PLATFORMS.get(client.platform_name)
    if kind is None:
        raise BufferError(f"DLPack has no device for the platform {client.platform_name}")
    if kind == _CPU:
        return _CPU, 0
    if buffer.memory.kind == "pinned_host":
        kind = _PINNED.get(kind, kind)
    return kind, buffer.device.local_hardware_id


def lend(
    buffer: BufferHandle,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> CapsuleType:
    """Return a capsule with the buffer's memory; see `Buffer.__dlpack__`."""
    here = device_of(buffer)
    _check_stream(here[0], stream)
    element = dtypes.of_code(buffer._dtype)
    if buffer._dynamic:
        raise BufferError("some dimensions are dynamic: to_numpy() gives the value")
    wanted = here if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if wanted != here and wanted[0] != _CPU:
        raise BufferError(f"the buffer lives on DLPack's device {here}, not on {wanted}")
    through_host = wanted != here
    buffer._order()
    if element.bits in UNSETTLED_BITS or buffer._scattered:
        if wanted[0] != _CPU:
            what = "a buffer of tiles" if buffer._scattered else element.name
            raise BufferError(
                f"how {what} lies on a device is each plugin's own matter: ask for a copy on the "
                f"host, dl_device=({_CPU}, 0)"
            )
        through_host = True
    if through_host and copy is False:
        raise BufferError("only a copy on the host would do, and copy=False forbids it")
    flags = _IS_COPIED if copy or through_host else _READ_ONLY
    if through_host:
        memory = _copy_to_host(buffer, element)
    else:
        memory = _hold(copy_on_device(buffer) if copy else buffer)
    capsule: CapsuleType = hotpath.lend(  # type: ignore[assignment]
        memory.address,
        (_CPU, 0) if through_host else here,
        _type_of(element),
        buffer.shape,
        memory.strides,
        flags if max_version is not None and max_version[0] >= 1 else None,
        callbacks.deleter(lambda: memory.owner),
    )
    return capsule


class _Memory(NamedTuple):
    """Memory that stays where it is while `owner` lives; strides in elements."""

    owner: object
    address: int
    strides: tuple[int, ...]


def _hold(buffer: BufferHandle) -> _Memory:
    """Wait for the value and keep its memory through deletion, donation and close."""
    for function in LENDING:
        buffer.client.api.require(function)
    order = buffer._order()
    if buffer._scattered:
        raise BufferError("the elements of the buffer lie in tiles or with gaps: use to_numpy()")
    try:
        loan = buffer._view(0)  # The view has no bytes, as the host may be unable to read them.
    except PjrtError as exc:
        if buffer._is_gone:
            raise ClosedError("the buffer was deleted or donated") from exc
        raise
    return _Memory(loan, loan.address if buffer.size else 0, strides(buffer.shape, order))


def copy_on_device(buffer: BufferHandle) -> Any:
    """Return a copy of a buffer on the same device, in its own memory, or raise BufferError."""
    try:
        return buffer.copy_to_device(buffer.device)
    except PjrtError as exc:
        raise BufferError(f"the plugin copies no buffer within a device: {exc}") from exc


def _copy_to_host(buffer: BufferHandle, element: dtypes.ElementType) -> _Memory:
    import numpy

    value = buffer.to_numpy()
    packed = element.bits < 8  # DLPack packs such elements unless a flag says otherwise.
    array = packing.pack(value, element.bits) if packed else numpy.array(value, order="C")
    return _Memory(array, address_of(array), strides(buffer.shape))


def strides(shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Return each dimension's stride in elements, by a layout (minor_to_major) or row-major."""
    strides = [1] * len(shape)
    step = 1
    for dimension in order or range(len(shape) - 1, -1, -1):
        strides[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(strides)


def _check_stream(kind: int, stream: Any) -> None:
    """Refuse what is not a stream; any stream will do, because the value is ready already."""
    if stream is None or stream == -1:
        return
    if kind in ON_HOST:
        raise BufferError(f"the host has no streams, and stream is {stream!r}")
    if not isinstance(stream, int) or stream < 0 or stream in _NO_STREAMS.get(kind, ()):
        raise BufferError(f"stream {stream!r} names no stream of the device, or two of them")


def cuda_array_interface(buffer: BufferHandle) -> dict[str, Any]:
    """Return version 3 of CUDA's array interface; see `Buffer.__cuda_array_interface__`."""
    if buffer.client.platform_name != "cuda":
        raise AttributeError("only buffers on CUDA devices have __cuda_array_interface__")
    element = dtypes.of_code(buffer._dtype)
    dtype = buffer.dtype
    if dtype.isbuiltin != 1:
        raise AttributeError(f"numpy has no type string for {element.name}")
    memory = _hold(buffer)
    return {
        "version": 3,
        "shape": buffer.shape,
        "typestr": dtype.str,
        "data": (memory.address, True),
        "strides": tuple(step * dtype.itemsize for step in memory.strides)
        if buffer._order()
        else None,
        "stream": None,  # The value is ready, so there is no stream to wait for.
    }
