"""Process information: what a client is told about the other processes of a program.

Owns the check of that information; the caller finds out which processes are alive.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from pjrt_hub.errors import PjrtError, UnsupportedByPluginError
from pjrt_hub.running.capi.handle import ClientHandle

State = Literal["unspecified", "uninitialized", "disconnected", "connected", "error"]

_STATES = get_args(State)  # The order is that of PJRT_ProcessState.
_READABLE = 78  # Before this minor version, the struct had no struct_size.


class ProcessInfo(NamedTuple):
    """A process of the job, as its peers see it (`PJRT_ProcessInfo`).

    Attributes:
        task_id: the process's number, as in `Client.process_index`.
        incarnation_id: a number that is new each time that the process is started.
        state: the state of the process.
        error: the reason, if the state is "error".
    """

    task_id: int
    incarnation_id: int = 0
    state: State = "connected"
    error: PjrtError | None = None


def update(client: ClientHandle, infos: Sequence[ProcessInfo]) -> None:
    """Report the state of all processes (`PJRT_Client_UpdateGlobalProcessInfo`, 0.78).

    Args:
        client: the client whose plugin is told.
        infos: one for each process.

    Raises:
        TypeError: an item is not a ProcessInfo.
        ValueError: there is none, or one has an impossible number or state.
    """
    name = "PJRT_Client_UpdateGlobalProcessInfo"
    client.api.require(name)
    if client.api.version.minor < _READABLE:
        raise UnsupportedByPluginError(
            f"the plugin reads another {name} than later ones do",
            function=name,
            since=f"0.{_READABLE}",
            have=str(client.api.version),
        )
    given = [_to_struct(info) for info in infos]
    if not given:
        raise ValueError("there is no process to tell about")
    client._call(name, client=client.address, process_infos=given)


def _to_struct(info: ProcessInfo) -> dict[str, object]:
    if not isinstance(info, ProcessInfo):
        raise TypeError(f"{info!r} is not a ProcessInfo")
    if info.state not in _STATES:
        raise ValueError(f"there is no state {info.state!r}, only {', '.join(_STATES)}")
    task, incarnation = operator.index(info.task_id), operator.index(info.incarnation_id)
    if not 0 <= task < 1 << 31 or not 0 <= incarnation < 1 << 64:
        raise ValueError(f"{info!r} has a number that is negative or too large")
    return {
        "task_id": task,
        "incarnation_id": incarnation,
        "state": _STATES.index(info.state),
        "error_code": (info.error.code or 0) if info.error else 0,
        "error_message": info.error.message if info.error else "",
    }
