"""A plugin that records what a host does with it, and fails as a test wants.

Calls of C functions are recorded and failed in the compiled part, for the whole process: a call
does not say which plugin it is for. So one recorder is open at a time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.authoring import _plugin
from pjrt_hub.kit.authoring.backend import Backend, Device, Executable, Program, asks_what_is_kept

_FOR_EVER = (1 << 63) - 1
_OK = 0
_METHODS = ("compile", "execute", "put", "get", "copy")


class Recorder(Backend):
    """A backend that records the calls to another one, and can fail or delay them.

    While it is open (`with Recorder(backend) as recorder`), `calls` are the C functions that the
    host called. `fail`, `delay` and `drop` take one of their names, "PJRT_Client_Compile", and the
    first two also "compile", "execute", "put", "get" or "copy" for the backend's own methods, whose
    failures hosts see late: in the event of an output.

    Attributes:
        programs: the programs that were compiled.
        executions: the arguments of each execution, a row for each device.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.platform_name = backend.platform_name
        self.platform_version = backend.platform_version
        self.options = backend.options
        self.formats = backend.formats
        self.attributes = backend.attributes
        self.asynchronous = backend.asynchronous
        self.programs: list[Program] = []
        self.executions: list[Sequence[Sequence[Any]]] = []
        self._counts = dict.fromkeys(_METHODS, 0)
        self._faults: list[tuple[str, range, float, PjrtError | None]] = []

    def __enter__(self) -> Recorder:
        _plugin.record_begins()
        return self

    def __exit__(self, *raised: object) -> None:
        _plugin.record_ends()

    @property
    def calls(self) -> list[str]:
        """The C functions called since the recorder was opened, the first 65536 of them."""
        return _plugin.recorded()

    def fail(self, name: str, error: PjrtError, *, nth: int = 1, times: int | None = 1) -> None:
        """Make calls fail with an error, without any effect.

        Args:
            name: the name of the C function or method.
            error: the host gets its code and message.
            nth: the first call that fails, counted from now.
            times: how many calls fail; None means all from the first one on.
        """
        self._fault(name, nth, times, error=error)

    def delay(self, name: str, seconds: float, *, nth: int = 1, times: int | None = 1) -> None:
        """Make calls wait before they begin.

        Args:
            name: the name of the C function or method.
            seconds: how long each call waits.
            nth: the first call that waits, counted from now.
            times: how many calls wait; None means all from the first one on.
        """
        self._fault(name, nth, times, seconds=seconds)

    def drop(self, name: str, *, nth: int = 1, times: int | None = 1) -> None:
        """Let calls of a C function succeed without any effect.

        Args:
            name: the name of the C function.
            nth: the first call that is dropped, counted from now.
            times: how many calls are dropped; None means all from the first one on.

        Raises:
            ValueError: the name is that of a method, which must return something.
        """
        self._fault(name, nth, times, dropped=True)

    def _fault(
        self,
        name: str,
        nth: int,
        times: int | None,
        *,
        error: PjrtError | None = None,
        seconds: float = 0,
        dropped: bool = False,
    ) -> None:
        last = _FOR_EVER if times is None else nth + times - 1
        if name not in _METHODS:
            code, text = (_OK, "") if error is None else (error.code or _OK, error.message)
            _plugin.fault(name, nth, last, code, dropped, round(1000 * seconds), text)
        elif dropped:
            raise ValueError(f"{name} cannot be dropped: something must come of it")
        else:
            begun = self._counts[name]
            self._faults.append((name, range(begun + nth, begun + last + 1), seconds, error))

    def _meet(self, name: str) -> None:
        self._counts[name] += 1
        for method, when, seconds, error in self._faults:
            if method == name and self._counts[name] in when:
                time.sleep(seconds)
                if error is not None:
                    raise error

    @property
    def own_memory(self) -> bool:
        """See `Backend.own_memory`."""
        return self._backend.own_memory

    def devices(self, options: Mapping[str, Any]) -> Sequence[Device]:
        """See `Backend.devices`."""
        return self._backend.devices(options)

    def compile(self, program: Program) -> Executable:
        """See `Backend.compile`."""
        self.programs.append(program)
        self._meet("compile")
        return _Recorded(self, self._backend.compile(program))

    def put(self, array: Any, device_id: int) -> Any:
        """See `Backend.put`."""
        self._meet("put")
        return self._backend.put(array, device_id)

    def get(self, handle: Any) -> Any:
        """See `Backend.get`."""
        self._meet("get")
        return self._backend.get(handle)

    def copy(self, handle: Any, device_id: int) -> Any:
        """See `Backend.copy`."""
        self._meet("copy")
        return self._backend.copy(handle, device_id)


class _Recorded(Executable):
    def __init__(self, recorder: Recorder, executable: Executable) -> None:
        self._recorder = recorder
        self._executable = executable
        self.signature = executable.signature
        self.name = executable.name
        self.cost = executable.cost
        self.code_size = executable.code_size

    def execute(
        self, arguments: Sequence[Sequence[Any]], *, non_donatable: Sequence[int] = ()
    ) -> Sequence[Sequence[Any]]:
        self._recorder.executions.append(arguments)
        self._recorder._meet("execute")
        kept = {"non_donatable": non_donatable} if asks_what_is_kept(self._executable) else {}
        return self._executable.execute(arguments, **kept)

    def optimized(self) -> tuple[bytes, str]:
        return self._executable.optimized()
