"""StableHLO's reference interpreter, in a child process: what it cannot do ends the process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import elements
import numpy as np

from pjrt_hub.kit.conformance.corpus import CorpusTensor, Program, dtype_of, type_of


class Refusal(Exception):
    """The interpreter cannot run a program."""


class Interpreter:
    """A child that interprets; another where one died."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.communicate()
            self._child = None

    def results(
        self, program: Program, types: Sequence[tuple[str, tuple[int, ...]]]
    ) -> tuple[CorpusTensor, ...]:
        """What a program gives.

        Raises:
            Refusal: it gives nothing.
        """
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("interpreting.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self._child.stdin
        assert self._child.stdout
        self._child.stdin.write(json.dumps(_readable(program, types)) + "\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            self.__exit__()
            raise Refusal("it died")
        said = json.loads(answer)
        if "refusal" in said:
            raise Refusal(said["refusal"])
        values = iter(said["values"])
        return tuple(_tensor(values, element, shape) for element, shape in types)


def _readable(program: Program, types: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    """The program with results of types that Python's bindings can read: f64, i64 and ui64."""
    lines, outputs = [], []
    for place, (element, shape) in enumerate(types):
        parts = [f"%r{place}"]
        part, wide = element, "f64"
        if element in elements.COMPLEX:
            part = elements.part_of(element)
            parts = []
            for name in ("real", "imag"):
                lines.append(
                    f'%{name}{place} = "stablehlo.{name}"(%r{place}) : '
                    f"({type_of(element, shape)}) -> {type_of(part, shape)}"
                )
                parts.append(f"%{name}{place}")
        elif element not in elements.FLOATS + elements.SCALE:
            wide = "i64" if element in elements.SIGNED else "ui64"
        for name in parts:
            wider = f"{name}w"
            lines.append(
                f'{wider} = "stablehlo.convert"({name}) : '
                f"({type_of(part, shape)}) -> {type_of(wide, shape)}"
            )
            outputs.append((wider, type_of(wide, shape)))
    text = program.text(constants=True)
    body, _, end = text.partition("{\n")[2].partition("\n  return ")
    functions = end.partition("\n}\n")[2]
    types_out = ", ".join(kind for _, kind in outputs)
    names = ", ".join(name for name, _ in outputs)
    return (
        f"func.func @main() -> ({types_out}) {{\n{body}\n"
        + "\n".join(lines)
        + f"\nreturn {names} : {types_out}\n}}\n{functions}"
    )


def _tensor(values: Any, element: str, shape: tuple[int, ...]) -> CorpusTensor:
    if element in elements.COMPLEX:
        part = dtype_of(elements.part_of(element))
        both = [np.array(_floats(next(values)), part).reshape(shape) for _ in range(2)]
        return CorpusTensor.of(np.stack(both, -1).view(dtype_of(element)).reshape(shape), element)
    if element in elements.FLOATS + elements.SCALE:
        return elements.tensor(_floats(next(values)), element, *shape)
    return elements.tensor(next(values), element, *shape)


def _floats(texts: Sequence[str]) -> list[float]:
    return [float.fromhex(text) for text in texts]
