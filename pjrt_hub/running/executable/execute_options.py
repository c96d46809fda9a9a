"""Execute options: what a user says about one execution, as PJRT_ExecuteOptions.

Owns their checks; must not run anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pjrt_hub.running.capi.call import Struct
from pjrt_hub.running.capi.values import NamedValue
from pjrt_hub.running.executable.host_transfer import HostTransfers
from pjrt_hub.running.extensions.execute_context import ExecuteContext

if TYPE_CHECKING:
    from pjrt_hub.running.executable.argument import Called
    from pjrt_hub.running.executable.host_transfer import OutputCallback, RecvCallback, SendCallback

_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
_ADDRESS = range(2**64 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteOptions:
    """Options of one execution: `exe(a, b, options=...)`, `execute`, `execute_on`.

    A bound call takes them, too.

    Attributes:
        launch_id: the same in all processes, and all parts, of one execution.
        non_donatable: indices of arguments not to be donated, even if the program donates them.
        context: what the program's custom calls share (PJRT API 0.64).
        call_location: where the user's code called, for the plugin's messages and traces (0.76).
        incarnations: task id to incarnation id of the processes that must still be the same ones
            (0.78).
        multi_slice_config: the address of a `PJRT_MultiSlice_Config`, which must live until the
            execution is done: the slices that it is executed on (0.97).
        custom_options: the plugin's own, by name (0.116).
        use_major_to_minor_data_layout_for_callbacks: host callbacks take and give row-major arrays
            whatever the device's layout (0.108).
        send_callbacks: for each device a mapping of channel id to what is called with the bytes
            that the program sends there: `callback(chunk, total_nbytes, done)`.
        recv_callbacks: for each device a mapping of channel id to what is called with the
            `CopyToDeviceStream` that the program receives from: `callback(stream)`.
        hlo_output_callbacks: callback id to `(callback, num_operands)`; the callback is called with
            a copy of the value, the replica, the partition and the plugin's number of it (0.112).

    Callbacks run on a thread of the plugin, several at a time, until the execution is done.
    """

    __module__ = "pjrt_hub"
    launch_id: int = 0
    non_donatable: Sequence[int] = ()
    context: ExecuteContext | None = None
    call_location: str = ""
    incarnations: Mapping[int, int] = field(default_factory=dict)
    multi_slice_config: int | None = None
    custom_options: Mapping[str, NamedValue] = field(default_factory=dict)
    use_major_to_minor_data_layout_for_callbacks: bool = False
    send_callbacks: Sequence[Mapping[int, SendCallback]] = ()
    recv_callbacks: Sequence[Mapping[int, RecvCallback]] = ()
    hlo_output_callbacks: Mapping[int, tuple[OutputCallback, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what a C struct cannot hold."""
        _check_int("launch_id", self.launch_id, _INT32)
        object.__setattr__(self, "non_donatable", tuple(self.non_donatable))
        for index in self.non_donatable:
            _check_int("non_donatable", index, _INT64)
        if self.context is not None and not isinstance(self.context, ExecuteContext):
            raise TypeError(f"context is {self.context!r}, not an ExecuteContext")
        if self.multi_slice_config is not None:
            _check_int("multi_slice_config", self.multi_slice_config, _ADDRESS)
        if not isinstance(self.call_location, str):
            raise TypeError(f"call_location is {self.call_location!r}; it must be a str")
        if "\0" in self.call_location:
            raise ValueError("call_location holds a NUL, at which C ends it")
        for name in ("incarnations", "custom_options"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(f"{name} is {getattr(self, name)!r}; it must be a mapping")
        for name in ("send_callbacks", "recv_callbacks"):
            object.__setattr__(self, name, _check_rows(name, getattr(self, name)))
        _check_callbacks("hlo_output_callbacks", self.hlo_output_callbacks, _check_output)
        for task, incarnation in self.incarnations.items():
            _check_int("a task id of incarnations", task, _INT32)
            _check_int("an incarnation id", incarnation, _INT64)

    def _for(
        self, executable: Called, num_devices: int, whole: bool
    ) -> tuple[Struct, list[object]]:
        """Make the struct for one execution; `whole` means on all the devices of the program.

        The plugin reads the struct during the call, the listed objects until the execution ends.
        """
        client, signature = executable.client, executable.signature
        count = len(signature.parameters)
        for index in self.non_donatable:  # The plugin would ignore a wrong index and donate.
            if not 0 <= index < count and not signature.open:
                raise ValueError(f"non_donatable names argument {index}, of {count} from 0")
        members: dict[str, Any] = {"launch_id": self.launch_id}
        kept: list[object] = []
        if self.non_donatable:
            members["non_donatable_input_indices"] = list(self.non_donatable)
        if self.context is not None:
            if self.context.client.api is not client.api:
                raise ValueError(f"{self.context!r} was made by another plugin than the program's")
            members["context"] = self.context.address
            kept.append(self.context.native())
        if self.call_location:
            members["call_location"] = self.call_location
        if self.incarnations:
            members["task_ids"] = list(self.incarnations)
            members["incarnation_ids"] = list(self.incarnations.values())
        if self.multi_slice_config is not None:
            members["multi_slice_config"] = self.multi_slice_config
        if self.custom_options:
            members["custom_options"] = dict(self.custom_options)
        if self.use_major_to_minor_data_layout_for_callbacks:
            members["use_major_to_minor_data_layout_for_callbacks"] = True
        transfers = HostTransfers(client)
        if self.hlo_output_callbacks:
            members["hlo_output_callbacks"] = transfers.outputs(self.hlo_output_callbacks)
        struct = Struct("PJRT_ExecuteOptions", members, client.api.version)
        for way, rows in (("send", self.send_callbacks), ("recv", self.recv_callbacks)):
            if rows and not whole:
                raise ValueError(
                    f"{way}_callbacks are for execute(), which runs all devices of a program: "
                    "one device alone cannot exchange with the host"
                )
            if rows and len(rows) != num_devices:
                raise ValueError(
                    f"{way}_callbacks are of {len(rows)} device(s), the program has {num_devices}"
                )
            if rows:
                transfers.exchange(struct, way, rows)
        if self.send_callbacks or self.recv_callbacks or self.hlo_output_callbacks:
            kept += [transfers, struct]
        return struct, kept


def require_options(options: object) -> ExecuteOptions:
    """Return the options that were given, or those of a call without any."""
    if options is None:
        return ExecuteOptions()
    if not isinstance(options, ExecuteOptions):
        raise TypeError(f"the options are {options!r}, not ExecuteOptions")
    return options


def _check_rows(name: str, rows: Any) -> tuple[Mapping[int, Any], ...]:
    if isinstance(rows, Mapping) or not isinstance(rows, Sequence):
        raise TypeError(f"{name} is {rows!r}; it must be a list with a mapping for each device")
    for row in rows:
        _check_callbacks(name, row, _check_callback)
        if row.keys() != rows[0].keys():
            raise ValueError(
                f"{name} of one device are for the channels {sorted(row)}, of another for "
                f"{sorted(rows[0])}; all devices run the same program"
            )
    return tuple(dict(row) for row in rows)


def _check_callbacks(name: str, given: Any, check: Callable[[str, object], None]) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} is {given!r}; it must be a mapping")
    for number, callback in given.items():
        _check_int(f"an id of {name}", number, _INT64)
        check(f"{name}[{number}]", callback)


def _check_callback(name: str, callback: object) -> None:
    if not callable(callback):
        raise TypeError(f"{name} is {callback!r}, which cannot be called")


def _check_output(name: str, given: object) -> None:
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"{name} is {given!r}; it must be (callback, num_operands)")
    _check_callback(name, given[0])
    _check_int(f"num_operands of {name}", given[1], range(2**31))


def _check_int(name: str, value: object, fits: range) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; it must be an int")
    if value not in fits:
        raise OverflowError(f"{name} is {value}, which does not fit {fits.stop.bit_length()} bits")
