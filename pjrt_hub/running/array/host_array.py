"""Host arrays: the arrays that are put on devices, and host memory that devices can share.

Owns turning whatever a user gives into an array; must not look at buffers. Imports numpy late.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from pjrt_hub.running.array import dtypes

if TYPE_CHECKING:
    import numpy
    from numpy.typing import ArrayLike

#: The alignment, in bytes, of host memory that the CPU plugin can share.
ALIGNMENT = 64
#: Memory of at least this many bytes comes in huge pages, which take fewer page faults.
_HUGE = 1 << 21

_NUMBERS = bool | int | float | complex
#: The dtypes that numpy gives to Python's numbers, and those that devices use instead.
_NARROW = {"int64": "int32", "float64": "float32", "complex128": "complex64"}


def empty_aligned(shape: int | tuple[int, ...], dtype: Any = "float32") -> numpy.ndarray[Any, Any]:
    """Allocate an uninitialized array that `IMMUTABLE_ZERO_COPY` can share.

    It begins at a multiple of 64 bytes; `numpy.empty` does so only by luck. From 2 MiB on it lies
    in huge pages where the system has them.

    Args:
        shape: the dimensions, in elements.
        dtype: numpy's, ml_dtypes' or StableHLO's name ("bf16").

    Raises:
        TypeError: PJRT has no such dtype.
        ValueError: a dimension is negative.
    """
    import numpy

    wanted = dtypes.numpy_dtype(dtypes.of_numpy(dtype).code)
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(size < 0 for size in dims):
        raise ValueError(f"the shape {dims} has a negative dimension")
    nbytes = math.prod(dims) * wanted.itemsize
    if nbytes >= _HUGE:
        memory, alignment = _huge_pages(nbytes + _HUGE), _HUGE
    else:
        memory, alignment = numpy.empty(nbytes + ALIGNMENT, numpy.uint8), ALIGNMENT
    start = -address_of(memory) % alignment
    return memory[start : start + nbytes].view(wanted).reshape(dims)


def _huge_pages(nbytes: int) -> numpy.ndarray[Any, Any]:
    import mmap

    import numpy

    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return numpy.frombuffer(pages, numpy.uint8)


def address_of(array: numpy.ndarray[Any, Any]) -> int:
    """Return the address of an array's first element."""
    return int(array.__array_interface__["data"][0])


def as_bytes(data: Any) -> numpy.ndarray[Any, Any]:
    """Return the bytes of a contiguous array, or of a buffer protocol object, without a copy."""
    import numpy

    refuse_mask(data)
    if isinstance(data, numpy.ndarray):
        if data.dtype.hasobject:
            raise TypeError("an array of Python objects has no bytes to transfer")
        if not data.flags.c_contiguous:
            raise ValueError("the array is not contiguous: numpy.ascontiguousarray(it) makes it so")
        return data.reshape(-1).view(numpy.uint8)
    try:
        memory = memoryview(data)
    except TypeError:
        raise TypeError(f"{type(data).__name__} is neither an array nor bytes") from None
    if not memory.c_contiguous:
        raise ValueError("the memory is not contiguous")
    return numpy.frombuffer(memory.cast("B") if memory.nbytes else bytearray(), numpy.uint8)


def is_masked(array: object) -> bool:
    """Tell whether it is a masked array, whose mask `numpy.asarray` drops."""
    masked = sys.modules.get("numpy.ma")  # Masked arrays exist only if this is imported.
    return masked is not None and isinstance(array, masked.MaskedArray)


def refuse_mask(array: object, what: str = "the array") -> None:
    """Refuse a masked array; `what` names it."""
    if is_masked(array):
        raise TypeError(f"{what} is masked, and a device has no masks: fill it first")


def host_array(array: ArrayLike, dtype: Any) -> Any:
    """Make the array for `Client.buffer_from_host`; Python's numbers get 32 bits, and must fit."""
    import numpy

    refuse_mask(array)
    element = None if dtype is None else dtypes.of_numpy(dtype)
    if element is None and isinstance(array, _NUMBERS | list | tuple):
        guess = numpy.asarray(array)
        narrow = _NARROW.get(guess.dtype.name)
        if narrow is None or _holds_wide(array):
            return guess
        narrowed = guess.astype(narrow)
        if narrow == "int32" and (narrowed != guess).any():
            raise OverflowError("an int does not fit int32, as which it is put: give dtype='int64'")
        return narrowed
    try:
        given = numpy.asarray(array)
    except TypeError as exc:  # numpy itself has no bfloat16 or float8.
        if not hasattr(array, "__dlpack__"):
            raise
        raise TypeError(
            f"numpy makes no array of this {type(array).__name__}: {exc}\n\n"
            "hint: client.from_dlpack(array) takes it as it is, without numpy"
        ) from exc
    return given if element is None else convert(given, element)


def convert(array: numpy.ndarray[Any, Any], element: dtypes.ElementType) -> Any:
    """Return the array converted to an element type, or itself if it already has that type.

    Integers and booleans must fit, else OverflowError. Floats are rounded as numpy does, to an
    infinity or NaN at the end of their range. A float never becomes an integer, nor a complex
    number a float: TypeError.
    """
    import numpy

    wanted = dtypes.numpy_dtype(element.code)
    if array.dtype == wanted:
        return array
    if array.dtype.kind not in "biufcV" or array.dtype.names:  # numpy converts or refuses these.
        return numpy.asarray(array, dtype=wanted)
    limits = element.limits
    if dtypes.rank(array.dtype) > max(dtypes.rank(wanted), limits is not None):
        raise TypeError(
            f"elements of {array.dtype} do not become {wanted.name} by themselves\n\n"
            f"hint: numpy.asarray(array).astype({wanted.name!r}) drops what does not fit"
        )
    if limits and array.size and not numpy.can_cast(array.dtype, wanted):
        plain = array.astype(numpy.int8 if array.dtype.kind == "V" else array.dtype, copy=False)
        for value in (int(plain.min()), int(plain.max())):
            if not limits[0] <= value <= limits[1]:
                raise OverflowError(
                    f"{value} does not fit {wanted.name}: {limits[0]} to {limits[1]}"
                )
    with numpy.errstate(over="ignore"):
        return array.astype(wanted)


def _holds_wide(array: Any) -> bool:
    """Tell whether nested lists hold numpy scalars, whose dtype the user chose."""
    if isinstance(array, list | tuple):
        return any(map(_holds_wide, array))
    return not isinstance(array, _NUMBERS) or hasattr(array, "dtype")


def from_pickled(data: Any, dtype: str, shape: tuple[int, ...]) -> numpy.ndarray[Any, Any]:
    """Return a numpy array over the pickled bytes of a buffer; read-only if the bytes are."""
    import ml_dtypes  # noqa: F401 - It tells numpy the names of its types.
    import numpy

    return numpy.ndarray(shape, numpy.dtype(dtype), data)
