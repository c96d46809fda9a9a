"""A program before its results are settled: the text, the arguments, and what ours should be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from interpreter import Interpreter, Refusal

from pjrt_hub.kit.conformance import corpus, numerics
from pjrt_hub.kit.conformance.corpus import CorpusTensor, Program, type_of

Type = tuple[str, tuple[int, ...]]


class Disagreement(Exception):
    """Two oracles do not give the same results."""


@dataclass(frozen=True)
class Draft:
    """One program to be.

    Attributes:
        op: see `Program`, as all that is not here.
        types: of its results.
        results: by an oracle of ours; None leaves them to the reference interpreter.
        oracle: which of ours, "exact" or "numpy".
        interpreted: whether the reference interpreter is asked.
    """

    op: str
    kind: str
    body: str
    arguments: tuple[CorpusTensor, ...]
    types: tuple[Type, ...]
    results: tuple[CorpusTensor, ...] | None = None
    oracle: str = "numpy"
    variant: str = ""
    functions: str = ""
    flushed: tuple[CorpusTensor, ...] = ()
    compare: str = corpus.VALUES
    terms: int = 0
    interpreted: bool = True

    def settle(self, interpreter: Interpreter) -> Program:
        """Ask the reference interpreter, and make the program.

        Raises:
            Disagreement: it gives other results than our oracle.
            Refusal: it gives none, and there is no other oracle.
        """
        said: tuple[CorpusTensor, ...] | None = None
        if self.interpreted and self.compare == corpus.VALUES:
            try:
                said = interpreter.results(self._program(self._blank(), ()), self.types)
            except Refusal:
                if self.results is None:
                    raise
        if self.results is None:
            return self._program(said or self._blank(), ("stablehlo",) if said else ())
        if said is None:
            return self._program(self.results, (self.oracle,))
        program = self._program(self.results, (self.oracle, "stablehlo"))
        for ours, theirs, within in zip(self.results, said, program.tolerances, strict=True):
            off = numerics.difference(theirs.array, ours.array, within)
            if off is not None:
                arguments = [tensor.array.tolist() for tensor in self.arguments]
                at = [each[off.index[0]] for each in arguments if each and off.index]
                raise Disagreement(f"{off}; given {at}")
        return program

    def _program(self, results: Sequence[CorpusTensor], oracle: tuple[str, ...]) -> Program:
        return Program(
            op=self.op,
            kind=self.kind,
            variant=self.variant,
            body=self.body,
            arguments=self.arguments,
            results=tuple(results),
            oracle=oracle,
            functions=self.functions,
            flushed=self.flushed,
            compare=self.compare,
            terms=self.terms,
        )

    def _blank(self) -> tuple[CorpusTensor, ...]:
        return tuple(_zeros(*each) for each in self.types)


def call(
    op: str,
    operands: Sequence[CorpusTensor | Type],
    results: Sequence[Type],
    *,
    attributes: str = "",
    regions: str = "",
    first_operand: int = 0,
) -> str:
    """One op in MLIR's generic form, of %a0, %a1 ..., giving %r0, %r1 ..."""
    given = ", ".join(f"%a{first_operand + i}" for i in range(len(operands)))
    types = ", ".join(
        each.type if isinstance(each, CorpusTensor) else type_of(*each) for each in operands
    )
    outputs = ", ".join(type_of(*each) for each in results)
    outputs = outputs if len(results) == 1 else f"({outputs})"
    names = ", ".join(f"%r{i}" for i in range(len(results)))
    inside = f" ({regions})" if regions else ""
    inside += f" {{{attributes}}}" if attributes else ""
    return f'{names} = "stablehlo.{op}"({given}){inside} : ({types}) -> {outputs}'


def region(op: str, element: str) -> str:
    """A region that gives one op of two scalars."""
    scalar = type_of(element, ())
    return (
        f"{{\n^bb0(%x: {scalar}, %y: {scalar}):\n"
        f'  %z = "stablehlo.{op}"(%x, %y) : ({scalar}, {scalar}) -> {scalar}\n'
        f'  "stablehlo.return"(%z) : ({scalar}) -> ()\n}}'
    )


def draft(
    op: str,
    kind: str,
    arguments: Sequence[CorpusTensor],
    results: Sequence[CorpusTensor] | Sequence[Type],
    *,
    body: str = "",
    attributes: str = "",
    regions: str = "",
    **more: Any,
) -> Draft:
    """A program of one op of all arguments, unless `body` says otherwise.

    Args:
        op: its name.
        kind: of the elements.
        arguments: what it is given.
        results: the right ones, or their types where only the interpreter knows them.
        body: the ops.
        attributes: of the op.
        regions: of the op.
        more: other attributes of a `Draft`.
    """
    known = [each for each in results if isinstance(each, CorpusTensor)]
    types = tuple((e.element, e.shape) if isinstance(e, CorpusTensor) else e for e in results)
    return Draft(
        op,
        kind,
        body or call(op, arguments, types, attributes=attributes, regions=regions),
        tuple(arguments),
        types,
        tuple(known) if len(known) == len(results) else None,
        **more,
    )


def together(drafts: Sequence[Draft]) -> Draft:
    """One program of several of the same op and kind: it costs one compilation."""
    lines, arguments = [], 0
    for place, each in enumerate(drafts):
        body = re.sub(r"%a(\d+)", lambda name, n=arguments: f"%a{int(name[1]) + n}", each.body)
        lines.append(body.replace("%r0", f"%r{place}"))
        arguments += len(each.arguments)
    return replace(
        drafts[0],
        variant="",
        body="\n".join(lines),
        arguments=tuple(tensor for each in drafts for tensor in each.arguments),
        types=tuple(kind for each in drafts for kind in each.types),
        results=tuple(tensor for each in drafts for tensor in each.results or ()),
    )


def array(values: Sequence[int], type_: str = "i64") -> str:
    """An attribute, "array<i64: 1, 2>"."""
    return f"array<{type_}{': ' if values else ''}{', '.join(str(v).lower() for v in values)}>"


def pairs(rows: Sequence[Sequence[int]]) -> str:
    """Pairs of numbers as an attribute, such as padding: "dense<[[0, 1]]> : tensor<1x2xi64>"."""
    listed = [[int(low), int(high)] for low, high in rows]
    return f"dense<{listed if listed else ''}> : tensor<{len(listed)}x2xi64>"


def _zeros(element: str, shape: tuple[int, ...]) -> CorpusTensor:
    import numpy as np

    return CorpusTensor.of(np.zeros(shape, corpus.dtype_of(element)), element)
