"""The plugin under test: its client, and the small raw calls that checks share.

Speaks the C API as it is, without the runtime's validation, which would hide what a plugin does.
Owns all objects that are made through it, until the check ends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pjrt_hub import errors
from pjrt_hub.base.fork import cached_property
from pjrt_hub.door import process
from pjrt_hub.door.plugin import read_layers
from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance import artifact, programs
from pjrt_hub.kit.conformance.finding import (
    Failed,
    Hidden,
    Skipped,
    Unsupported,
    code_name,
    equal,
    expect,
    raise_as,
)
from pjrt_hub.kit.conformance.progress import CallProgress, Watched
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.capi import library, table
from pjrt_hub.running.capi.call_counter import CallCounter
from pjrt_hub.running.program.compile_options import CompileOptions

if TYPE_CHECKING:
    from pjrt_hub.running.capi.library import Api, Extension

_KEPT = ("Buffer", "Event", "LoadedExecutable", "Executable", "TopologyDescription", "Client")
_TEXT = "lost on the way"
#: A plugin is given this error and must give it back; most argument structs have these fields.
GIVEN_ERROR: dict[str, Any] = {"error_code": errors.DataLossError.code, "error_message": _TEXT}
_TEXT_AND_MORE = np.frombuffer(f"{_TEXT}, and more\0".encode(), np.uint8)
#: This is the same error, but its text goes on beyond the size that is given.
GIVEN_ERROR_AND_MORE: dict[str, Any] = {
    "error_code": errors.DataLossError.code,
    "error_message": _TEXT_AND_MORE.ctypes.data,
    "error_message_size": len(_TEXT),
}

#: The name and the options of a topology.
Target = tuple[str, Mapping[str, Any]]


class Subject:
    """A plugin, as checks see it. All addresses are ints."""

    def __init__(
        self,
        path: Path,
        options: Mapping[str, Any] | None = None,
        target: Target | None = None,
        preload: Sequence[Path] = (),
        known_options: Mapping[str, str] | None = None,
    ) -> None:
        """Take the settings; load nothing yet."""
        self.path = path
        self.options = dict(options or {})  # The plugin's clients are made with these options.
        self.target = target  # The machine that the plugin describes without hardware.
        self.preload = tuple(preload)  # Libraries to load before the plugin.
        self.known_options = dict(known_options or {})  # The manifest's options, with types.
        self.progress: CallProgress | None = None  # None if nobody reads it.
        self.patience = 0.0  # Seconds that checks get in addition on a slow plugin.
        self.took: dict[str, float] = {}  # Seconds that possibly slow steps took, by C function.
        self.notes: list[str] = []  # Facts that checks found worth telling.
        self._made: dict[int, str] = {}
        self._takes: dict[str, bool] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the settings and the progress, without the loaded plugin and its objects."""
        given = (self.path, self.options, self.target, self.preload)
        return Subject, given, (None, {"patience": self.patience, "progress": self.progress})

    @cached_property
    def api(self) -> Api:
        """The plugin's function table; it is loaded and initialized on first use."""
        loaded = load(self.path)
        return cast("Api", Watched(loaded, self.progress)) if self.progress else loaded

    @cached_property
    def client(self) -> int:
        """The `PJRT_Client` of this process's checks, made on first use; it may raise Skipped."""
        refusals = (PjrtError, errors.UnsupportedByPluginError)
        with raise_as(Skipped, "no device:", refusals), self._measure("PJRT_Client_Create"):
            return self.api.call("PJRT_Client_Create", create_options=self.options)

    @cached_property
    def topology(self) -> int:
        """A `PJRT_TopologyDescription`: of `target`, else of the client; nobody destroys it."""
        if self.target is None:
            return self.call("PJRT_Client_TopologyDescription", client=self.client)
        name, options = self.target
        create = "PJRT_TopologyDescription_Create"
        return int(self.call(create, topology_name=name, create_options=options))

    @cached_property
    def devices(self) -> list[int]:
        """The devices that this process can use."""
        devices: list[int] = self.api.call("PJRT_Client_AddressableDevices", client=self.client)
        if not devices:
            raise Skipped("the client has no device")
        return devices

    @property
    def device(self) -> int:
        """The first of `devices`."""
        return self.devices[0]

    @property
    def default_memory(self) -> int:
        """The memory in which the first device keeps buffers by default."""
        return self.call("PJRT_Device_DefaultMemory", device=self.device)

    @property
    def minor(self) -> int:
        """The minor number of the plugin's PJRT API version."""
        return self.api.version.minor

    def stablehlo(self, which: str) -> tuple[int, int, int]:
        """Return the plugin's "current" or "minimum" version of StableHLO, or raise Skipped."""
        match self.api.attributes.get(f"stablehlo_{which}_version"):
            case (int(major), int(minor), int(patch)):
                return major, minor, patch
        raise Skipped(f"the plugin does not report its {which} version of StableHLO")

    @contextlib.contextmanager
    def _measure(self, function: str) -> Iterator[None]:
        """Measure the first call of a function that may be slow."""
        begin = time.monotonic()
        yield
        self.took.setdefault(function, time.monotonic() - begin)

    def call(self, function: str, **fields: Any) -> Any:
        """Call a C function as `Api.call`; raise Unsupported if it is missing or unimplemented."""
        with _as_unsupported():
            return self.api.call(function, **fields)

    def extension(self, name: str) -> Extension:
        """Return a node of the extension chain, with a `call` like `Api`; or raise Unsupported."""
        with _as_unsupported():
            return self.api.extension(name)

    def takes(self, form: str) -> bool:
        """Say whether the plugin compiles a + b in a form: `ARTIFACT`, `BYTECODE` or `TEXT`."""
        if self.progress and form in self.progress.broken:
            return False
        if self.progress and form in self.progress.works:
            return True
        if form not in self._takes:
            self._takes[form] = False
            with contextlib.suppress(PjrtError, Unsupported):
                self.compile_executable(self.add(form))
                self._takes[form] = True
        return self._takes[form]

    def add(self, form: str) -> bytes:
        """Return `programs.ADD` in a form: `ARTIFACT`, `BYTECODE` or `TEXT`."""
        match form:
            case artifact.TEXT:
                return programs.ADD.encode()
            case artifact.BYTECODE:
                return artifact.add_bytecode()
        code = artifact.of(programs.ADD, self._newest)
        return artifact.artifact_for(programs.ADD, (0, 0, 0)) if code is None else code

    def require(self, *names: str) -> None:
        """Raise Hidden if one of these functions or forms of programs is known not to work."""
        broken = self.progress.broken if self.progress else ()
        for name in names:
            if name in broken:
                raise Hidden(name)

    def encode_program(self, text: str) -> str | bytes:
        """Return a program as a portable artifact, which is what hosts send; else as text."""
        if self.takes(artifact.ARTIFACT):
            code = artifact.of(text, self._newest)
            if code is None and not self.takes(artifact.TEXT):
                raise Skipped("its program is there as text only, which the plugin does not take")
            return text if code is None else code
        if not self.takes(artifact.TEXT):
            self.require(artifact.ARTIFACT)
        return text

    @property
    def _newest(self) -> artifact.Version | None:
        """The newest StableHLO version that the plugin reads, or None if it does not tell."""
        with contextlib.suppress(Skipped):
            return self.stablehlo("current")
        return None

    def compile(
        self, program: str | bytes, *, format: str = "mlir", options: bytes | None = None
    ) -> int:
        """Compile a program, and return a `PJRT_LoadedExecutable`.

        Text is sent in a form that the plugin takes, bytes as they are, in the `format` "mlir" or
        "hlo". The `options` are a CompileOptionsProto, by default for one replica on one device.
        """
        client = self.client
        code = self.encode_program(program) if isinstance(program, str) else program
        with self._measure("PJRT_Client_Compile"):
            executable = self.call(
                "PJRT_Client_Compile",
                client=client,
                program={"code": code, "format": format},
                compile_options=CompileOptions().serialize() if options is None else options,
            )
        return self.own("LoadedExecutable", executable)

    def execute(self, executable: int, buffers: Sequence[int], **options: Any) -> list[int]:
        """Run on one device, with members of `PJRT_ExecuteOptions`; do not wait for the outputs."""
        return self.launch(executable, [buffers], options)[0][0]

    def launch(
        self,
        executable: int,
        rows: Sequence[Sequence[int]],
        options: Mapping[str, Any] | int | None = None,
        *,
        events: bool = False,
        num_outputs: int | None = None,
        execute_device: int = 0,
    ) -> tuple[list[list[int]], list[int]]:
        """Run a program on a device for each row; return the outputs of each, and the events.

        The events are those of completion. `options` are members of `PJRT_ExecuteOptions`, or the
        address of one; `num_outputs` spares asking the plugin; `execute_device` is for a portable
        program, where 0 leaves it to the plugin.
        """
        if num_outputs is None:
            num_outputs = self.num_outputs(executable)
        arguments = [np.array(row, np.uint64) for row in rows]
        outputs = [np.zeros(max(num_outputs, 1), np.uint64) for _ in rows]
        complete = np.zeros(len(rows), np.uint64)
        inputs, places = (
            np.array([each.ctypes.data for each in lists], np.uint64)
            for lists in (arguments, outputs)
        )
        self.call(
            "PJRT_LoadedExecutable_Execute",
            executable=executable,
            options=options if isinstance(options, int) else dict(options or {}),
            argument_lists=inputs.ctypes.data,
            output_lists=places.ctypes.data,
            device_complete_events=complete.ctypes.data if events else 0,
            num_devices=len(rows),
            num_args=len(rows[0]) if rows else 0,
            execute_device=execute_device,
        )
        made = [
            [self.own("Buffer", int(address)) for address in row[:num_outputs]] for row in outputs
        ]
        return made, [self.own("Event", int(each)) for each in complete if each]

    def values(
        self, executable: int, buffers: Sequence[int], dtype: Any = None, **options: Any
    ) -> list[Any]:
        """Run on one device, and return the values of each output as lists."""
        outputs = self.execute(executable, buffers, **options)
        return [self.get(each, dtype).tolist() for each in outputs]

    def num_outputs(self, executable: int) -> int:
        """Return how many outputs a loaded executable has."""
        plain = self.executable(executable)
        try:
            return self.call("PJRT_Executable_NumOutputs", executable=plain)
        finally:
            self._release(plain)

    def executable(self, loaded: int) -> int:
        """Return the `PJRT_Executable` of a loaded one."""
        found = self.call("PJRT_LoadedExecutable_GetExecutable", loaded_executable=loaded)
        return self.own("Executable", found)

    def put(self, array: np.ndarray[Any, Any], **fields: Any) -> int:
        """Put a host array on the first device, and return the buffer when it is ready.

        Further arguments replace fields of the function's argument struct.
        """
        given = np.asarray(array, order="C")
        buffer, done = self.send(given, **fields)
        if done:
            self.await_(done)
        return self.wait(buffer)

    def send(self, array: np.ndarray[Any, Any], **fields: Any) -> tuple[int, int]:
        """Send a row-major array without waiting; return the buffer and `done_with_host_buffer`."""
        place = {} if "memory" in fields else {"device": self.device}
        inputs = {
            "data": array.ctypes.data,
            "type": dtypes.of_numpy(array.dtype).code,
            "dims": array.shape,
            "host_buffer_semantics": 0,
            **place,
            **fields,
        }
        answer = self.call("PJRT_Client_BufferFromHostBuffer", client=self.client, **inputs)
        return self.own("Buffer", answer.buffer), answer.done_with_host_buffer

    def get(self, buffer: int, dtype: Any = None) -> np.ndarray[Any, Any]:
        """Copy a buffer to the host, row-major, and wait; by default the plugin tells the dtype."""
        if dtype is None:
            code = self.call("PJRT_Buffer_ElementType", buffer=buffer)
            dtype = dtypes.numpy_dtype(code)
        shape = tuple(self.call("PJRT_Buffer_Dimensions", buffer=buffer))
        array = np.empty(shape, dtype)
        rows = {"type": 0, "tiled": {"minor_to_major": tuple(reversed(range(len(shape))))}}
        self.copy_to_host(buffer, array, host_layout=rows)
        return array

    def copy_to_host(self, buffer: int, into: np.ndarray[Any, Any], **fields: Any) -> None:
        """Copy a buffer into an array, in the device's order without a `host_layout`, and wait."""
        place = {"dst": into.ctypes.data, "dst_size": into.nbytes, **fields}
        self.await_(self.call("PJRT_Buffer_ToHostBuffer", src=buffer, **place).event)

    def copy(self, buffer: int, *, device: int = 0, memory: int = 0) -> int:
        """Copy a buffer to a device or into a memory."""
        if device:
            made = self.call("PJRT_Buffer_CopyToDevice", buffer=buffer, dst_device=device)
        else:
            made = self.call("PJRT_Buffer_CopyToMemory", buffer=buffer, dst_memory=memory)
        return self.own("Buffer", made)

    def raw(self, buffer: int, offset: int = 0, size: int | None = None) -> bytes:
        """Copy bytes of a buffer as they lie on the device, by default all."""
        if size is None:
            size = self.call("PJRT_Buffer_OnDeviceSizeInBytes", buffer=buffer)
        memory = np.full(max(size, 1), 0xEE, np.uint8)
        place = {"dst": memory.ctypes.data, "offset": offset, "transfer_size": size}
        self.await_(self.call("PJRT_Buffer_CopyRawToHost", buffer=buffer, **place))
        return memory[:size].tobytes()

    def deserialize(self, data: bytes, **fields: Any) -> int:
        """Load a serialized executable."""
        fields |= {"client": self.client, "serialized_executable": data}
        loaded = self.call("PJRT_Executable_DeserializeAndLoad", **fields)
        return self.own("LoadedExecutable", loaded)

    def create_client(self, options: Mapping[str, Any] | None = None) -> int:
        """Create another client beside the one of all checks, with further options."""
        given = {**self.options, **(options or {})}
        return self.own("Client", self.call("PJRT_Client_Create", create_options=given))

    def ready(self, buffer: int) -> int:
        """Return the `PJRT_Event` of a buffer's readiness."""
        return self.own("Event", self.call("PJRT_Buffer_ReadyEvent", buffer=buffer))

    def expect_ready(self, event: int, when: str, wanted: bool = True) -> None:
        """Fail unless an event is ready; if not `wanted`, fail unless it is pending."""
        words = ("false", "true") if wanted else ("true", "false")
        found = bool(self.call("PJRT_Event_IsReady", event=event))
        expect(found == wanted, f"IsReady {when}: expected {words[1]}, found {words[0]}")

    def is_ready_within(self, event: int, seconds: float) -> bool:
        """Say whether an event becomes ready within so many seconds."""
        end = time.monotonic() + seconds
        while not (ready := self.call("PJRT_Event_IsReady", event=event)):
            if time.monotonic() > end:
                break
            time.sleep(0.001)
        return bool(ready)

    def on_ready(self, event: int, called: CallCounter | None = None) -> CallCounter:
        """Register a callback on an event."""
        called = called or CallCounter()
        self.call("PJRT_Event_OnReady", event=event, callback=called.address, user_arg=0)
        return called

    def await_(self, event: int) -> None:
        """Wait for an event, and destroy it."""
        self._made.setdefault(event, "Event")
        try:
            self.api.call("PJRT_Event_Await", event=event)
        finally:
            self._release(event)

    def wait(self, buffer: int) -> int:
        """Wait until a buffer is ready, and return it."""
        self.await_(self.ready(buffer))
        return buffer

    def own(self, kind: str, address: int) -> int:
        """Take an object that the plugin made, such as a "Buffer"; the check's end destroys it."""
        if not address:
            raise Failed(f"expected a PJRT_{kind}, found NULL")
        self._made[address] = kind
        return address

    def disown(self, address: int) -> int:
        """Let go of an object that the check, or the plugin, destroys by itself."""
        self._made.pop(address, None)
        return address

    def destroy(self, *addresses: int) -> None:
        """Destroy objects before the check ends."""
        for address in addresses:
            kind = self._made.pop(address)
            function = f"PJRT_{kind}_Destroy"
            field = next(iter(table.FIELDS[f"{function}_Args"])).name
            self.api.call(function, **{field: address})

    def _release(self, *addresses: int) -> None:
        """Destroy objects, except by Destroy functions that are known not to work."""
        for address in addresses:
            with contextlib.suppress(Hidden):
                self.destroy(address)

    def end_check(self) -> None:
        """Destroy what is left: buffers and events first, clients last."""
        for kind in _KEPT:
            self._release(*[each for each, of in self._made.items() if of == kind])
        self._release(*self._made)

    def describe(self, device: int, what: str) -> Any:
        """Ask the description of a device, `describe(device, "Id")`."""
        description = self.call("PJRT_Device_GetDescription", device=device)
        return self.call(f"PJRT_DeviceDescription_{what}", device_description=description)

    def expect_add(self, executable: int, device: int = 0) -> None:
        """Fail unless a loaded `ADD` gives the exact values on a device, by default the first."""
        place = {"device": device} if device else {}
        a, b = np.arange(4, dtype=np.float32), np.full(4, 0.5, np.float32)
        (total,) = self.execute(executable, [self.put(each, **place) for each in (a, b)])
        equal(self.get(total).tolist(), [0.5, 1.5, 2.5, 3.5], "a + b")

    def compile_executable(
        self, program: str | bytes = programs.ADD, options: CompileOptions | None = None
    ) -> int:
        """Compile to a `PJRT_Executable`, for the described machine or else for the client."""
        chosen = options or CompileOptions()
        if self.target is None:
            return self.executable(self.compile(program, options=chosen.serialize()))
        try:
            return self.compile_ahead(program, chosen)
        except PjrtError as exc:
            if "autotun" not in exc.message:
                raise
            # Autotuning would need a device to time kernels on.
            return self.compile_ahead(program, replace(chosen, flags={"xla_gpu_autotune_level": 0}))

    def compile_ahead(
        self,
        program: str | bytes = programs.ADD,
        options: CompileOptions | None = None,
        topology: int = 0,
        **fields: Any,
    ) -> int:
        """Compile to a `PJRT_Executable` without a client, by default for `self.topology`."""
        code = self.encode_program(program) if isinstance(program, str) else program
        made = self.call(
            "PJRT_Compile",
            topology=topology or self.topology,
            program={"code": code, "format": "mlir"},
            compile_options=(options or CompileOptions()).serialize(),
            **fields,
        )
        return self.own("Executable", made)

    def load(self, executable: int) -> int:
        """Load an executable that `compile_ahead` made."""
        name, options = "PJRT_Client_Load", CompileOptions().serialize()
        given = {"executable": executable, "compile_options": options}
        return self.own("LoadedExecutable", self.call(name, client=self.client, **given))

    def usable(self) -> None:
        """Fail unless a + b still gives the exact values, as it must after a refused call."""
        try:
            self.expect_add(self.compile(programs.ADD))
        except PjrtError as exc:
            raise Failed(f"afterwards the client is not usable: {exc.message}") from exc
        except Failed as exc:
            raise Failed(f"afterwards {exc.found}") from exc

    def expect_refusal(
        self, call: Callable[[], object], what: str, code: int = errors.InvalidArgumentError.code
    ) -> None:
        """Fail unless the plugin refuses a call, at once or by an event, and goes on working.

        Any error is right: the header demands no `code`, and a different one is noted.
        """
        self.expect_error(call, what, code)
        self.usable()

    def expect_error(self, call: Callable[[], object], what: str, *usual: int) -> PjrtError:
        """Fail unless a call fails; return the error, and note a code that is not a usual one."""
        try:
            answer = call()
        except PjrtError as error:
            self.note_code(error, what, *usual)
            return error
        shown = "" if answer is None or isinstance(answer, int) else f" ({answer!r})"
        raise Failed(f"{what}: expected an error, found success{shown}")

    def expect_given_error(self, call: Callable[[], object], what: str, *codes: int) -> None:
        """Fail unless a call fails with the text of `GIVEN_ERROR`, no more.

        Another code is noted; if `codes` are given, any other code fails the check.
        """
        error = self.expect_error(call, what)
        code, given = code_name(error.code), code_name(errors.DataLossError.code)
        if codes and error.code not in codes:
            found = f"{what}: expected {code_name(*codes)}, found {code}: {error.message}"
            raise Failed(found) from error
        right = _TEXT in error.message and ", and more" not in error.message
        expect(right, f"{what}, the text of the error: found {error.message!r}")
        if error.code != errors.DataLossError.code:
            self.note(f"{what}: {code}, where {given} was given")

    def note_code(self, error: PjrtError, what: str, *usual: int) -> None:
        """Note an error whose code is none of the usual ones, if some are usual."""
        if usual and error.code not in usual:
            self.note(f"{what}: {code_name(error.code)}, where {code_name(*usual)} is usual")

    def require_basics(self) -> None:
        """Raise Hidden unless all basics work: for checks that call the plugin past this object."""
        for function in self.progress.broken if self.progress else ():
            raise Hidden(function)

    def note(self, text: str) -> None:
        """Keep a fact that is worth telling and does not change the verdict."""
        self.notes.append(text)

    def note_moved(self, function: str, member: str, **fields: Any) -> None:
        """Note that the list `member` lies elsewhere when asked for again, as the header allows."""
        ask = self.api.function(function).raw
        first, second = (getattr(ask(**fields), member) for _ in range(2))
        if first != second:
            self.note(f"{function}, asked again: the list lies at another address")


def load(path: Path, tell: Callable[[str], None] = lambda step: None, identity: str = "") -> Api:
    """Load a plugin behind the layers that the user asked for, as `library.load` does."""
    chain = read_layers(process.environment())
    return library.load(path, tell, chain.wrap if chain else None, identity=identity)


def a_compiler() -> AbstractContextManager[None]:
    """Raise Unsupported for NotFoundError: the plugin compiles only by a client."""
    return raise_as(Unsupported, of=errors.NotFoundError)


def _as_unsupported() -> AbstractContextManager[None]:
    return raise_as(Unsupported, of=(errors.UnsupportedByPluginError, errors.UnimplementedError))
