"""Execute options (layer 2): what a user says about one execution, as PJRT_ExecuteOptions.

Owns their checks; must not run anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pjrt_hub._capi.call import Struct
from pjrt_hub._capi.values import NamedValue
from pjrt_hub.runtime.execute_context import ExecuteContext

if TYPE_CHECKING:
    from pjrt_hub.runtime.loaded_executable import LoadedExecutable

_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteOptions:
    """Options for `LoadedExecutable.execute`, `execute_sharded` and `execute_portable`.

    Attributes:
        launch_id: the same in all the processes that take part in one execution.
        non_donatable: indices of arguments that must not be donated though the program would.
        context: what the program's custom calls share (PJRT API 0.64).
        call_location: where the user's code called, for the plugin's messages and traces (0.76).
        incarnations: task id to incarnation id of the processes that must still be the same ones
            (0.78).
        custom_options: the plugin's own, by name (0.116).
        use_major_to_minor_data_layout_for_callbacks: host callbacks take and give row-major arrays
            whatever the device's layout (0.108).
    """

    launch_id: int = 0
    non_donatable: Sequence[int] = ()
    context: ExecuteContext | None = None
    call_location: str = ""
    incarnations: Mapping[int, int] = field(default_factory=dict)
    custom_options: Mapping[str, NamedValue] = field(default_factory=dict)
    use_major_to_minor_data_layout_for_callbacks: bool = False

    def __post_init__(self) -> None:
        """Refuses what a C struct cannot hold.

        Raises:
            TypeError: an option of another type.
            ValueError: a negative index, a NUL in the location.
            OverflowError: a number that does not fit.
        """
        _check_int("launch_id", self.launch_id, _INT32)
        object.__setattr__(self, "non_donatable", tuple(self.non_donatable))
        for index in self.non_donatable:
            _check_int("non_donatable", index, _INT64)
        if self.context is not None and not isinstance(self.context, ExecuteContext):
            raise TypeError(f"context is {self.context!r}, not an ExecuteContext")
        if not isinstance(self.call_location, str):
            raise TypeError(f"call_location is {self.call_location!r}; it must be a str")
        if "\0" in self.call_location:
            raise ValueError("call_location holds a NUL, at which C ends it")
        for name in ("incarnations", "custom_options"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(f"{name} is {getattr(self, name)!r}; it must be a mapping")
        for task, incarnation in self.incarnations.items():
            _check_int("a task id of incarnations", task, _INT32)
            _check_int("an incarnation id", incarnation, _INT64)

    def _for(self, executable: LoadedExecutable) -> Struct:
        """Makes the struct for one execution.

        Raises:
            ValueError: there is no argument of an index, or the context is of another plugin.
            ClosedError: the context is closed.
            UnsupportedByPluginError: the plugin is older than an option that is set.
        """
        api, count = executable.client.api, len(executable.signature.parameters)
        for index in self.non_donatable:  # the plugin would ignore it, and donate
            if not 0 <= index < count:
                raise ValueError(f"non_donatable names argument {index}, of {count} from 0")
        members: dict[str, Any] = {"launch_id": self.launch_id}
        if self.non_donatable:
            members["non_donatable_input_indices"] = list(self.non_donatable)
        if self.context is not None:
            if self.context.client.api is not api:
                raise ValueError(f"{self.context!r} was made by another plugin than the program's")
            members["context"] = self.context._address
        if self.call_location:
            members["call_location"] = self.call_location
        if self.incarnations:
            members["task_ids"] = list(self.incarnations)
            members["incarnation_ids"] = list(self.incarnations.values())
        if self.custom_options:
            members["custom_options"] = dict(self.custom_options)
        if self.use_major_to_minor_data_layout_for_callbacks:
            members["use_major_to_minor_data_layout_for_callbacks"] = True
        return Struct("PJRT_ExecuteOptions", members, api.version)


def _check_int(name: str, value: object, fits: range) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; it must be an int")
    if value not in fits:
        raise OverflowError(f"{name} is {value}, which does not fit {fits.stop.bit_length()} bits")
