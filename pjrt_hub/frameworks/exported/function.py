"""An exported function as data, as its file describes it, from any exporter.

Must not touch a plugin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pjrt_hub.base.fork import cached_property
from pjrt_hub.errors import NotRunnableError
from pjrt_hub.frameworks.exported.aval import Aval, evaluate
from pjrt_hub.frameworks.exported.contents import Contents
from pjrt_hub.frameworks.exported.tree import LEAF, Node, Tree
from pjrt_hub.running.program.bytecode import Uses, uses
from pjrt_hub.running.program.bytecode_constants import fix_first
from pjrt_hub.running.program.program import Program


class PortableProgram(Program):
    """The program of an exported function, for which `obstacle` decides what a plugin reads.

    Exporters stamp the version of StableHLO that they write for, not the one that a program needs:
    JAX 0.10 stamps 1.15.0 on what a plugin of 1.13.3 runs.
    """

    def require_readable(self, api: Any) -> None:
        """Refuse nothing: `obstacle` decides that."""


#: A size in a template, or a number that a constant is multiplied with or divided by.
_PLACE = re.compile("«(?:(?P<factor>[^»*/]+)(?P<by>[*/])=)?(?P<size>[^»]+)»")


class TemplateProgram(PortableProgram):
    """A program for any sizes: text with expressions, «2*b», and with numbers, «0.5*=b», «1.0/=b».

    The second form stands for a float: 0.5 times b, or 1.0 divided by b.
    """

    def at(self, sizes: Mapping[str, int]) -> Program:
        """Return the program for these sizes; a size that is missing raises ValueError."""

        def put(place: re.Match[str]) -> str:
            size = evaluate(place["size"], sizes)
            if place["factor"] is None:
                return str(size)
            factor = float(place["factor"])
            return f"{factor * size if place['by'] == '*' else factor / size:.17e}"

        text = _PLACE.sub(put, self.code.decode())
        return PortableProgram(text.encode(), self.format, self.origin)


class Weight(NamedTuple):
    """An argument that is kept beside the program."""

    path: Path  # The path of the weight's .npy file, or of a safetensors file that holds it.
    name: str  # The name that the exporter gave to it.
    aval: Aval


class Constant(NamedTuple):
    """An argument that was a constant of the program."""

    contents: Contents  # The file that holds it.
    start: int  # The place of its first byte there.
    aval: Aval


@dataclass(frozen=True)
class ExportedFunction:
    """An exported function, as its file describes it.

    The program may take the number of a platform before its arguments.
    """

    origin: str  # The name of the file in messages.
    exporter: str  # "jax.export", "torch_xla.stablehlo" or "torch.export".
    function_name: str
    program: Program
    in_tree: Tree  # A tuple of the positional arguments and a dict of those by name.
    inputs: tuple[Aval, ...]  # One for each leaf of `in_tree`.
    out_tree: Tree
    outputs: tuple[Aval, ...]  # One for each leaf of `out_tree`.
    #: What the program takes: inputs' numbers, and what the function brings itself.
    arguments: tuple[int | Weight | Constant, ...]
    platforms: tuple[str, ...] = ()  # By JAX's names; empty if the file names none.
    calling_convention_version: int | None = None  # The number in jax.export, or None.
    ordered_effects: tuple[str, ...] = ()  # Effects that must happen in order, such as printing.
    unordered_effects: tuple[str, ...] = ()  # Effects that may happen in any order.
    disabled_checks: tuple[str, ...] = ()  # What was not checked: "platform" or a custom call.
    nr_devices: int = 1  # The number of devices that it was exported for.
    ranges: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)  # Bounds of symbols.
    uses_global_constants: bool = False  # Whether symbolic values become constants.
    jax_version: str = ""  # The version of JAX that exported it, if known.

    @property
    def stablehlo_version(self) -> str:
        """The StableHLO version of the program, "1.8.0"; empty if the program does not say."""
        version = self.program.stablehlo_version
        return ".".join(map(str, version)) if version else ""

    def for_platform(self, index: int) -> ExportedFunction:
        """Return the function for one of its platforms, whose number its program does not take.

        The branches of the others are then never taken, which compilers see. A malformed program
        raises NotRunnableError.
        """
        if len(self.platforms) < 2:
            return self
        code = fix_first(self.program.code, index)
        if code is None:
            raise NotRunnableError(
                f"{self.origin} has a program that cannot be made one for {self.platforms[index]}",
                hint=f"export it again, with platforms=[{self.platforms[index]!r}]",
            )
        program = PortableProgram(code, "mlir", self.origin)
        return replace(self, platforms=(self.platforms[index],), program=program)

    def program_at(self, sizes: Mapping[str, int]) -> Program:
        """Return the program for sizes of symbolic dimensions; it may still have them itself.

        A size that the function was not exported for raises ValueError.
        """
        for name, (least, most) in self.ranges.items():
            if name in sizes and not least <= sizes[name] <= (most or sizes[name]):
                raise ValueError(
                    f"{name} is {sizes[name]}; {self.origin} was exported for {least} to "
                    f"{most or 'any size'}"
                )
        program = self.program
        return program.at(sizes) if isinstance(program, TemplateProgram) else program

    @cached_property
    def uses(self) -> Uses | None:
        """The operations and custom calls of its program; None where they cannot be read."""
        return uses(self.program.code)

    @property
    def custom_calls(self) -> tuple[str, ...]:
        """The functions that its program calls by name, those of all platforms."""
        return self.uses.custom_calls if self.uses else ()

    @property
    def is_symbolic(self) -> bool:
        """Whether an input has symbolic dimensions."""
        return not all(each.is_static for each in self.inputs)

    def input_nodes(self) -> Iterator[Node]:
        """Yield the arguments and all that they hold: "args[0]['w']", or "x" if passed by name."""
        positional, named = self.in_tree.children
        by_place = ((f"args{step}", child) for step, child in positional.steps())
        first = 0
        for path, child in (*by_place, *zip(named.keys, named.children, strict=True)):
            yield from child.nodes(path, first)
            first += child.count

    @cached_property
    def input_paths(self) -> tuple[str, ...]:
        """Where each input is, as `input_nodes` says."""
        return tuple(each.path for each in self.input_nodes() if each.tree.kind == LEAF)

    @cached_property
    def output_paths(self) -> tuple[str, ...]:
        """Where each output is: "result['y']"."""
        return tuple(self.out_tree.paths("result"))
