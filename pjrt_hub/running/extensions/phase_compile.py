"""Phase compile: a compiler run phase by phase (extension PhaseCompile).

What passes between phases is a PjRtPartialProgramProto; the code in it is the plugin's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pjrt_hub.base.fork import cached_property
from pjrt_hub.running.capi import irregular, wire
from pjrt_hub.running.capi.handle import Handle, free_with
from pjrt_hub.running.capi.library import Api
from pjrt_hub.running.program.compile_options import CompileOptions
from pjrt_hub.running.program.program import Program

# The numbers of the fields of PjRtPartialProgramProto.
_CODE, _FORMAT, _PHASE, _NEXT, _NAME = 1, 2, 3, 4, 6
_TEXTS = (_FORMAT, _PHASE, _NEXT, _NAME)


class PartialProgram(NamedTuple):
    """A part of a program, between two phases.

    Attributes:
        code: as the phase left it.
        format: the plugin's word for that, "" where it says none.
        generating_phase: the phase that gave it.
        next_phases: the phases that take it.
        name: which of the parts of a program it is: some phases want several, in an order.
    """

    code: bytes
    format: str
    generating_phase: str
    next_phases: tuple[str, ...]
    name: str

    @classmethod
    def read(cls, serialized: bytes) -> PartialProgram:
        """Read a part that `PhaseCompiler.run` returned.

        Args:
            serialized: the bytes.

        Raises:
            ValueError: the bytes are something else.
        """
        found: dict[int, list[bytes]] = {number: [] for number in (_CODE, *_TEXTS)}
        for number, value in wire.fields(memoryview(serialized)):
            if number in found and not isinstance(value, int):
                found[number].append(bytes(value))
        code, *last = (b"".join(found[each][-1:]) for each in (_CODE, _FORMAT, _PHASE, _NAME))
        format, phase, name = (each.decode() for each in last)
        return cls(code, format, phase, tuple(each.decode() for each in found[_NEXT]), name)


class PhaseCompiler:
    """A compiler that is run phase by phase (`PJRT_PhaseCompiler`).

    It is freed with the last reference to it.
    """

    def __init__(self, api: Api) -> None:
        """Get the plugin's compiler (`PJRT_PhaseCompile_Get_Compiler`).

        Raises:
            UnsupportedByPluginError: the plugin compiles in one go only (XLA's CPU plugin has the
                extension without a compiler in it).
        """
        self._api = api
        call = api.extension("PhaseCompile").call
        self.address: int = call("PJRT_PhaseCompile_Get_Compiler")
        free_with(self, call, "PJRT_PhaseCompile_Destroy_Compiler", phase_compiler=self.address)

    @cached_property
    def phase_names(self) -> tuple[str, ...]:
        """The phases in their order (`PJRT_PhaseCompile_Get_PhaseNames`)."""
        names = irregular.phase_texts(
            self._api, "PJRT_PhaseCompile_Get_PhaseNames", phase_compiler=self.address
        )
        return tuple(name.decode() for name in names)

    def run(
        self,
        programs: Sequence[bytes | Program],
        phases: Sequence[str],
        topology: Handle,
        options: CompileOptions | None = None,
    ) -> tuple[bytes, ...]:
        """Run some phases (`PJRT_PhaseCompile_Run_Phase`).

        Args:
            programs: for the first phase a `Program`; for others what earlier phases gave, all that
                they need and in their order. `PartialProgram.read` tells which one is what.
            phases: some of `phase_names`, in their order.
            topology: of this plugin: the devices to compile for.
            options: see `CompileOptions`.

        Returns:
            The programs for the next phase.

        Raises:
            ValueError: no program, no or an unknown phase, or a topology of another plugin.
            PjrtError: a program is not what the phase takes, or cannot be compiled.
        """
        if not programs or not phases:
            raise ValueError("there is no program, or no phase to run it through")
        unknown = [name for name in phases if name not in self.phase_names]
        if unknown:
            known = ", ".join(self.phase_names)
            raise ValueError(f"the plugin has no phase {unknown[0]!r}, it has {known}")
        if topology.api is not self._api:
            raise ValueError(f"{topology!r} belongs to another plugin than the compiler")
        with topology._in_call():
            programs_after = irregular.phase_texts(
                self._api,
                "PJRT_PhaseCompile_Run_Phase",
                phase_compiler=self.address,
                input_programs=[_partial(program) for program in programs],
                phases_to_run=list(phases),
                compile_options=(options or CompileOptions()).serialize(),
                topology=topology.address,
            )
        return tuple(programs_after)


def _partial(program: bytes | Program) -> bytes:
    if isinstance(program, Program):
        return wire.length_delimited(_CODE, program.code)
    return bytes(memoryview(program))
