"""The corpus: programs of one StableHLO op each, with their right results.

Owns the form of corpus.jsonl.gz, which tools/corpus writes: a line of JSON with the form's number
and the count of programs, then a line for each `Program`; bytes are hexadecimal, little-endian.
Must not run anything.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pjrt_hub.kit.conformance import artifact, numerics
from pjrt_hub.kit.conformance.numerics import Tolerance
from pjrt_hub.running.array import dtypes

PATH = Path(__file__).with_name("corpus.jsonl.gz")
FORM = 1

#: Results are compared with the right ones, value by value.
VALUES = "values"
#: StableHLO leaves the value to the implementation, so any value is right.
ANYTHING = "anything"
#: The plugin chooses the algorithm, which must give the same values each time.
REPEATABLE = "repeatable"


@dataclass(frozen=True, slots=True)
class CorpusTensor:
    """An argument or a right result."""

    element: str  # The element type as StableHLO writes it, such as "f32".
    shape: tuple[int, ...]
    data: bytes  # The elements in row-major order, each of at least one byte.

    @classmethod
    def of(cls, array: Any, element: str) -> CorpusTensor:
        """Make a tensor of an array whose values the element type can hold."""
        given = np.asarray(array, dtype=dtype_of(element), order="C")
        return cls(element, given.shape, given.tobytes())

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The tensor's values, read-only."""
        return np.frombuffer(self.data, dtype_of(self.element)).reshape(self.shape)

    @property
    def type(self) -> str:
        """The tensor's type as StableHLO writes it, "tensor<2x3xf32>"."""
        return type_of(self.element, self.shape)

    @property
    def literal(self) -> str:
        """The tensor as an attribute, "dense<...> : tensor<2x3xf32>"."""
        if not math.prod(self.shape):
            return f"dense<> : {self.type}"
        if self.element == "i1":  # Since 2025, MLIR has read the bytes of booleans differently.
            return f"dense<{json.dumps(self.array.tolist())}> : {self.type}"
        return f'dense<"0x{self.data.hex().upper()}"> : {self.type}'


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    Attributes:
        flushed: the results if subnormal numbers are taken and given as zero, which devices may
            do; empty if there are none.
        oracle: where the results come from: "exact" is arithmetic without rounding (Python's
            integers and fractions, mpmath to 400 bits) rounded once, "numpy" moves or sums without
            rounding, "stablehlo" is StableHLO's reference interpreter. All named ones agreed.
    """

    op: str  # The op that the program tests, such as "add".
    kind: str  # The element type or types, such as "f32" or "f32_to_bf16".
    variant: str  # What is special about the program, "by the width or more"; often empty.
    body: str  # The ops, which read %a0, %a1 ... and define the results %r0, %r1 ...
    arguments: tuple[CorpusTensor, ...]
    results: tuple[CorpusTensor, ...]  # The results that must come out.
    oracle: tuple[str, ...]
    functions: str = ""  # The text of the functions that `body` calls.
    flushed: tuple[CorpusTensor, ...] = ()
    compare: str = VALUES  # How results are compared: `VALUES`, `ANYTHING` or `REPEATABLE`.
    terms: int = 0  # How many terms are summed for each result; see `numerics.tolerance`.

    @property
    def name(self) -> str:
        """The name of its check, "shift_left.i32.by-the-width-or-more"."""
        variant = f".{self.variant.replace(' ', '-')}" if self.variant else ""
        return f"{self.op}.{self.kind}{variant}"

    @property
    def title(self) -> str:
        """What the program does, "shift_left of i32, by the width or more"."""
        return f"{self.op} of {self.kind}{f', {self.variant}' if self.variant else ''}"

    @property
    def promise(self) -> str:
        """What must come out, "the values of exact and stablehlo"."""
        if self.compare == VALUES:
            return f"the values of {' and '.join(self.oracle)}"
        return "the same again" if self.compare == REPEATABLE else "any values"

    @property
    def tolerances(self) -> tuple[Tolerance, ...]:
        """How far off each result may be."""
        complex_ = any(tensor.array.dtype.kind == "c" for tensor in self.arguments)
        return tuple(
            numerics.tolerance(self.op, each.array.dtype, complex_=complex_, terms=self.terms)
            for each in self.results
        )

    def text(self, *, constants: bool) -> str:
        """Write the program as StableHLO, on arguments or on constants, which may be folded."""
        names = [f"%a{i}" for i in range(len(self.arguments))]
        given = list(zip(names, self.arguments, strict=True))
        parameters = "" if constants else ", ".join(f"{name}: {t.type}" for name, t in given)
        constant = [f"{name} = stablehlo.constant {t.literal}" for name, t in given]
        values = ", ".join(f"%r{i}" for i in range(len(self.results)))
        types = ", ".join(tensor.type for tensor in self.results)
        lines = [*(constant if constants else []), self.body, f"return {values} : {types}"]
        inside = "\n".join(lines).replace("\n", "\n  ")
        main = f"func.func @main({parameters}) -> ({types}) {{\n  {inside}\n}}\n"
        return main + self.functions


def dtype_of(element: str) -> np.dtype[Any]:
    """Return the numpy dtype of an element type, by StableHLO's name."""
    return dtypes.numpy_dtype(dtypes.of_type(element).code)


def type_of(element: str, shape: Iterable[int]) -> str:
    """Return a tensor type, "tensor<2x3xf32>"."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def pack(programs: Iterable[Program]) -> bytes:
    """Write a corpus."""
    rows = [json.dumps(_row(each), separators=(",", ":")) for each in programs]
    head = json.dumps({"form": FORM, "programs": len(rows)})
    return gzip.compress("\n".join([head, *rows, ""]).encode(), mtime=0)


@cache
def programs(path: Path = PATH) -> tuple[Program, ...]:
    """Read a corpus, by default the one that this package ships, or raise FileFormatError."""
    return artifact.read(path, _programs)


def _programs(data: bytes) -> tuple[Program, ...]:
    first, *rows = data.decode().splitlines()
    head = json.loads(first)
    if head != {"form": FORM, "programs": len(rows)}:
        raise ValueError(f"it begins with {first!r}, with {len(rows)} programs after it")
    return tuple(_program(json.loads(row)) for row in rows)


_TENSORS = ("arguments", "results", "flushed")
_OPTIONAL = {"functions": "", "flushed": (), "compare": VALUES, "terms": 0}


def _row(program: Program) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(program, name) for name in Program.__slots__}
    row = {name: value for name, value in row.items() if _OPTIONAL.get(name) != value}
    for name in _TENSORS:
        if name in row:
            row[name] = [[t.element, t.shape, t.data.hex()] for t in row[name]]
    return row


def _program(row: dict[str, Any]) -> Program:
    for name in _TENSORS:
        row[name] = tuple(_tensor(*each) for each in row.get(name, ()))
    program = Program(**{**row, "oracle": tuple(row["oracle"])})
    if program.compare not in (VALUES, ANYTHING, REPEATABLE):
        raise ValueError(f"{program.name} is to be compared by {program.compare!r}")
    return program


def _tensor(element: str, shape: list[int], data: str) -> CorpusTensor:
    tensor = CorpusTensor(element, tuple(shape), bytes.fromhex(data))
    nbytes = math.prod(shape) * dtype_of(element).itemsize
    if len(tensor.data) != nbytes:
        raise ValueError(f"a {tensor.type} of {len(tensor.data)} bytes, which takes {nbytes}")
    return tensor
