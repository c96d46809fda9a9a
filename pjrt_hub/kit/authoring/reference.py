"""The StableHLO reference plugin: jaxlib's reference interpreter as a backend.

Slow, and right by definition: what an operation means is what it gives. The interpreter runs in a
process of its own, because it ends its process where it cannot go on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pjrt_hub
from pjrt_hub.base import safe_path
from pjrt_hub.base.fork import Lock, cached_property
from pjrt_hub.door import process
from pjrt_hub.errors import InvalidArgumentError, PluginInternalError, UnimplementedError
from pjrt_hub.kit.authoring import guest
from pjrt_hub.kit.authoring.backend import Backend, Device, Executable, Program
from pjrt_hub.running.sandbox import last_words
from pjrt_hub.running.sandbox.child import describe_end

if TYPE_CHECKING:
    import subprocess


class Reference(Backend):
    """The reference plugin. Its create option `devices` is the number of devices, 1 by default."""

    platform_name = "stablehlo"
    platform_version = "reference interpreter"
    options = ("devices",)
    formats = ("mlir", "hlo")

    def __init__(self) -> None:
        self._interpreter = Interpreter()

    @cached_property
    def attributes(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The interpreter's StableHLO versions, for which its process is started and ended."""
        versions = self._interpreter.ask("versions")
        self._interpreter.close()
        return {"xla_version": 2, **versions}

    def devices(self, options: Mapping[str, Any]) -> Sequence[Device]:
        """See `Backend.devices`."""
        count = options.get("devices", 1)
        if not isinstance(count, int) or not 0 < count <= 1024:
            raise ValueError(f"devices is {count!r}, not a number from 1 to 1024")
        return [Device(each, "stablehlo") for each in range(count)]

    def compile(self, program: Program) -> Executable:
        """See `Backend.compile`."""
        return Interpreted(self._interpreter, program)


class Interpreted(Executable):
    """A program in the interpreter, sent again if the interpreter's process has ended."""

    _keys = itertools.count()

    def __init__(self, interpreter: Interpreter, program: Program) -> None:
        self._interpreter = interpreter
        self._key = next(self._keys)
        counts = (program.num_replicas, program.num_partitions)
        self._compile = ("compile", self._key, program.code, program.format, *counts)
        self.name, self.signature, self._hlo = interpreter.ask(*self._compile)
        weakref.finalize(self, interpreter.forget, self._key).atexit = False

    def execute(self, arguments: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """See `Executable.execute`."""
        for _ in range(2):
            results: Sequence[Sequence[Any]] | None = self._interpreter.ask(
                "execute", self._key, arguments
            )
            if results is not None:
                return results
            self._interpreter.ask(*self._compile)
        raise PluginInternalError("the interpreter forgets its programs")

    def optimized(self) -> tuple[bytes, str]:
        """Return the program in HLO, as XLA's own importer writes it."""
        return (self._hlo, "hlo") if self._hlo else super().optimized()


class Interpreter:
    """The process with the interpreter: started when it is first asked, and again after its end."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._connection: Connection | None = None  # None while there is no process.
        self._process: subprocess.Popen[bytes]
        self._errors: IO[bytes]  # What the process writes.
        self._forgotten: list[int] = []

    def ask(self, *request: Any) -> Any:
        """Send a request and wait for the answer; PluginInternalError: its process has ended."""
        with self._lock:
            while self._forgotten:
                self._exchange(("forget", self._forgotten.pop()))
            failure, answer = self._exchange(request)
        if failure == "unimplemented":
            raise UnimplementedError(answer)
        if failure:
            raise InvalidArgumentError(answer)
        return answer

    def close(self) -> None:
        """End the process; the next request starts another."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
                self._process.wait()
                self._errors.close()

    def forget(self, key: int) -> None:
        """Let go of a program at the next request; may be called while anything runs."""
        self._forgotten.append(key)

    def _exchange(self, request: tuple[Any, ...]) -> tuple[str, Any]:
        connection = self._connection or self._start()
        try:
            connection.send(request)
            answer: tuple[str, Any] = connection.recv()
            return answer
        except (EOFError, OSError) as exc:
            self._connection = None
            with contextlib.suppress(OSError):
                connection.close()
            raise self._failure() from exc

    def _start(self) -> Connection:
        import subprocess

        ours, theirs = socket.socketpair()
        self._errors = os.fdopen(os.memfd_create("interpreter"), "w+b")
        environment = process.environment()
        processors = Path(__file__).parent / "native" / "processors.so"
        preload = [str(processors), environment.get("LD_PRELOAD", "")]
        paths = [str(Path(pjrt_hub.__file__).parents[1]), *guest.paths()]
        with theirs:
            self._process = subprocess.Popen(
                safe_path.python("-m", "pjrt_hub.kit.authoring.interpreter", str(theirs.fileno())),
                env={
                    **safe_path.environment(environment, *paths),
                    "LD_PRELOAD": ":".join(filter(None, preload)),
                    "OPENBLAS_NUM_THREADS": "1",  # OpenBLAS would believe `processors.so`, too.
                },
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
            )
        self._connection = Connection(ours.detach())
        return self._connection

    def _failure(self) -> Exception:
        """Make an error from what the process said at its end."""
        code = self._process.wait()
        self._errors.seek(0)
        said = last_words.condense(self._errors.read()) or "it said nothing"
        self._errors.close()
        fatal = [line for line in said.splitlines() if line.startswith("LLVM ERROR: ")]
        if fatal:
            why = fatal[0].removeprefix("LLVM ERROR: ")
            kind = UnimplementedError if "nsupported" in why else PluginInternalError
            return kind(f"the reference interpreter gave up: {why}")
        return PluginInternalError(f"the interpreter's process {describe_end(code)}: {said}")
