"""Bound calls (layer 2): an executable with its arguments, to be run again and again.

Owns how one is made and shown; checking and running are the compiled call path's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pjrt_hub._capi import hotpath

if TYPE_CHECKING:
    from pjrt_hub.runtime.buffer import Buffer
    from pjrt_hub.runtime.loaded_executable import LoadedExecutable


class BoundCall(hotpath.BoundCall):
    """A call that has its arguments: `call = exe.bind(a, b)`, then `call()`.

    The arguments were compared with the program once; each call only looks whether one was deleted
    and whether something was closed. It holds its buffers. Many threads may call it.

    Attributes:
        executable: what it runs.
    """

    __slots__ = ("__weakref__",)

    executable: LoadedExecutable

    @classmethod
    def _of(
        cls,
        executable: LoadedExecutable,
        rows: tuple[tuple[Buffer, ...], ...],
        single: bool,
        simplify: bool,
    ) -> BoundCall:
        donated = executable.signature.donated
        if donated:
            raise ValueError(
                f"the program donates argument {donated[0]}, which it can take only once\n\n"
                "hint: call exe(a, b) with the buffer of each turn: x = exe(x, b)"
            )
        call = cls()
        call._bind(executable, rows, single, simplify)
        return call

    @property
    def arguments(self) -> tuple[tuple[Buffer, ...], ...]:
        """The buffers that it holds, a row for each of the executable's devices."""
        rows: tuple[tuple[Buffer, ...], ...] = self._rows
        return rows

    def __repr__(self) -> str:
        return f"<BoundCall of {self.executable!r}>"
