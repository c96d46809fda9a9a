"""What a plugin does to its process: state, idle threads and exit (areas plugin and client)."""

from __future__ import annotations

import fcntl
import math
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from pjrt_hub.errors import PjrtError, PjrtHubError
from pjrt_hub.kit.conformance import separate_process
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.checks import leaks
from pjrt_hub.kit.conformance.finding import Failed, Skipped, Unsupported, expect, raise_as
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.kit.conformance.progress import CallProgress
from pjrt_hub.kit.conformance.separate_process import Died, Tell, attempt
from pjrt_hub.kit.conformance.subject import Subject, load
from pjrt_hub.running.capi import ambient
from pjrt_hub.running.sandbox import watch

#: The names of limits by their numbers; some numbers have two names, of which one is kept.
_LIMITS = {
    getattr(resource, name): name
    for name in sorted(dir(resource), reverse=True)
    if name.startswith("RLIMIT_")
}
_STREAMS = frozenset((0, 1, 2))
#: Hosts handle these signals, and a plugin must leave them alone.
_HOSTS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGCHLD", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGPIPE")
#: The loader, the C library, Python, and libraries with threads read variables whose names begin
#: like this.
_OF_OTHERS = (
    *("LD_", "MALLOC_", "LC_", "LANG", "TZ", "PATH", "HOME", "TMPDIR", "PYTHON"),
    *("OMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_"),
)
_TO_EXIT = 20.0
_LOOK = 0.3  # Seconds that each look at a sleeping process takes.
_LOOKS = 10
_ASLEEP = 0.1  # A spinning thread uses more of a processor than this, even on a busy machine.


class _State(NamedTuple):
    """The state that all code in a process shares, by the words that name it in messages."""

    settings: dict[str, object]
    limits: dict[str, tuple[int, int]]
    environment: dict[str, str]
    handlers: dict[str, int]
    files: dict[int, tuple[int, int, int]]

    @classmethod
    def now(cls) -> _State:
        limits = {name: resource.getrlimit(number) for number, name in _LIMITS.items()}
        settings, variables = ambient.settings(), ambient.environment()
        return cls(settings, limits, variables, ambient.handlers(), _open_files())

    def changes(self, after: _State) -> tuple[list[str], list[str]]:
        """Return the changes that a plugin must not make, and those that are only noted."""
        notes = list[str]()
        found = [
            f"{what} is {value}"
            for what, value in after.settings.items()
            if value != self.settings[what]
        ]
        for name, (soft, hard) in after.limits.items():
            before = self.limits[name]
            if hard != before[1]:
                found.append(f"{name} is {hard}")
            elif _below(soft, before[0]):
                found.append(f"{name} is {soft} of {hard}")
            elif soft != before[0]:
                notes.append(f"raises {name} to {soft}")
        for name, value in self.environment.items():
            if (now := after.environment.get(name)) != value:
                found.append(f"the variable {name} is {now!r}")
        new = sorted(after.environment.keys() - self.environment.keys())
        found += [f"the variable {name} is set" for name in new if name.startswith(_OF_OTHERS)]
        if own := [name for name in new if not name.startswith(_OF_OTHERS)]:
            notes.append(f"sets environment variables: {', '.join(own)}")
        taken = [name for name, each in after.handlers.items() if each != self.handlers[name]]
        if lost := [name for name in taken if name in _HOSTS and self.handlers[name]]:
            found.append(f"the handlers of {', '.join(lost)} are others")
        if new := sorted(set(taken) - set(lost)):
            notes.append(f"handles signals of the process: {', '.join(new)}")
        if closed := sorted(self.files.keys() - after.files.keys()):
            found.append(f"files {', '.join(map(str, closed))} are closed")
        if moved := [
            each
            for each in (_STREAMS | self.files.keys()) & after.files.keys()
            if self.files.get(each) != after.files[each]
        ]:
            found.append(f"files {', '.join(map(str, sorted(moved)))} are others, or their flags")
        return found, notes


@check(area="plugin", needs="process", seconds=60)
def process(subject: Subject) -> None:
    """Load and initialize the plugin -> files, folder, signals and limits are unchanged."""
    _leaves_alone(subject, "load")


@check(area="client", name="process", needs="process", seconds=60)
def process_of_client(subject: Subject) -> None:
    """Create a client, compile, run, destroy it -> the process is unchanged after each call."""
    _leaves_alone(subject, "run", "use", "destroy")


def _leaves_alone(subject: Subject, *steps: str) -> None:
    """Fail if steps change the process; if it dies, repeat them without the step `use`."""
    end = time.monotonic() + 50
    try:
        changes, notes = separate_process.run(subject, changes_of, *steps, seconds=25)
    except Died:
        steps = tuple(each for each in steps if each != "use")
        left = end - time.monotonic()
        with raise_as(Skipped, "the process", Died):
            changes, notes = separate_process.run(subject, changes_of, *steps, seconds=left)
    for each in notes:
        subject.note(each)
    expect(not changes, f"expected the process as it was, found {'; '.join(changes)}")


def changes_of(subject: Subject, *steps: str) -> tuple[list[str], list[str]]:
    """Take steps with a plugin; return forbidden changes of the process, and noted ones."""
    watch.adopt()
    output, path = tempfile.mkstemp()
    os.unlink(path)
    os.dup2(output, 1)
    for name in _HOSTS:
        signal.signal(getattr(signal, name), lambda *_: None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # The parent ends this process by SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
    if (child := os.fork()) == 0:
        os._exit(0)
    found, notes = dict[str, str](), dict[str, str]()  # Each value names the call before a change.
    if "load" not in steps:
        _load(subject)
    before = _State.now()

    def look(function: str = "") -> None:
        for told, each in zip((found, notes), before.changes(_State.now()), strict=True):
            for text in each:
                told.setdefault(text, f" after {function}" if function else "")

    subject.progress = _Looking(subject.progress, look)
    try:
        for step in steps:
            _STEPS[step](subject)
    except Skipped:
        if not found:
            raise
    except (Failed, PjrtError) as exc:  # Other checks report this.
        if not found:
            raise Skipped(str(exc)) from exc
    look()
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        found["the end of a child process is lost"] = ""
    if left := list(watch.children()):
        # A client may start helper processes, so those are only noted.
        told = found if "load" in steps else notes
        told[f"{len(left)} process(es) were left running"] = ""
    if words := os.pread(output, 200, 0):
        notes[f"writes to the standard output, which is not its own: {words!r}"] = ""
    return [each + after for each, after in found.items()], list(notes)


class _Looking(CallProgress):
    """A record of calls that also looks at the process after each call of the plugin."""

    def __init__(self, progress: CallProgress | None, look: Callable[[str], None]) -> None:
        # The object shares the memory of `progress`, so readers of that see its calls, too.
        vars(self).update(vars(progress or CallProgress()))
        self._look = look

    def leave(self) -> None:
        self._look(self.function)
        super().leave()


def _load(subject: Subject) -> None:
    with raise_as(Skipped, of=PjrtHubError):
        load(subject.path)


def _run(subject: Subject) -> None:
    a = subject.put(np.arange(4, dtype=np.float32))
    (output,) = subject.execute(subject.compile(ADD), [a, a])
    subject.get(output)


def _use(subject: Subject) -> None:
    """Make each kind of use of the leak checks once, whether or not it succeeds."""
    for kind in leaks.KINDS.values():
        with suppress(Failed, Skipped, Unsupported, PjrtError):
            kind.prepare(subject)()


def _destroy(subject: Subject) -> None:
    subject.end_check()
    subject.api.call("PJRT_Client_Destroy", client=subject.client)


_STEPS: dict[str, Callable[[Subject], object]] = {
    "load": _load,
    "create": lambda subject: subject.client,
    "run": _run,
    "use": _use,
    "destroy": _destroy,
}


@check(area="client", needs="process", seconds=60)
def idle(subject: Subject) -> None:
    """Run a program, destroy the client, sleep after each step -> no thread uses a processor."""
    with raise_as(Skipped, "the process", Died):
        busy = separate_process.run(subject, work_for_nothing, seconds=50)
    expect(not busy, f"expected a process that sleeps, found {busy}")


def work_for_nothing(subject: Subject) -> str:
    """Say after which step of a plugin its threads go on working; empty for none."""
    for name in ("load", "create", "run", "destroy"):
        with raise_as(Skipped, of=(Failed, PjrtError)):  # Other checks report this.
            _STEPS[name](subject)
        if (used := _processors_in_use()) > _ASLEEP:
            return f"{used:.1f} processors in use after the step: {name}"
    return ""


def _processors_in_use() -> float:
    """Return the fewest processors used in several looks, as work may take a while to end."""
    least = math.inf
    for _ in range(_LOOKS):
        begin, before = time.monotonic(), time.process_time()
        time.sleep(_LOOK)
        least = min(least, (time.process_time() - before) / (time.monotonic() - begin))
        if least <= _ASLEEP:
            break
    return least


@check(area="plugin", name="exit", needs="plugin", seconds=60)
def exit_of_process(subject: Subject) -> None:
    """Load the plugin and exit without a client -> exit status 0, in time."""
    _exits(subject, "load")


@check(area="client", name="exit", needs="plugin", seconds=60)
def exit_of_client(subject: Subject) -> None:
    """Run a program, destroy the client, exit -> exit status 0, in time."""
    _exits(subject, "load", "run", "destroy")


@check(area="client", name="exit_without_destroy", needs="plugin", seconds=60)
def exit_without_destroy(subject: Subject) -> None:
    """Run a program, exit while client, buffers and programs are alive -> exit status 0."""
    _exits(subject, "load", "run")


def _exits(subject: Subject, *steps: str) -> None:
    with raise_as(Skipped, "the process", Died):
        ended, words = separate_process.run(subject, exits, *steps, seconds=50)
    if words:
        subject.note(f"writes to the standard output at exit: {words!r}")
    expect(ended == "exited with 0", f"expected exit status 0, found that the process {ended}")


def exits(subject: Subject, *steps: str) -> tuple[str, str]:
    """Call C's `exit` after steps of a plugin; return how the process ended and what it wrote."""
    output, path = tempfile.mkstemp()
    os.unlink(path)

    def work(tell: Tell) -> None:
        try:
            for step in steps:
                _STEPS[step](subject)
        except (Failed, Skipped, Unsupported, PjrtError) as exc:
            tell(str(exc))
            return
        os.dup2(output, 1)
        tell("")
        ambient.leave(0)

    said, ended = attempt(work, _TO_EXIT)
    if said != [""]:
        raise Skipped(" ".join(said) or f"the process {ended} before its exit")
    return ended, os.pread(output, 200, 0).decode(errors="replace")


def _below(soft: int, before: int) -> bool:
    if resource.RLIM_INFINITY in (soft, before):
        return soft != before and before == resource.RLIM_INFINITY
    return soft < before


def _open_files() -> dict[int, tuple[int, int, int]]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # The descriptor of the folder itself is already closed.
            status = os.fstat(int(name))
            found[int(name)] = status.st_dev, status.st_ino, fcntl.fcntl(int(name), fcntl.F_GETFL)
    return found
