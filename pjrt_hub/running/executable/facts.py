"""Facts: what a `PJRT_Executable` tells about itself, loaded or not.

Owns the questions; a subclass owns the executable and gives its address.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.base.fork import cached_property
from pjrt_hub.errors import UnsupportedByPluginError
from pjrt_hub.running.capi import irregular
from pjrt_hub.running.capi.library import Api
from pjrt_hub.running.capi.status import answer_or_none
from pjrt_hub.running.program import hlo
from pjrt_hub.running.program.compile_options import CompileOptions
from pjrt_hub.running.program.program import Program
from pjrt_hub.running.program.signature import Signature

if TYPE_CHECKING:
    import numpy


class Parameter(NamedTuple):
    """One parameter of a compiled program, on one device.

    Attributes:
        name: the compiler's name for it, "" if it has none.
        dtype: as `Buffer.dtype`; None if unknown.
        element_type: as `Buffer.element_type`; None if unknown.
        shape: one device's dimensions; None if unknown.
        layout: minor_to_major; None if unknown.
        donated: whether a call may take the argument's memory.
    """

    name: str
    dtype: numpy.dtype[Any] | None
    element_type: str | None
    shape: tuple[int, ...] | None
    layout: tuple[int, ...] | None
    donated: bool


Parameter.__module__ = "pjrt_hub"  # Type checkers refuse this assignment in a NamedTuple.


class ExecutableFacts:
    """Base of executables: `view` gives the `PJRT_Executable` while it is used."""

    api: Api
    signature: Signature
    #: The options that it was compiled with, where they are known without the plugin.
    _given_options: CompileOptions | None = None

    def view(self) -> AbstractContextManager[int]:
        """Give the address of its `PJRT_Executable` to a `with` block."""
        raise NotImplementedError

    @cached_property
    def name(self) -> str:
        """The program's name (`PJRT_Executable_Name`)."""
        return self._ask("PJRT_Executable_Name").decode()

    @cached_property
    def fingerprint(self) -> str:
        """An id of the compiled code (`PJRT_Executable_Fingerprint`); non-ASCII bytes are escaped.

        Raises:
            UnimplementedError: the plugin has no fingerprint.
        """
        return self._ask("PJRT_Executable_Fingerprint").decode("ascii", "backslashreplace")

    @cached_property
    def num_replicas(self) -> int:
        """The number of copies of the program that run together (`PJRT_Executable_NumReplicas`)."""
        return self._ask("PJRT_Executable_NumReplicas")

    @cached_property
    def num_partitions(self) -> int:
        """The number of parts that the program was split into (`PJRT_Executable_NumPartitions`)."""
        return self._ask("PJRT_Executable_NumPartitions")

    @property
    def generated_code_nbytes(self) -> int:
        """Bytes of code; 0 or -1 if unknown (`PJRT_Executable_SizeOfGeneratedCodeInBytes`)."""
        return self._ask("PJRT_Executable_SizeOfGeneratedCodeInBytes")

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters on one device, as in `signature`, with their names.

        Raises:
            UnsupportedByPluginError: neither the program nor the plugin tells how many there are.
        """
        signature = self.signature
        if signature.open:
            raise UnsupportedByPluginError(
                "the program cannot be read, and the plugin does not report what it takes",
                function="PJRT_Executable_ParameterMemoryKinds",
                since="0.102",
                have=str(self.api.version),
            )
        names: Iterable[str] = signature.names or [""] * len(signature.parameters)
        return tuple(
            Parameter(
                name,
                slot.dtype,
                slot.element_type,
                slot.shape,
                slot.order,
                index in signature.donated,
            )
            for index, (name, slot) in enumerate(zip(names, signature.parameters, strict=True))
        )

    @cached_property
    def parameter_memory_kinds(self) -> tuple[str, ...]:
        """The kind of memory of each parameter (`PJRT_Executable_ParameterMemoryKinds`, 0.102).

        Raises:
            UnsupportedByPluginError: the plugin is older.
            UnimplementedError: the plugin does not tell.
        """
        return tuple(kind.decode() for kind in self._ask("PJRT_Executable_ParameterMemoryKinds"))

    @cached_property
    def output_memory_kinds(self) -> tuple[str, ...]:
        """The kind of memory of each output (`PJRT_Executable_OutputMemoryKinds`).

        Raises:
            UnimplementedError: the plugin does not tell (XLA's CPU plugin of 0.81).
        """
        return tuple(kind.decode() for kind in self._ask("PJRT_Executable_OutputMemoryKinds"))

    @cached_property
    def compile_options(self) -> CompileOptions:
        """The options that it was compiled with (`PJRT_Executable_GetCompileOptions`, 0.87).

        A plugin that is older is not asked: the options are then those that `compile` was given.

        Raises:
            UnsupportedByPluginError: the plugin is older, and the executable was loaded from bytes.
        """
        function = "PJRT_Executable_GetCompileOptions"
        if self._given_options is not None and not self.api.has(function):
            return self._given_options
        return CompileOptions.parse(self._ask(function))

    def cost_analysis(self) -> dict[str, float] | None:
        """Return the compiler's estimates: "flops", ... (`PJRT_Executable_GetCostAnalysis`).

        Returns:
            Numbers by the compiler's own names; None if the plugin does not count.
        """
        return answer_or_none(lambda: self._ask("PJRT_Executable_GetCostAnalysis"))

    def memory_stats(self) -> dict[str, int] | None:
        """Return bytes of code, arguments, ... (`PJRT_Executable_GetCompiledMemoryStats`).

        Returns:
            Bytes by the names of the C struct; None if the plugin does not count.
        """
        stats = answer_or_none(lambda: vars(self._ask("PJRT_Executable_GetCompiledMemoryStats")))
        return stats and {name: value for name, value in stats.items() if value is not None}

    def optimized_program(self) -> Program:
        """Return what the compiler made of the program (`PJRT_Executable_OptimizedProgram`).

        XLA's plugins answer with an HloModuleProto, here without the configuration around it:
        `pjrt_hub.signature` reads it, and `client.compile` takes it. Other plugins may have formats
        of their own.

        Raises:
            UnimplementedError: the plugin does not give one.
        """
        with self.view() as view:
            code, form = irregular.optimized_program(self.api, view)
        if form == "hlo_with_config":
            with suppress(ValueError):
                code, form = bytes(hlo.module_in(code, form)), "hlo"
        return Program(code, form, f"the optimized {self._title}")

    @property
    def _title(self) -> str:
        """The name if the plugin tells one, else "program"."""
        return answer_or_none(lambda: self.name) or "program"

    def _ask(self, function: str) -> Any:
        with self.view() as view:
            return self.api.call(function, executable=view)

    def _signature_rows(self) -> dict[str, str]:
        """Return parameters and outputs as rows of a table, if the plugin tells them."""
        signature = answer_or_none(lambda: self.signature)
        if signature is None:
            return {}
        takes, gives = ("\n".join(map(str, s)) for s in (signature.parameters, signature.outputs))
        return {"takes": takes, "gives": gives}
