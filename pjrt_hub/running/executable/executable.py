"""Executables: programs compiled for devices that need not be there.

Owns what a compiled program tells about itself; it cannot run: `Client.load` loads its bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from pjrt_hub.base.fork import cached_property
from pjrt_hub.errors import ClosedError
from pjrt_hub.running.array import display, dtypes
from pjrt_hub.running.capi import irregular
from pjrt_hub.running.capi.handle import ClientHandle, Handle, free_with
from pjrt_hub.running.executable import signature_sources
from pjrt_hub.running.executable.facts import ExecutableFacts
from pjrt_hub.running.executable.serialized import Guards
from pjrt_hub.running.program.signature import Signature


class DescribedDevices(Handle, Protocol):
    """The topology of an executable: devices that need not be there; see `Topology`."""

    @property
    def client(self) -> ClientHandle | None: ...
    @property
    def platform_name(self) -> str: ...

    def _call(self, function: str, /, **inputs: Any) -> Any: ...
    def _reduce_executable(self, blob: bytes) -> tuple[Any, ...]: ...


class Executable(ExecutableFacts):
    """A program that `Topology.compile` compiled for another machine (`PJRT_Executable`).

    It is freed with the last reference to it.

    Attributes:
        topology: the devices that it was compiled for.
        api: the function table of its plugin.
    """

    __module__ = "pjrt_hub"

    def __init__(
        self, topology: DescribedDevices, address: int, program_signature: Signature | None
    ) -> None:
        self.topology = topology
        self.api = topology.api
        self.address = address
        self._program_signature = program_signature
        self._is_given_away = False
        free_with(self, topology._call, "PJRT_Executable_Destroy", executable=address)

    @cached_property
    def output_element_types(self) -> tuple[str, ...]:
        """The outputs' element types, "f32" (`PJRT_Executable_OutputElementTypes`)."""
        codes = self._ask("PJRT_Executable_OutputElementTypes")
        return tuple(dtypes.of_code(each).name for each in codes)

    @cached_property
    def output_dimensions(self) -> tuple[tuple[int, ...], ...]:
        """One device's shape of each output (`PJRT_Executable_OutputDimensions`)."""
        return tuple(self._ask("PJRT_Executable_OutputDimensions"))

    @cached_property
    def signature(self) -> Signature:  # type: ignore[override]
        """The arguments and results on one device, as far as the plugin and the program say.

        Raises:
            UnsupportedByPluginError: the number of outputs is unknown.
        """
        with self.view() as view:
            told = signature_sources.of_executable(self.api, view, self._program_signature)
        return signature_sources.require(told.signature, self.api)

    def serialize(self) -> bytes:
        """Return the compiled code, for `Client.load` (`PJRT_Executable_Serialize`).

        A header stands before the plugin's own bytes, as in `LoadedExecutable.serialize`.
        """
        with self.view() as view:
            code = irregular.serialize_executable(self.api, view)
        # The topology's version is not that of a client's machine, so no version is required.
        guards = Guards(
            platform=self.topology.platform_name,
            platform_version="",
            api_version=str(self.api.version),
            plugin_sha256=self.api.sha256,
        )
        return guards.seal(code)

    def report(self) -> str:
        """Return these facts on one page of text, without those that the plugin does not tell."""
        from pjrt_hub.running.executable import report  # Few programs ask for a report.

        return report.of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle `serialize()`; unpickling loads it on the oldest open client of the same plugin.

        If there is none, a client is made for it and kept, which may fail as for any client.
        """
        return self.topology._reduce_executable(self.serialize())

    @contextlib.contextmanager
    def view(self) -> Iterator[int]:
        """Give the address of its `PJRT_Executable` to a `with` block."""
        if self._is_given_away:
            raise ClosedError("the executable was given to a client, which loaded it")
        with self.topology._in_call():
            yield self.address

    @display.table
    def _repr_html_(self) -> Mapping[str, Any]:
        if self.topology.client is not None and self.topology.client.closed:
            return {}
        split = f"{self.num_replicas} replica(s) x {self.num_partitions} partition(s)"
        facts = {"Executable": self._title, **self._signature_rows()}
        return {**facts, "for": self.topology, "split": split}

    def __repr__(self) -> str:
        if self._is_given_away:
            return "<Executable given away>"
        if self.topology.client and self.topology.client.closed:
            return "<Executable closed>"
        return f"<Executable {self._title} for {self.topology}>"


def give_away(executable: Executable) -> tuple[int, Signature | None]:
    """Give a client the native executable, and its program's signature; the object is closed."""
    with executable.view() as view:
        executable._is_given_away = True
        return view, executable._program_signature
