"""Bound calls: an executable with its arguments, to be run again and again.

Owns how one is made and shown; checking and running are the compiled call path's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pjrt_hub.running.buffer.buffer import Buffer
from pjrt_hub.running.capi import hotpath
from pjrt_hub.running.capi.handle import compact
from pjrt_hub.running.executable.argument import put_row

if TYPE_CHECKING:
    from pjrt_hub.running.executable.execute_options import ExecuteOptions

_Results = TypeVar("_Results")


@compact
class BoundCall(hotpath.BoundCall[_Results]):
    """A call that keeps its arguments: `call = exe.bind(a, b)`, then `call()`.

    The arguments were compared with the program once; each call only looks whether one was deleted
    and whether something was closed. It holds its buffers. Many threads may call it.
    `call(options=ExecuteOptions(...))` takes options as `exe(a, b, options=...)` does.

    Attributes:
        executable: what it runs.
    """

    __slots__ = ()
    __module__ = "pjrt_hub"

    executable: Any

    @property
    def arguments(self) -> tuple[tuple[Buffer, ...], ...]:
        """The buffers that it holds, a row for each of the executable's devices."""
        rows: tuple[tuple[Buffer, ...], ...] = self._rows
        return rows

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
    """Make the call of an executable with a row of arguments for each device.

    `single` gives the outputs of the only row, not a list of rows; `simplify` the only output
    itself. What does not fit is refused as by `exe(...)`, and whatever the program donates.
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
