"""Loaded executables: compiled programs, ready to call, and calls with their arguments bound.

Owns where a program runs and the messages about arguments; the compiled call path checks and
runs, and `ExecutableFacts` has what a program tells about itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from pjrt_hub.base.fork import cached_property
from pjrt_hub.errors import ClosedError, UnimplementedError, UnsupportedByPluginError
from pjrt_hub.running.array import display
from pjrt_hub.running.buffer.buffer import Buffer
from pjrt_hub.running.capi import callbacks, hotpath, irregular
from pjrt_hub.running.capi.handle import compact
from pjrt_hub.running.device.device import Device, DeviceClient, device_at, refuse_pickle
from pjrt_hub.running.device.event import Event
from pjrt_hub.running.executable import signature_sources
from pjrt_hub.running.executable.argument import name_of, put, put_row, reject
from pjrt_hub.running.executable.facts import ExecutableFacts
from pjrt_hub.running.executable.parts import Parts
from pjrt_hub.running.executable.serialized import Guards
from pjrt_hub.running.program.option import DeviceAssignment
from pjrt_hub.running.program.signature import Signature

if TYPE_CHECKING:
    from pjrt_hub.running.executable.execute_options import ExecuteOptions
    from pjrt_hub.running.executable.stepper import Stepper

_Results = TypeVar("_Results")


@compact
class BoundCall(hotpath.BoundCall[_Results]):
    """A call that keeps its arguments: `call = exe.bind(a, b)`, then `call()`.

    The arguments were compared with the program once; each call only checks that none was deleted
    and nothing was closed. It holds its buffers. Many threads may call it.
    `call(options=ExecuteOptions(...))` takes options as `exe(a, b, options=...)` does.

    Attributes:
        executable: the executable that it runs.
    """

    __slots__ = ()
    __module__ = "pjrt_hub"

    executable: Any

    @property
    def arguments(self) -> tuple[tuple[Buffer, ...], ...]:
        """The buffers that it holds, a row for each of the executable's devices."""
        rows: tuple[tuple[Buffer, ...], ...] = self._rows
        return rows

    __reduce__ = refuse_pickle

    def _call_with(self, options: ExecuteOptions) -> Any:
        """Serve `call(options=...)`."""
        if self._single:
            return self.executable._call_with(options, self._rows[0], self._simplify)
        return self.executable.execute(self._rows, options)

    def __repr__(self) -> str:
        return f"<BoundCall of {self.executable!r}>"


def bind(
    executable: Any, rows: tuple[tuple[Any, ...], ...], single: bool, simplify: bool
) -> BoundCall[Any]:
    """Bind an executable to a row of arguments for each device.

    `single` makes it give the outputs of the only row, not a list of rows; `simplify` the only
    output itself. Arguments are refused as by `exe(...)`, and so is a program that donates one.
    """
    donated = executable.signature.donated
    if donated:
        raise ValueError(
            f"the program donates argument {donated[0]}, which it can take only once\n\n"
            "hint: call exe(a, b) with the buffer of each turn: x = exe(x, b)"
        )
    executable._require_open()
    if len(rows) == len(executable.devices):
        places = zip(rows, executable.devices, strict=True)
        rows = tuple(put_row(executable, row, device) for row, device in places)
    call: BoundCall[Any] = BoundCall()
    call._bind(executable, rows, single, simplify)
    return call


class LoadedExecutable(hotpath.LoadedExecutable[Buffer], ExecutableFacts):
    """A compiled program that a client can call (`PJRT_LoadedExecutable`).

    `exe(a, b)` runs it on one device: it never waits for results, and gives one Buffer for one
    output and a tuple of them otherwise, so type checkers take the result for either one;
    `exe(a, b, simplify=False)` gives always a tuple, for type checkers too, and
    `exe(a, b, options=ExecuteOptions(...))` runs it as `execute` does with these options. Every
    argument must be a Buffer of the same client and device, neither deleted nor donated, or an
    array, which is copied to the device for this call; with the parameter's dtype and shape.
    Anything else raises TypeError, ValueError or ClosedError before the plugin is called, because
    plugins compare only byte counts.

    Attributes:
        client: the client that it belongs to.
        api: the function table of its plugin.
        devices: the devices that it runs on, in the order of `execute`'s rows.
        signature: what it takes and gives on one device.
        closed: whether it was closed, itself or with its client, or the process forked since.
    """

    __module__ = "pjrt_hub"
    #: The bytes that it was loaded from. If a plugin serializes it again, the result may not load.
    _origin: bytes | None = None
    #: Whether a parameter is a tuple, which a plugin makes of the arguments if an option says so.
    _takes_tuple = False
    #: What errors call its parameters, by number, if they have names.
    _names: Mapping[int, str] = {}

    client: Any  # This is a `Client`, which this module may not import.
    devices: tuple[Device, ...]
    #: This is None if the number of outputs is unknown.
    _signature: Signature | None

    @property
    def signature(self) -> Signature:  # type: ignore[override]
        """The arguments and results on one device, as far as the plugin and the program say.

        Raises:
            UnsupportedByPluginError: neither tells how many outputs there are, so that it cannot
                be called.
        """
        return signature_sources.require(self._signature, self.client.api)

    @property
    def _donates(self) -> bool:
        """Whether a call may take an argument's memory; True if nobody tells."""
        return self._signature is None or bool(self._signature.donated)

    @property
    def gil(self) -> Literal["release", "adaptive"]:
        """How a launch treats Python's global lock: by default the launch releases the lock.

        `exe.gil = "adaptive"` keeps the lock while launches take less than 20 µs (every 32nd is
        timed): beside a thread that computes in Python, each release may cost the 5 ms of
        `sys.getswitchinterval()`. Only for CPU clients of one device. The lock is still released
        if Python may be waited for: while another thread is inside a call of the client, while
        a promise or transfer is open, and for good once a custom call, host callback or key-value
        store was registered in the process.

        Raises:
            ValueError: another word, or no launch of the program could ever keep the lock.
        """
        return "adaptive" if self._adaptive else "release"

    @gil.setter
    def gil(self, mode: Literal["release", "adaptive"]) -> None:
        if mode not in ("release", "adaptive"):
            raise ValueError(f'gil is {mode!r}, neither "release" nor "adaptive"')
        if mode == "adaptive":
            self._require_open()
            why = self._must_release()
            if why is not None:
                raise ValueError(f"launches cannot keep Python's lock: {why}")
        self._adaptive = mode == "adaptive"

    def _must_release(self) -> str | None:
        if not self.client._is_on_host:
            return f"on {self.client.platform_name} they may wait for the device"
        if len(self.client.devices) != 1 or len(self.devices) != 1:
            return "on a client of several devices they take turns"
        if hotpath.asks_python():
            return "a custom call, host callback or key-value store may need it while they run"
        return None

    @overload
    def bind(self, *arguments: Any, simplify: Literal[False]) -> BoundCall[tuple[Buffer, ...]]: ...

    @overload
    def bind(self, *arguments: Any, simplify: bool = True) -> BoundCall[Buffer | Any]: ...

    def bind(self, *arguments: Any, simplify: bool = True) -> BoundCall[Any]:
        """Check arguments once, for repeated calls on one device.

        `call = exe.bind(a, b)`, then `call()` is `exe(a, b)` with less to do.

        Args:
            arguments: as for `exe(...)`. The call holds them; arrays are copied to the device once.
            simplify: give the Buffer itself where there is one output, not a tuple of one.

        Raises:
            TypeError, ValueError, ClosedError: as for `exe(...)`; ValueError also if the program
                donates an argument, which can be given only once.
        """
        if len(self.devices) != 1:
            raise TypeError(
                f"the program runs on {len(self.devices)} devices\n\n"
                "hint: exe.bind_rows([[a0], [a1]]) binds a row of arguments for each of them"
            )
        return bind(self, (arguments,), True, simplify)

    def bind_rows(self, arguments: Sequence[Sequence[Any]]) -> BoundCall[list[tuple[Buffer, ...]]]:
        """Check arguments once, for repeated calls on all its devices.

        `call = exe.bind_rows(rows)`, then `call()` is `exe.execute(rows)` with less to do.

        Args:
            arguments: a row of buffers or arrays for each device, in the order of `devices`.

        Raises:
            TypeError, ValueError, ClosedError: as for `execute`; ValueError also if the program
                donates an argument, which can be given only once.
        """
        return bind(self, self._rows(arguments), False, False)

    def stepper(
        self,
        carry: Mapping[int, int],
        fixed: Mapping[int, Any] | None = None,
        state: Mapping[int, Any] | None = None,
    ) -> Stepper:
        """Give it a state: results that become arguments of the next call, as of a KV cache.

        `step = exe.stepper(carry={1: 0}, fixed={1: weights}, state={0: cache})`, then
        `logits = step(token)`. A call checks nothing but its own arguments.

        Args:
            carry: for each carried result, by its number, the parameter that it becomes.
            fixed: values of parameters that stay the same; arrays are copied to the device once.
            state: the values of the carried parameters before the first step, as
                `Stepper.reset` takes them.

        Raises:
            ValueError: a result does not fit its parameter, a parameter is named twice, or the
                program donates one that is fixed.
            TypeError, ClosedError: as for `exe(...)`.
        """
        from pjrt_hub.running.executable import stepper

        return stepper.make(self, carry, fixed or {}, state)

    def _call_with(self, options: ExecuteOptions, row: tuple[Any, ...], simplify: bool) -> Any:
        """Serve `exe(a, b, options=...)`."""
        [outputs], _ = self._launch((row,), self.devices, 0, options, False)
        return outputs[0] if simplify and len(outputs) == 1 else outputs

    @overload
    def execute(
        self,
        arguments: Sequence[Sequence[Any]],
        options: ExecuteOptions | None = None,
        *,
        return_events: Literal[False] = False,
    ) -> list[tuple[Buffer, ...]]: ...

    @overload
    def execute(
        self,
        arguments: Sequence[Sequence[Any]],
        options: ExecuteOptions | None = None,
        *,
        return_events: Literal[True],
    ) -> tuple[list[tuple[Buffer, ...]], list[Event]]: ...

    def execute(
        self,
        arguments: Sequence[Sequence[Any]],
        options: ExecuteOptions | None = None,
        *,
        return_events: bool = False,
    ) -> Any:
        """Run it on all its devices (`PJRT_LoadedExecutable_Execute`), without waiting for results.

        Args:
            arguments: a row of buffers or arrays for each device, in the order of `devices`.
            options: see `ExecuteOptions`.
            return_events: give also an event for each device, ready when it is done.

        Returns:
            The outputs of each device; with `return_events` these and the events.

        Raises:
            TypeError: a wrong number of rows or arguments, neither a Buffer nor an array, or a
                wrong dtype; or the program is portable.
            ValueError: a wrong shape, layout, device, client, or index in `non_donatable`.
            UnsupportedByPluginError: the plugin is older than an option.
            ClosedError: something was deleted, donated or closed.
        """
        if not self.devices:
            raise TypeError("the program belongs to no device: give execute_on() one")
        rows = self._rows(arguments)
        outputs, events = self._launch(rows, self.devices, 0, options, return_events)
        return (list(outputs), events) if return_events else list(outputs)

    def execute_on(
        self, arguments: Sequence[Any], device: Device, options: ExecuteOptions | None = None
    ) -> tuple[tuple[Buffer, ...], Event]:
        """Run a portable program, or the part of one of its devices, without waiting for results.

        A part waits until all parts with this `launch_id` are there, each called by a thread of
        its own, and all with the same options. The C function is `PJRT_LoadedExecutable_Execute`;
        its `execute_device` says where a program runs that was compiled with
        `CompileOptions(compile_portable_executable=True)`.

        Args:
            arguments: buffers on the device, or arrays.
            device: one of `devices`; of a portable program any one of the client's.
            options: see `ExecuteOptions`.

        Returns:
            The outputs, and an event that is ready when the device is done.

        Raises:
            TimeoutError: no other part came for 30 seconds; nothing is started.
            ValueError: other options than those of a part that waits.
            TypeError, ValueError, ClosedError: as for `execute`, also because of another part.
        """
        if self.devices and device not in self.devices:
            places = ", ".join(map(str, self.devices))
            raise ValueError(f"{device} is none of the program's devices, {places}")
        if device not in self.client.devices:
            raise ValueError(
                f"{device} is not a device of {self.client!r} that this process can use"
            )
        row = tuple(arguments)
        if len(self.devices) <= 1:
            [outputs], [event] = self._launch((row,), (device,), device.address, options, True)
            return outputs, event
        from pjrt_hub.running.executable.execute_options import require_options

        options = require_options(options)
        row = put_row(self, row, device)
        self._take(row, device)
        self._refuse_twice(row, options)
        self._refuse_deleted(row)
        return self._parts.bring(self, row, device, options)

    def _launch(
        self,
        rows: tuple[tuple[Any, ...], ...],
        devices: tuple[Device, ...],
        execute_device: int,
        options: ExecuteOptions | None,
        return_events: bool,
    ) -> tuple[tuple[tuple[Buffer, ...], ...], list[Event]]:
        address, kept = 0, list[object]()
        if options is not None:
            from pjrt_hub.running.executable.execute_options import require_options

            options = require_options(options)
            struct, kept = options._for(self, len(devices), whole=not execute_device)
            address = struct.address
        if self.signature.donated and len(self.devices) > 1:
            for row in rows:
                self._refuse_twice(row, options)
        with self.client._in_call():
            outputs, events = self._execute(
                rows, devices, address, execute_device, Event if return_events or kept else None
            )
            if kept:
                for event in events:
                    callbacks.keep(self.api.address, event.address, kept)
        return outputs, list(events)

    @cached_property
    def _parts(self) -> Parts:
        return Parts()

    @cached_property
    def device_assignment(self) -> tuple[tuple[int, ...], ...]:
        """The device id of each `[replica][partition]`, also of other processes' devices.

        The C function is `PJRT_LoadedExecutable_GetDeviceAssignment`, of 0.79. A portable program
        has none.
        """
        if not self.devices:
            return ()
        message = self._ask_loaded("PJRT_LoadedExecutable_GetDeviceAssignment")
        return DeviceAssignment().parse(message)

    @cached_property
    def addressable_device_logical_ids(self) -> tuple[tuple[int, int], ...]:
        """The (replica, partition) that each of `devices` runs.

        The C function is `PJRT_LoadedExecutable_AddressableDeviceLogicalIds`, of 0.96; for an older
        plugin the device assignment tells the same.
        """
        function = "PJRT_LoadedExecutable_AddressableDeviceLogicalIds"
        if self.api.has(function):
            return tuple(self._ask_loaded(function))
        where = {
            device: (replica, partition)
            for replica, row in enumerate(self.device_assignment)
            for partition, device in enumerate(row)
        }
        return tuple(where[device.id] for device in self.devices)

    @property
    def is_deleted(self) -> bool:
        """Whether it is deleted (`PJRT_LoadedExecutable_IsDeleted`)."""
        return self.closed or bool(self._ask_loaded("PJRT_LoadedExecutable_IsDeleted"))

    def delete(self) -> None:
        """Free the devices' memory and close it (`PJRT_LoadedExecutable_Delete`).

        Programs that are running already end as if nothing happened. May be called again.
        """
        if not self.closed:
            self._ask_loaded("PJRT_LoadedExecutable_Delete")
        self.close()

    def _ask_loaded(self, function: str) -> Any:
        with self.client._in_call():
            self._require_open()
            return self.api.call(function, executable=self.address)

    def serialize(self) -> bytes:
        """Return the compiled code, for `Client.load` (`PJRT_Executable_Serialize`).

        A header that names the platform, the plugin and the machine stands before the plugin's own
        bytes. An executable that was loaded gives the bytes that it was loaded from.
        """
        with self.view() as view:
            if self._origin is not None:
                return self._origin
            code = irregular.serialize_executable(self.client.api, view)
            return Guards.of(self.client).seal(code, None if self._takes_tuple else self.signature)

    def report(self) -> str:
        """Return these facts on one page of text, without those that the plugin does not tell."""
        from pjrt_hub.running.executable import report  # Few programs ask for a report.

        return report.of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as `serialize`, and load on a client of the same plugin in the other process.

        That is the oldest open one with the same create options, or a new one.
        """
        client: DeviceClient = self.client
        return client._reduce_executable(self.serialize())

    @contextmanager
    def view(self) -> Iterator[int]:
        """Give the address of its `PJRT_Executable` to a `with` block."""
        with self.client._in_call():
            self._require_open()
            with _view(self.client, self.address) as view:
                yield view

    def _rows(self, arguments: Sequence[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
        found = "the arguments are"
        row: Any = arguments
        try:
            rows = []
            for number, row in enumerate(arguments):
                found = f"row {number} is"
                if hasattr(row, "dtype"):
                    raise TypeError("an array, which can be iterated over, is not a row")
                rows.append(tuple(row))
            return tuple(rows)
        except TypeError:
            places, takes = len(self.devices), len(self.signature.parameters)
            raise TypeError(
                f"the arguments must be a row of buffers for each of {places} device(s), "
                f"{places} x {takes} buffer(s); {found} of type {type(row).__name__}\n\n"
                "hint: exe.execute([[a, b]]) on one device, or exe(a, b)"
            ) from None

    _put, _reject = put, reject

    def _require(self, function: str) -> None:
        self.client.api.require(function)

    def _refuse_twice(self, row: tuple[Any, ...], options: ExecuteOptions | None) -> None:
        """Raise if a donated buffer is given twice: that fails when other devices have started."""
        kept = () if options is None else options.non_donatable
        for donated in set(self.signature.donated).difference(kept):
            for index, argument in enumerate(row):
                if not isinstance(argument, Buffer):
                    continue  # Each array is put into a buffer of its own.
                if index != donated < len(row) and argument is row[donated]:
                    same, taken = name_of(self, index), name_of(self, donated)
                    raise ValueError(
                        f"{same} is the buffer that {taken} donates\n\n"
                        "hint: give a copy of it, or ExecuteOptions(non_donatable=...)"
                    )

    def _refuse_deleted(self, arguments: tuple[Any, ...]) -> None:
        """Raise if an argument was donated earlier: the plugin's own words for it are vague."""
        for index, argument in enumerate(arguments):
            if isinstance(argument, Buffer) and argument.is_deleted:
                raise ClosedError(
                    f"{name_of(self, index)} is a buffer that was deleted or donated",
                    hint="a program that donates an argument takes its memory: keep the output",
                )

    @display.table
    def _repr_html_(self) -> Mapping[str, Any]:
        if self.closed:
            return {}
        facts = {"LoadedExecutable": self._title, **self._signature_rows()}
        return {**facts, "devices": "\n".join(map(str, self.devices))}

    def __repr__(self) -> str:
        if self.closed:
            return "<LoadedExecutable closed>"
        places = ", ".join(map(str, self.devices)) or "any device"
        return f"<LoadedExecutable {self._title} {self._signature or '(?)'} on {places}>"


def adopt(
    client: DeviceClient,
    address: int,
    signature: Signature | None = None,
    program_signature: Signature | None = None,
    has_devices: bool = False,
) -> LoadedExecutable:
    """Take over a native executable; on any failure it is destroyed.

    Without a signature the plugin is asked; `program_signature` is what the program says, for a
    plugin that tells little. `has_devices` says that the executable is known not to be portable.
    """
    executable = LoadedExecutable()
    try:
        devices = _devices(client, address, has_devices)
        with ExitStack() as stack:
            try:
                view: int | None = stack.enter_context(_view(client, address))
            except (UnsupportedByPluginError, UnimplementedError):
                view = None
            if signature is None:
                signature, executable._takes_tuple = signature_sources.of_executable(
                    client.api, view, program_signature
                )
            elif view is not None:
                signature_sources.require_outputs(client.api, view, signature)
    except BaseException:
        client.api.give_back("PJRT_LoadedExecutable_Destroy", executable=address)
        raise
    executable.api = client.api
    executable._signature = signature
    takes = None if signature is None or signature.open else signature.parameters
    gives = None if signature is None else signature.outputs
    executable._bind(client, address, Buffer, takes, gives, devices)
    return executable


def require_arrays(executable: LoadedExecutable) -> None:
    """Raise TypeError for an executable that takes a tuple though no option says so; close it."""
    if executable._takes_tuple:
        executable.close()
        raise TypeError(
            "the program takes a tuple, and buffers are arrays\n\nhint: let it take arrays, or, of "
            "an HLO proto, compile it with CompileOptions(parameter_is_tupled_arguments=True)"
        )


def _devices(client: DeviceClient, address: int, has_devices: bool) -> tuple[Device, ...]:
    """Return an executable's devices; a plugin of one device need not tell, or may tell none."""
    only = client.devices if len(client.devices) == 1 else ()
    try:
        found = client._call("PJRT_LoadedExecutable_AddressableDevices", executable=address)
    except (UnsupportedByPluginError, UnimplementedError):
        if only:
            return only
        function = "PJRT_LoadedExecutable_GetDeviceAssignment"
        with client._in_call():
            message = client.api.call(function, executable=address)
        local = {device.id: device for device in client.devices}
        ids = (number for row in DeviceAssignment().parse(message) for number in row)
        return tuple(local[number] for number in ids if number in local)
    return tuple(device_at(client, each) for each in found) or (only if has_devices else ())


@contextmanager
def _view(client: DeviceClient, address: int) -> Iterator[int]:
    """Give the `PJRT_Executable` inside a loaded one, fetched for each question and freed at once.

    On the XLA CPU plugin it only views the loaded one, and must not be used after that is freed.
    """
    with client._in_call():
        view = client.api.call("PJRT_LoadedExecutable_GetExecutable", loaded_executable=address)
        try:
            yield view
        finally:
            with suppress(UnsupportedByPluginError, UnimplementedError):  # Some plugins lack this.
                client.api.call("PJRT_Executable_Destroy", executable=view)
