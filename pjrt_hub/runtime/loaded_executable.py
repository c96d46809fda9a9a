"""Loaded executables (layer 2): compiled programs, ready to call.

Owns what a program tells about itself and the words for refused arguments; checking and running
are the compiled call path's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pjrt_hub._capi import hotpath, irregular
from pjrt_hub.errors import ClosedError, UnimplementedError, UnsupportedByPluginError
from pjrt_hub.runtime import display, dtypes, pickled
from pjrt_hub.runtime.buffer import Buffer
from pjrt_hub.runtime.device import Device
from pjrt_hub.runtime.signature import Signature

if TYPE_CHECKING:
    from pjrt_hub.runtime.client import Client


class LoadedExecutable(hotpath.LoadedExecutable):
    """A `PJRT_LoadedExecutable`: a program compiled for and loaded on the devices of one client.

    `exe(a, b)` runs it on one device: it never waits, and gives one Buffer for one output and a
    tuple of them otherwise; `exe(a, b, simplify=False)` gives always a tuple. Every argument must
    be a Buffer of the same client and device, with the parameter's dtype and shape, neither
    deleted nor donated; anything else raises TypeError, ValueError or ClosedError before the
    plugin is called, because plugins compare only byte counts.

    Attributes:
        client: the client that it belongs to.
        devices: the devices that it runs on, in the order of `execute`'s rows.
        signature: what it takes and gives on one device.
        closed: whether it was closed, itself or with its client, or the process forked since.
    """

    #: What it was loaded from: what a plugin serializes of such an executable may not load again.
    _origin: bytes | None = None

    client: Client
    devices: tuple[Device, ...]
    signature: Signature

    @classmethod
    def _load(cls, client: Client, address: int) -> LoadedExecutable:
        """Takes over a native executable; on any failure it is destroyed."""
        executable = cls()
        try:
            devices = tuple(
                client._device(each)
                for each in client._call(
                    "PJRT_LoadedExecutable_AddressableDevices", executable=address
                )
            )
            with _view(client, address) as view:
                signature = _signature(client, view)
        except BaseException:
            client.api.call("PJRT_LoadedExecutable_Destroy", executable=address)
            raise
        executable.signature = signature
        executable._bind(client, address, Buffer, signature.parameters, signature.outputs, devices)
        return executable

    def execute(
        self,
        arguments: Sequence[Sequence[Buffer]],
        *,
        launch_id: int = 0,
        non_donatable: Sequence[int] = (),
    ) -> list[tuple[Buffer, ...]]:
        """Runs it on all its devices (`PJRT_LoadedExecutable_Execute`), without waiting.

        Args:
            arguments: a row of buffers for each device, in the order of `devices`.
            launch_id: groups the launches of several processes.
            non_donatable: indices of arguments that must not be donated though the program would.

        Returns:
            The outputs of each device.

        Raises:
            TypeError: a wrong number of rows or arguments, no Buffer, or a wrong dtype.
            ValueError: a wrong shape, layout, device or client, or no such argument to keep.
            ClosedError: something deleted, donated or closed.
        """
        rows = tuple(tuple(row) for row in arguments)
        count = len(self.signature.parameters)
        for index in non_donatable:  # the plugin would ignore it, and donate
            if not 0 <= index < count:
                raise ValueError(f"non_donatable names argument {index}, of {count} from 0")
        return list(self._execute(rows, launch_id, tuple(non_donatable)))

    @cached_property
    def name(self) -> str:
        """The program's name (`PJRT_Executable_Name`)."""
        return str(self._ask("PJRT_Executable_Name").decode())

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the compiled code (`PJRT_Executable_Fingerprint`).

        Raises:
            UnimplementedError: the plugin has none.
        """
        return str(self._ask("PJRT_Executable_Fingerprint").decode("utf-8", "replace"))

    def cost_analysis(self) -> dict[str, float]:
        """The compiler's estimates: "flops", ... (`PJRT_Executable_GetCostAnalysis`)."""
        costs: dict[str, float] = self._ask("PJRT_Executable_GetCostAnalysis")
        return costs

    def memory_stats(self) -> dict[str, int]:
        """Bytes of code, arguments, ... (`PJRT_Executable_GetCompiledMemoryStats`)."""
        stats = vars(self._ask("PJRT_Executable_GetCompiledMemoryStats"))
        return {name: value for name, value in stats.items() if value is not None}

    def serialize(self) -> bytes:
        """The compiled code, for `Client.load` of the same plugin (`PJRT_Executable_Serialize`).

        A header that names the platform, the plugin and the machine stands before the plugin's own
        bytes; `runtime.serialized.read` takes them apart. An executable that was loaded gives the
        bytes that it was loaded from.
        """
        with self._viewed() as view:
            if self._origin is not None:
                return self._origin
            code = irregular.serialized(
                self.client.api, "PJRT_Executable_Serialize", executable=view
            )
            return self.client.guards.seal(code)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as `serialize`, and loads on a client of the same plugin in the other process.

        That is the oldest open one with the same create options, or a new one.
        """
        return pickled.of_executable(self)

    def optimized_program(self) -> tuple[bytes, str]:
        """The program after the compiler, with its format (`PJRT_Executable_OptimizedProgram`)."""
        with self._viewed() as view:
            return irregular.optimized_program(self.client.api, view)

    def _ask(self, function: str) -> Any:
        with self._viewed() as view:
            return self.client.api.call(function, executable=view)

    @contextmanager
    def _viewed(self) -> Iterator[int]:
        with self.client._in_call():
            self._check()
            with _view(self.client, self._address) as view:
                yield view

    def _reject(self, index: int, argument: object) -> None:
        """Raises for an argument that the call path refused."""
        slot = self.signature.parameters[index]
        what = f"argument {index} of {len(self.signature.parameters)} must be {slot}"
        if not isinstance(argument, Buffer):
            raise TypeError(
                f"{what} in a Buffer, not {type(argument).__name__}\n\n"
                "hint: client.buffer_from_host(array) makes a buffer of an array"
            )
        if argument.is_deleted:
            raise ClosedError(f"argument {index} is a buffer that was deleted or donated")
        if argument.client is not self.client:
            raise ValueError(
                f"argument {index} is a buffer of another client ({argument.client!r}) than the "
                f"program ({self.client!r})"
            )
        if argument._dtype != slot.dtype:
            given = dtypes.of_code(argument._dtype).name
            raise TypeError(f"{what}, the buffer has elements of {given}")
        if argument.shape != slot.shape:
            raise ValueError(f"{what}, the buffer has the shape {argument.shape}")
        if argument.device not in self.devices:
            places = ", ".join(map(str, self.devices))
            raise ValueError(
                f"argument {index} is on {argument.device}, the program runs on {places}\n\n"
                "hint: buffer.copy_to_device(device) moves it"
            )
        if argument.layout != (slot.layout or tuple(range(len(slot.shape) - 1, -1, -1))):
            raise ValueError(
                f"{what} with dimensions in the order {slot.layout or 'row-major'}, the buffer has "
                f"{argument.layout}\n\nhint: client.buffer_from_host(numpy.asarray(buffer)) lays "
                "it out anew"
            )
        raise ValueError(f"argument {index} is on {argument.device}, its row is for another device")

    def _refuse_deleted(self, arguments: tuple[Buffer, ...]) -> None:
        """Raises if an argument was donated earlier: the plugin's own words for it are vague."""
        for index, argument in enumerate(arguments):
            if argument.is_deleted:
                raise ClosedError(
                    f"argument {index} is a buffer that was deleted or donated",
                    hint="a program that donates an argument takes its memory: keep the output",
                )

    def _repr_html_(self) -> str:
        return display.html_of_executable(self)

    def __repr__(self) -> str:
        if self.closed:
            return "<LoadedExecutable closed>"
        places = ", ".join(map(str, self.devices))
        return f"<LoadedExecutable {self.name} {self.signature} on {places}>"


@contextmanager
def _view(client: Client, address: int) -> Iterator[int]:
    """The `PJRT_Executable` inside a loaded one.

    On the XLA CPU plugin it only views the loaded one and using it after that crashes, so it is
    fetched for each question and freed at once.
    """
    with client._in_call():
        view = client.api.call("PJRT_LoadedExecutable_GetExecutable", loaded_executable=address)
        try:
            yield view
        finally:
            client.api.call("PJRT_Executable_Destroy", executable=view)


def _signature(client: Client, view: int) -> Signature:
    try:
        return Signature.of_optimized(*irregular.optimized_program(client.api, view))
    except UnimplementedError as exc:
        raise UnsupportedByPluginError(
            "the plugin does not tell what a compiled program takes, so arguments cannot be "
            "checked and a wrong one would crash or give a wrong result",
            function="PJRT_Executable_OptimizedProgram",
            since="0.57",
            have=str(client.api.version),
        ) from exc
