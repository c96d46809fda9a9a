"""Processes for faults: forks of a warm one, so that a thousand of them cost seconds.

The warm process has imported everything and made one whole fetch. A fork waits for `go`, runs one
function of `walks.py`, and says how it ended; system calls can be failed or counted by strace.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STRACE = shutil.which("strace")
#: System calls that change the disk, under the names of both x86-64 and arm64.
COMMIT = (
    *("open", "openat", "creat", "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "close"),
    *("rename", "renameat", "renameat2", "mkdir", "mkdirat", "chmod", "fchmod", "fchmodat"),
    *("flock", "fcntl", "unlink", "unlinkat", "rmdir", "link", "linkat", "utimensat"),
)


@dataclass(frozen=True)
class Ended:
    """How a fork ended.

    Attributes:
        signal: what killed it, or 0.
        value: what its function returned.
        error: the name of the class of the exception that it raised, or an empty string.
        ours: whether that is one of pjrt-hub's own, or Ctrl-C.
        told: the exception with its traceback.
    """

    signal: int
    value: Any = None
    error: str = ""
    ours: bool = True
    told: str = ""


class Fork:
    """A process that waits for `go`."""

    def __init__(self, warm: socket.socket, walk: str, given: dict[str, Any]) -> None:
        # These are sockets: tests make calls on pipes fail, but never those that send and receive.
        self._go, go = socket.socketpair()
        self._answer, answer = socket.socketpair()
        self._statuses, status = os.pipe()
        request = json.dumps({"walk": walk, "given": given}).encode()
        with go, answer:
            socket.send_fds(warm, [request], [go.fileno(), answer.fileno(), status])
        os.close(status)
        self._status = os.fdopen(self._statuses, "r")
        self.pid = int(self._status.readline())
        self._tracer: subprocess.Popen[bytes] | None = None

    def trace(self, *options: str, log: Path | str = os.devnull) -> Fork:
        command = [STRACE, "-f", "-qq", "-o", str(log), *options, "-p", str(self.pid)]
        self._tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 30
        while "TracerPid:\t0\n" in Path(f"/proc/{self.pid}/status").read_text():
            assert self._tracer.poll() is None, self._tracer.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.0005)
        return self

    def inject(self, fault: str, call: str, n: int) -> Fork:
        """Make the n-th system call of that name fail ("error=EIO") or kill ("signal=KILL")."""
        return self.trace("-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={n}")

    def go(self) -> Fork:
        self._go.send(b"x")
        return self

    def kill(self, number: int = signal.SIGKILL) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def ended(self) -> Ended:
        with self._go, self._status, self._answer, self._answer.makefile() as answers:
            answer = answers.read()
            status = int(self._status.read())
        if self._tracer:
            self._tracer.communicate(timeout=60)
        if os.WIFSIGNALED(status):
            return Ended(os.WTERMSIG(status))
        return Ended(0, **json.loads(answer))


class Forks:
    """The warm process, which makes the forks; use it in a `with` block."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._warm, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "forks.py"), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,
            )
        assert self._warm.recv(1) == b"w"

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *exc: object) -> None:
        self._warm.close()
        self._process.wait(60)

    def fork(self, walk: str, **given: Any) -> Fork:
        """A fork that will run that function of `walks.py` with these arguments."""
        return Fork(self._warm, walk, given)

    def run(self, walk: str, **given: Any) -> Ended:
        return self.fork(walk, **given).go().ended()

    def calls(self, log: Path, walk: str, names: tuple[str, ...], **given: Any) -> dict[str, int]:
        """Run a walk to its end; count the system calls of each name that its busiest thread makes.

        strace counts for each thread separately, too, so it could not fail a call beyond the
        count of the busiest one.
        """
        fork = self.fork(walk, **given).trace("-e", f"trace={traced(names)}", log=log)
        ended = fork.go().ended()
        assert not ended.error, ended.told
        found = Counter(re.findall(r"^(\d+) +(\w+)\(", log.read_text(), re.MULTILINE))
        most: dict[str, int] = {}
        for (_, name), count in found.items():
            most[name] = max(count, most.get(name, 0))
        return most


def traced(names: tuple[str, ...]) -> str:
    """The calls in strace's form; one that this machine does not have is no error."""
    return ",".join(f"?{name}" for name in names)


def main(channel: socket.socket) -> None:
    """Fork on demand until the other end of the channel is closed."""
    sys.path[:0] = [str(HERE), str(HERE.parent / "unit")]
    import walks

    walks.warm_up()
    channel.send(b"w")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    while True:
        request, files, _, _ = socket.recv_fds(channel, 65536, 3)
        if not request:
            return
        if os.fork() == 0:
            channel.close()
            _keep(walks, json.loads(request), *files)
        for file in files:
            os.close(file)


def _keep(walks: Any, request: dict[str, Any], go: int, answer: int, status: int) -> None:
    """Fork once more, and tell the pid and the status of that fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:  # before `go` it makes no call that a test fails
        socket.socket(fileno=go).recv(1)
        _walk(getattr(walks, request["walk"]), request["given"], answer)
    os.close(answer)
    os.close(go)
    os.write(status, f"{pid}\n".encode())
    os.write(status, str(os.waitpid(pid, 0)[1]).encode())
    os._exit(0)


def _walk(function: Any, given: dict[str, Any], answer: int) -> None:
    import traceback

    from pjrt_hub.errors import PjrtHubError

    try:
        told = {"value": function(**given)}
    except BaseException as exc:
        ours = isinstance(exc, (PjrtHubError, KeyboardInterrupt))
        text = traceback.format_exc()
        told = {"error": type(exc).__name__, "ours": ours, "told": text}
    socket.socket(fileno=answer).sendall(json.dumps(told).encode())
    os._exit(0)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
