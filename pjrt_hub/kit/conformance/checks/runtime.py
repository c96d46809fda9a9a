"""What pjrt-hub's own client gets from the plugin; the other checks call the C API itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import PjrtError, PjrtHubError, UnimplementedError, UnsupportedByPluginError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Failed, Skipped, Unsupported, equal, expect, raise_as
from pjrt_hub.kit.conformance.subject import Subject, load
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.buffer.buffer import Buffer
from pjrt_hub.running.client.client import Client
from pjrt_hub.running.client.plugin import Plugin
from pjrt_hub.running.executable.loaded_executable import LoadedExecutable

Array = np.ndarray[Any, Any]

_CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

#: Each name has a numpy function that reorders an array of 2x3x4 numbers, and the operation that
#: does the same.
_TURNED: Mapping[str, tuple[Callable[[Array], Array], str]] = {
    "transposed by [2, 0, 1]": (
        lambda x: x.transpose(2, 0, 1),
        "stablehlo.transpose %0, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>",
    ),
    "transposed by [1, 0, 2]": (
        lambda x: x.transpose(1, 0, 2),
        "stablehlo.transpose %0, dims = [1, 0, 2] : (tensor<2x3x4xf32>) -> tensor<3x2x4xf32>",
    ),
    "broadcast over rows": (
        lambda x: np.broadcast_to(x[:, None], (2, 5, 3, 4)),
        "stablehlo.broadcast_in_dim %0, dims = [0, 2, 3] : "
        "(tensor<2x3x4xf32>) -> tensor<2x5x3x4xf32>",
    ),
    "broadcast behind columns": (
        lambda x: np.broadcast_to(x[..., None], (2, 3, 4, 5)),
        "stablehlo.broadcast_in_dim %0, dims = [0, 1, 2] : "
        "(tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>",
    ),
    "backwards": (
        lambda x: x[::-1, :, ::-1],
        "stablehlo.reverse %0, dims = [0, 2] : tensor<2x3x4xf32>",
    ),
    "multiplied with itself": (
        lambda x: np.einsum("abc,dec->abde", x, x),
        "stablehlo.dot_general %0, %0, contracting_dims = [2] x [2] : "
        "(tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x2x3xf32>",
    ),
    "each square": (
        lambda x: np.einsum("abc,adc->abd", x, x),
        "stablehlo.dot_general %0, %0, batching_dims = [0] x [0], contracting_dims = [2] x [2] : "
        "(tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x3xf32>",
    ),
}

_TRANSPOSE = """
func.func @main(%a: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %t : tensor<3x2xf32>
}
"""
_TRANSPOSE_BACK = _TRANSPOSE.replace("2x3", "$").replace("3x2", "2x3").replace("$", "3x2")
_MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)

_DONATED = """
func.func @main(%a: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2x3xf32> {
  %s = stablehlo.add %a, %a : tensor<2x3xf32>
  return %s : tensor<2x3xf32>
}
"""

_THREE = """
func.func @main(%a: tensor<2x3xf32>, %b: tensor<i32>)
    -> (tensor<i32>, tensor<3x2xf32>, tensor<2x3xi1>) {
  %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %l = stablehlo.constant dense<2.0> : tensor<2x3xf32>
  %c = stablehlo.compare LT, %a, %l : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  return %b, %t, %c : tensor<i32>, tensor<3x2xf32>, tensor<2x3xi1>
}
"""


@check()
def turned(subject: Subject) -> None:
    """Run programs that reorder dimensions, read the results in every way -> numpy's values."""
    with _client(subject) as client:
        for name, (right, operation) in _TURNED.items():
            (result,) = _results(subject, client, _program(operation, "2x3x4xf32"), _CUBE)
            _reads(result, np.ascontiguousarray(right(_CUBE)), name)


@check()
def host_arrays(subject: Subject) -> None:
    """Use row-major, column-major, strided and reversed arrays -> the same values."""
    forms = {
        "by rows": _MATRIX,
        "by columns": np.asfortranarray(_MATRIX),
        "with gaps": np.repeat(_MATRIX, 2, axis=1)[:, ::2],
        "backwards": np.ascontiguousarray(_MATRIX[::-1, ::-1])[::-1, ::-1],
    }
    with _client(subject) as client:
        program = _compile(subject, client, _TRANSPOSE)
        for name, array in forms.items():
            _reads(program(array), _MATRIX.T, f"the transposed of an array {name}")
            put = client.buffer_from_host(array)
            _reads(put, _MATRIX, f"an array {name}, put and read")
            _reads(program(put), _MATRIX.T, f"the transposed of an array {name} that was put")


@check()
def outputs(subject: Subject) -> None:
    """Run a program with three outputs of different types and shapes -> each in its place."""
    with _client(subject) as client:
        number, transposed, less = _results(subject, client, _THREE, _MATRIX, np.int32(-7))
        _reads(number, np.array(-7, np.int32), "the first output")
        _reads(transposed, np.ascontiguousarray(_MATRIX.T), "the second output")
        _reads(less, _MATRIX < 2, "the third output")


@check()
def types(subject: Subject) -> None:
    """Pass an array of each type that the plugin takes through a program -> the same bytes."""
    found = list[str]()
    with _client(subject) as client:
        for kind in dtypes.ELEMENT_TYPES:
            array = _of_type(kind, subject.api.version)
            if array is None:
                continue
            try:
                program = _compile(subject, client, reversal(kind.name))
            except (PjrtError, Skipped):
                continue
            back = program(array).to_numpy()
            equal(back.dtype, array.dtype, f"the dtype of {kind.name}")
            right = array[:, ::-1]
            expect(
                back.tobytes() == right.tobytes(),
                f"the values of {kind.name}: expected {right.tolist()}, found {back.tolist()}",
            )
            found.append(kind.name)
    if not found:
        raise Unsupported("the plugin reverses an array of no type")
    subject.note(f"types that pass through a program: {', '.join(found)}")


@check()
def chained(subject: Subject) -> None:
    """Call two programs 32 times on each other's results without waiting -> the right values."""
    with _client(subject) as client:
        there = _compile(subject, client, _TRANSPOSE)
        back = _compile(subject, client, _TRANSPOSE_BACK)
        value = client.buffer_from_host(_MATRIX)
        for _ in range(32):
            value = back(there(value))
        _reads(value, _MATRIX, "64 times transposed")
        _reads(there(value), np.ascontiguousarray(_MATRIX.T), "65 times transposed")


@check()
def bound(subject: Subject) -> None:
    """Call a program with bound arguments five times -> the right values each time."""
    with _client(subject) as client:
        call = _compile(subject, client, _TRANSPOSE).bind(client.buffer_from_host(_MATRIX))
        for _ in range(5):
            _reads(call(), np.ascontiguousarray(_MATRIX.T), "the transposed by a bound call")


@check()
def donated(subject: Subject) -> None:
    """Donate another program's result -> right values; the donated buffer is gone or unchanged."""
    with _client(subject) as client:
        back = _compile(subject, client, _TRANSPOSE_BACK)
        double = _compile(subject, client, _DONATED)
        given = back(np.ascontiguousarray(_MATRIX.T))
        _reads(double(given), 2 * _MATRIX, "the double of what is donated")
        with contextlib.suppress(PjrtHubError):
            _reads(given, _MATRIX, "what was donated, where it can still be read")


@contextlib.contextmanager
def _client(subject: Subject) -> Iterator[Client]:
    """Open a client of pjrt-hub beside the subject's."""
    subject.require_basics()
    with raise_as(Skipped, "the plugin refuses a second client:"):
        client = Plugin(load(subject.path)).client(subject.options)
    with client:
        yield client


def reversal(element: str) -> str:
    """Write a program that reverses the rows of a 2x3 array of a type."""
    return _program("stablehlo.reverse %0, dims = [1] : $T", f"2x3x{element}")


def _program(operation: str, shape: str) -> str:
    """Write a function of one array with one operation, where $T is the array's type."""
    kind = f"tensor<{shape}>"
    operation = operation.replace("$T", kind)
    given = operation.rpartition(" : ")[2].rpartition("-> ")[2]
    return f"func.func @main(%0: {kind}) -> {given} {{ %1 = {operation} return %1 : {given} }}"


def _compile(subject: Subject, client: Client, text: str) -> LoadedExecutable:
    """Compile a program in a form that the plugin takes."""
    return client.compile(subject.encode_program(text))


def _results(subject: Subject, client: Client, text: str, *arguments: Any) -> list[Buffer]:
    found = _compile(subject, client, text)(*arguments)
    return [found] if isinstance(found, Buffer) else list(found)


def _of_type(kind: dtypes.ElementType, version: ApiVersion) -> Array | None:
    """Make two rows of three numbers of a type; None if numpy or the plugin lacks the type."""
    try:
        dtypes.require(kind, version)
        dtype = dtypes.numpy_dtype(kind.code)
    except (UnsupportedByPluginError, TypeError):
        return None
    return np.array([[0, 1, 0], [1, 1, 0]], np.int8).astype(dtype)


def _reads(buffer: Buffer, right: Array, what: str) -> None:
    """Fail unless a buffer has the right values in each way to read it."""
    for way, read in _WAYS.items():
        try:
            found = read(buffer)
        except (UnsupportedByPluginError, UnimplementedError, BufferError):
            continue  # The memory is not on the host, or the plugin does not lend it.
        if (found.dtype, found.shape) != (right.dtype, right.shape) or not (found == right).all():
            raise Failed(f"{what}, by {way}: expected {right.tolist()}, found {found.tolist()}")


_WAYS: Mapping[str, Callable[[Buffer], Array]] = {
    "to_numpy": lambda buffer: buffer.to_numpy(),
    "to_numpy by columns": lambda buffer: buffer.to_numpy(layout=tuple(range(buffer.ndim))),
    "numpy.asarray": np.asarray,
    "DLPack": cast("Callable[[Buffer], Array]", np.from_dlpack),
    "the buffer protocol": lambda buffer: np.asarray(memoryview(buffer)),
    "tolist": lambda buffer: np.array(buffer.tolist(), buffer.dtype),
    "a copy on the device": lambda buffer: buffer.copy_to_device(buffer.device).to_numpy(),
}
