"""Plugins written in Python: what an author fills in.

A `Backend` says what devices there are and compiles programs; an `Executable` runs one. The
compiled part manages buffers, events, lifetimes and the C API, and asks through `bridge`.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pjrt_hub.running.program import hlo
from pjrt_hub.running.program.signature import Signature, Slot, tuple_shape

if TYPE_CHECKING:
    import numpy

__all__ = ["Backend", "Device", "Executable", "Program", "Signature", "Slot"]

#: The types that an attribute of a device, a backend or a plugin may have.
Attribute = str | int | float | bool | Sequence[int]


@dataclass(frozen=True, slots=True)
class Device:
    """One device, with one memory, of kind "device".

    Attributes:
        id: the device's number, distinct among the backend's devices.
        kind: what hosts show: "H100", "cpu".
        attributes: passed to hosts unchanged.
        process_index: the process that owns the device; those of others are only described.
    """

    id: int
    kind: str = "python"
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    process_index: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """A program that the host asks to compile.

    Attributes:
        code: the program.
        format: one of `Backend.formats`.
        options: a CompileOptionsProto, as the host gave it; `CompileOptions.parse` reads one.
        num_replicas: copies of the program that run together.
        num_partitions: parts that it is split into.
        device_ids: the device of each part, replica by replica; empty for a portable program.
    """

    code: bytes
    format: str
    options: bytes
    num_replicas: int
    num_partitions: int
    device_ids: tuple[int, ...]


class Executable(abc.ABC):
    """A program that you compiled: it runs when the host calls it.

    Attributes:
        signature: such as `Signature((Slot.of("f32", (4,)),), (Slot.of("f32", (4,)),))`, with the
            numbers of donated parameters.
        name: the program's name.
        cost: what `PJRT_Executable_GetCostAnalysis` reports: "flops", "bytes accessed".
        code_size: bytes of generated code, or -1.
    """

    signature: Signature
    name: str = "main"
    cost: Mapping[str, float] = {}
    code_size: int = -1

    @abc.abstractmethod
    def execute(self, arguments: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """Run the program on all its devices.

        If the method also takes the keyword `non_donatable`, it gets the numbers of the parameters
        whose memory the host keeps in this call, though `signature.donated` may name them.

        Args:
            arguments: for each device an array for each parameter, read-only; or the handles that
                `Backend.put` returned, if the backend defines it.

        Returns:
            For each device an array for each output, of its dtype and shape; or handles that
            `Backend.get` takes.
        """

    def optimized(self) -> tuple[bytes, str]:
        """Return the compiled program and its format, "hlo"; hosts read the signature from it.

        By default a module of one opaque call, which has only the signature.
        """
        parameters, outputs = self.signature.parameters, self.signature.outputs
        result = outputs[0].serialize() if len(outputs) == 1 else tuple_shape(outputs)
        instructions = [
            hlo.Instruction(f"arg{i}", "parameter", each.serialize())
            for i, each in enumerate(parameters)
        ]
        operands = range(len(parameters))
        call = hlo.Instruction("result", "custom-call", result, operands, target="opaque")
        return hlo.module(self.name, [*instructions, call], self.signature.donated), "hlo"


def asks_what_is_kept(executable: Executable) -> bool:
    """Say whether an executable's `execute` takes `non_donatable`."""
    parameters = inspect.signature(executable.execute).parameters
    return "non_donatable" in parameters


class Backend:
    """A platform that you implement: it lists devices and compiles programs.

    Its methods report errors as exceptions: NotImplementedError, ValueError, or a `PjrtError`.

    Attributes:
        platform_name: the name by which hosts know the platform.
        platform_version: passed to hosts unchanged.
        options: names of the create options that `devices` reads; others are refused.
        formats: the formats that `compile` reads, "mlir" (StableHLO as text or bytecode) or
            "hlo" (an HloModuleProto); others are refused.
        attributes: the plugin's; hosts write StableHLO for its `stablehlo_current_version`.
        asynchronous: whether programs run on a thread of their own, so that hosts do not wait.
    """

    platform_name: str = "python"
    platform_version: str = "0"
    options: Collection[str] = ()
    formats: Collection[str] = ("mlir",)
    attributes: Mapping[str, Attribute] = {}
    asynchronous: bool = False

    def devices(self, options: Mapping[str, Any]) -> Sequence[Device]:
        """Return the devices of a new client, or of a topology.

        Args:
            options: the create options that the host gave, all of them known. A text that reads
                as a number, or as true or false, arrives as that.
        """
        return [Device(0)]

    def compile(self, program: Program) -> Executable:
        """Compile a program, or raise an exception, whose text the host sees.

        Args:
            program: its code, its format and its options.
        """
        raise NotImplementedError(f"{self.platform_name} compiles nothing")

    # A backend whose devices have memory of their own defines `put` and `get`, and `copy` if it can
    # copy directly. `Executable.execute` then gets what `put` returned.

    @property
    def own_memory(self) -> bool:
        """Whether buffers are handles that `put` returns, not host memory."""
        return type(self).put is not Backend.put

    def put(self, array: numpy.ndarray[Any, Any], device_id: int) -> Any:
        """Copy an array to a device and return a handle for it.

        Args:
            array: read-only, row-major.
            device_id: the id of one of `devices`.
        """
        raise NotImplementedError

    def get(self, handle: Any) -> numpy.ndarray[Any, Any]:
        """Return the array of a handle that `put` or a program made.

        Args:
            handle: the array's handle on its device.
        """
        raise NotImplementedError

    def copy(self, handle: Any, device_id: int) -> Any:
        """Copy an array to another device, by default through the host; return its handle there.

        Args:
            handle: the array's handle on its device.
            device_id: the destination.
        """
        return self.put(self.get(handle), device_id)
