"""Which functions a plugin lacks: what is NULL, and what answers UNIMPLEMENTED.

Must not judge. Of a plugin that makes no client here, only the functions that are NULL are found.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pjrt_hub.errors import PjrtHubError, UnimplementedError
from pjrt_hub.kit.conformance.host import CACHED_PLATFORMS, TRAITS
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.running.capi import irregular, table
from pjrt_hub.running.capi.call_counter import CallCounter
from pjrt_hub.running.program.compile_options import CompileOptions

if TYPE_CHECKING:
    from pjrt_hub.kit.conformance.subject import Subject

#: `questions` leaves out functions with these words in their names: they end or change something.
_NOT_ASKED = ("_Destroy", "_Delete", "_Initialize", "ReferenceCount", "ControlDependency", "_Await")
#: Values are copied to this array; a plugin without `PJRT_Event_Await` may write after the call.
_host = np.zeros(4, np.float32)
_F32 = table.ENUMS["PJRT_Buffer_Type"]["PJRT_Buffer_Type_F32"]


@dataclass(slots=True)
class MissingFunctions:
    """The functions that a plugin lacks, and the traits that it has."""

    null: list[str] = field(default_factory=list)  # Functions past the table's end, or NULL.
    unimplemented: list[str] = field(default_factory=list)  # Functions that answer UNIMPLEMENTED.
    asked: bool = False  # Whether functions were called at all, which takes a client.
    traits: set[str] = field(default_factory=lambda: set(TRAITS))  # Unknown traits count, too.


@lru_cache(maxsize=1)  # The checks of all hosts call this with the same plugin.
def find_missing(subject: Subject) -> MissingFunctions:
    """Look at the table, and call functions of a client, a device, a buffer and a program."""
    walk = _Walk(subject)
    walk.found.null = [name for name in table.FUNCTIONS if not subject.api.has(name)]
    walk.take()
    return walk.found


class _Walk:
    """A walk with a program from its text to its values, which calls each function once."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.api = subject.api
        self.found = MissingFunctions()
        self.at: dict[str, int] = {}  # The handles that were made so far, by their C type.

    def take(self) -> None:
        # The plugin is initialized already, and is right if it answers that.
        self.on("PJRT_Plugin_Initialize")
        self.on("PJRT_Plugin_Attributes")
        self.on("PJRT_Client_Create", "Client", create_options=self.subject.options)
        if "Client" not in self.at:
            return
        self.found.asked = True
        self.devices()
        self.buffer()
        self.program()
        self.serialize()
        self.questions()
        self.traits()
        for kind in ("Event", "Buffer", "Executable", "LoadedExecutable", "Client"):
            if kind in self.at:
                self.destroy(kind, self.at[kind])

    def devices(self) -> None:
        devices = self.on("PJRT_Client_AddressableDevices", client="Client") or ()
        self.have("Device", next(iter(devices), None))
        self.on("PJRT_Device_GetDescription", "DeviceDescription", device="Device")
        number = self.on("PJRT_DeviceDescription_Id", device_description="DeviceDescription")
        self.on("PJRT_Client_LookupDevice", client="Client", id=number or 0)
        self.on("PJRT_Device_DefaultMemory", "Memory", device="Device")
        self.on("PJRT_Client_TopologyDescription", "TopologyDescription", client="Client")

    def buffer(self) -> None:
        """Put a value, and copy it back to the host."""
        value = np.arange(4, dtype=np.float32)
        given = {"data": value.ctypes.data, "type": _F32, "dims": (4,), "host_buffer_semantics": 0}
        name = "PJRT_Client_BufferFromHostBuffer"
        put = self.on(name, client="Client", device="Device", **given)
        self.have("Buffer", getattr(put, "buffer", None))
        self.have("Event", getattr(put, "done_with_host_buffer", None))
        if "Event" not in self.at:
            self.on("PJRT_Buffer_ReadyEvent", "Event", buffer="Buffer")
        callback = {"callback": CallCounter().address, "user_arg": 0}
        self.on("PJRT_Event_OnReady", event="Event", **callback)
        self.on("PJRT_Event_Await", event="Event")
        self.on("PJRT_Buffer_IncreaseExternalReferenceCount", buffer="Buffer")
        self.on("PJRT_Buffer_DecreaseExternalReferenceCount", buffer="Buffer")
        place = {"dst": _host.ctypes.data, "dst_size": _host.nbytes}
        answer = self.on("PJRT_Buffer_ToHostBuffer", src="Buffer", **place)
        if event := int(getattr(answer, "event", 0) or 0):
            self.on("PJRT_Event_Await", event=event)
            self.destroy("Event", event)

    def program(self) -> None:
        given = {"program": {"code": self.subject.encode_program(ADD), "format": "mlir"}}
        options = CompileOptions().serialize()
        name, loaded = "PJRT_Client_Compile", "LoadedExecutable"
        self.on(name, loaded, client="Client", compile_options=options, **given)
        name = "PJRT_LoadedExecutable_GetExecutable"
        self.on(name, "Executable", loaded_executable=loaded)
        if context := self.on("PJRT_ExecuteContext_Create"):
            self.on("PJRT_ExecuteContext_Destroy", context=context)
        if {loaded, "Buffer"} <= self.at.keys():
            self.execute()

    def execute(self) -> None:
        row, results = np.full(2, self.at["Buffer"], np.uint64), np.zeros(1, np.uint64)
        lists, places = (np.array([each.ctypes.data], np.uint64) for each in (row, results))
        self.on(
            "PJRT_LoadedExecutable_Execute",
            executable="LoadedExecutable",
            options={},
            argument_lists=lists.ctypes.data,
            output_lists=places.ctypes.data,
            device_complete_events=0,
            num_devices=1,
            num_args=2,
            execute_device=0,
        )
        if results[0]:
            self.on("PJRT_Buffer_Delete", buffer=int(results[0]))
            self.destroy("Buffer", int(results[0]))

    def serialize(self) -> None:
        """Serialize the program and read it again."""
        code = self.on("PJRT_Executable_Serialize", executable="Executable")
        if code:
            name = "PJRT_Executable_DeserializeAndLoad"
            if again := self.on(name, client="Client", serialized_executable=code):
                self.destroy("LoadedExecutable", int(again))

    def questions(self) -> None:
        """Call the functions that take only handles."""
        name = "PJRT_Executable_OptimizedProgram"
        if name not in self.found.null and "Executable" in self.at:
            asked = {"api": self.api, "executable": self.at["Executable"]}
            self.attempt(name, irregular.optimized_program, asked)
        for name in table.FUNCTIONS:
            if name in self.found.null or any(part in name for part in _NOT_ASKED):
                continue
            given = [each for each in table.FIELDS[f"{name}_Args"] if each.direction != "out"]
            kinds = [_kind(each.ctype) for each in given]
            if kinds and self.at.keys() >= set(kinds):
                fields = {each.name: self.at[kind] for each, kind in zip(given, kinds, strict=True)}
                self.attempt(name, self.api.function(name).raw, fields)

    def traits(self) -> None:
        """Find out the plugin's traits, which decide whether JAX calls some functions at all."""
        name = self.on("PJRT_Client_PlatformName", client="Client")
        if name and name.decode(errors="replace") not in CACHED_PLATFORMS:
            self.found.traits.discard("compile_cache")
        if self.on("PJRT_Buffer_IsOnCpu", buffer="Buffer") is False:
            self.found.traits.discard("on_cpu")
        if "FFI" not in self.api.extensions:
            self.found.traits.discard("ffi")

    def on(self, name: str, made: str = "", /, **fields: Any) -> Any:
        """Call a function, with a handle in place of each text, which names the handle's kind.

        Return None for an error or an absent handle; an unimplemented function is noted.
        """
        kinds = {key: kind for key, kind in fields.items() if isinstance(kind, str)}
        if not self.at.keys() >= set(kinds.values()):
            return None
        handles = {key: self.at[kind] for key, kind in kinds.items()}
        answer = self.attempt(name, partial(self.api.call, name), fields | handles)
        if made:
            self.have(made, answer)
        return answer

    def destroy(self, kind: str, address: int) -> None:
        name = f"PJRT_{kind}_Destroy"
        self.on(name, **{table.FIELDS[f"{name}_Args"][0].name: address})

    def have(self, kind: str, address: Any) -> None:
        if address:
            self.at[kind] = int(address)

    def attempt(self, name: str, function: Callable[..., Any], fields: dict[str, Any]) -> Any:
        """Call a Python function that calls the C function `name`; handle errors as `on` does."""
        # The plugin may refuse the call, or the call may not suit the plugin.
        with suppress(PjrtHubError, ValueError, TypeError):
            try:
                return function(**fields)
            except UnimplementedError:
                if name not in self.found.unimplemented:
                    self.found.unimplemented.append(name)
        return None


def _kind(ctype: str) -> str:
    return ctype.removeprefix("const ").removeprefix("PJRT_").removesuffix("*")
