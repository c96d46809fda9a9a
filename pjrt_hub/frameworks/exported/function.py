"""An exported function, as its file tells it: data, of any exporter.

Must not touch a plugin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.base.fork import cached_property
from pjrt_hub.frameworks.exported.aval import Aval
from pjrt_hub.frameworks.exported.tree import Tree
from pjrt_hub.running.program.bytecode import Uses, uses
from pjrt_hub.running.program.program import Program

if TYPE_CHECKING:
    from pathlib import Path

#: MLIR's bytecode begins with these bytes.
MLIR_BYTECODE = b"ML\xefR"


class PortableProgram(Program):
    """The program of an exported function, which asks `obstacle` what a plugin reads.

    Exporters stamp the version of StableHLO that they write for, not the one that a program needs:
    JAX 0.10 stamps 1.15.0 on what a plugin of 1.13.3 runs.
    """

    def require_readable(self, api: Any) -> None:
        """Refuse nothing: that was asked before."""


class Weight(NamedTuple):
    """An argument that is kept beside the program.

    Attributes:
        path: of its .npy file.
        name: as its exporter has it.
        aval: its type.
    """

    path: Path
    name: str
    aval: Aval


@dataclass(frozen=True)
class ExportedFunction:
    """What an artifact says about itself.

    Attributes:
        origin: the file, for messages.
        exporter: "jax.export" or "torch_xla.stablehlo".
        function_name: of the function that was exported.
        program: what is compiled.
        in_tree: the arguments: a tuple of the positional ones and a dict of those by name.
        inputs: one for each leaf of `in_tree`.
        out_tree: the result.
        outputs: one for each leaf of `out_tree`.
        arguments: of the program in order, after the platform's number where there is one: the
            number of an input, or a weight.
        platforms: that it was exported for, in JAX's names; empty where it does not say.
        calling_convention_version: of jax.export; None elsewhere.
        ordered_effects: that must happen in order, such as printing.
        unordered_effects: that may happen in any order.
        disabled_checks: what the exporter was told to let pass, "platform" or a custom call.
        nr_devices: that it was exported for.
        uses_global_constants: whether its module has symbolic dimensions or other values that are
            to be replaced by constants.
        jax_version: that exported it, where it says.
    """

    origin: str
    exporter: str
    function_name: str
    program: Program
    in_tree: Tree
    inputs: tuple[Aval, ...]
    out_tree: Tree
    outputs: tuple[Aval, ...]
    arguments: tuple[int | Weight, ...]
    platforms: tuple[str, ...] = ()
    calling_convention_version: int | None = None
    ordered_effects: tuple[str, ...] = ()
    unordered_effects: tuple[str, ...] = ()
    disabled_checks: tuple[str, ...] = ()
    nr_devices: int = 1
    uses_global_constants: bool = False
    jax_version: str = ""

    @property
    def stablehlo_version(self) -> str:
        """Of the program, "1.8.0"; empty where it does not say."""
        version = self.program.stablehlo_version
        return ".".join(map(str, version)) if version else ""

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

    @cached_property
    def input_paths(self) -> tuple[str, ...]:
        """Where each input is: "args[0]['w']", or "x" for one that is passed by name."""
        positional, named = self.in_tree.children
        return (*positional.paths("args"), *named_paths(named))

    @cached_property
    def output_paths(self) -> tuple[str, ...]:
        """Where each output is: "result['y']"."""
        return tuple(self.out_tree.paths("result"))


def named_paths(named: Tree) -> tuple[str, ...]:
    """Return the paths of what is passed by name."""
    found: list[str] = []
    for key, child in zip(named.keys, named.children, strict=True):
        found.extend(child.paths(key))
    return tuple(found)
