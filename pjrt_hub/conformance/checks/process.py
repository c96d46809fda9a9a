"""What becomes of a process that loads a plugin (area plugin)."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from contextlib import suppress
from typing import NamedTuple

from pjrt_hub._capi import library, watch
from pjrt_hub.conformance import part
from pjrt_hub.conformance.check import check
from pjrt_hub.conformance.finding import Skipped, expect
from pjrt_hub.conformance.subject import Subject
from pjrt_hub.errors import PjrtHubError

_LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]


class _State(NamedTuple):
    """What a process shares with all that is in it, each thing with the words to tell it."""

    settings: dict[str, object]
    files: frozenset[int]
    signals: frozenset[str]

    @classmethod
    def now(cls) -> _State:
        mask = os.umask(0)
        os.umask(mask)
        limits = {name: resource.getrlimit(getattr(resource, name))[1] for name in _LIMITS}
        settings = {"the working folder": os.getcwd(), "the umask": oct(mask), **limits}
        return cls(settings, _open_files(), _handled_signals())


@check(area="plugin", needs="library", seconds=60)
def process(subject: Subject) -> None:
    """Loading and PJRT_Plugin_Initialize -> the process is as before: files, folder, limits."""
    try:
        changes, notes = part.run(subject, changes_of_loading, seconds=50)
    except part.Died as exc:
        raise Skipped(f"the process that loads it {exc}") from exc
    for each in notes:
        subject.note(each)
    expect(not changes, f"expected the process as it was, found {'; '.join(changes)}")


def changes_of_loading(subject: Subject) -> tuple[list[str], list[str]]:
    """What is different in a process after a plugin was loaded: what must not be, and what may."""
    watch.adopt()
    output, path = tempfile.mkstemp()
    os.unlink(path)
    os.dup2(output, 1)
    before = _State.now()
    try:
        library.load(subject.path)
    except PjrtHubError as exc:
        raise Skipped(exc.message) from exc
    after, notes = _State.now(), []
    found = [
        f"{what} is {value}"
        for what, value in after.settings.items()
        if value != before.settings[what]
    ]
    if closed := sorted(before.files - after.files):
        found.append(f"files {', '.join(map(str, closed))} are closed")
    if left := list(watch.children()):
        found.append(f"{len(left)} process(es) were left running")
    if words := os.pread(output, 200, 0):
        notes.append(f"writes to the standard output, which is not its own: {words!r}")
    if taken := sorted(after.signals - before.signals):
        notes.append(f"handles signals of the process: {', '.join(taken)}")
    return found, notes


def _open_files() -> frozenset[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the folder itself
            os.fstat(int(name))
            found.add(int(name))
    return frozenset(found)


def _handled_signals() -> frozenset[str]:
    """Those that are caught or ignored, whoever asked for it."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        fields = dict(line.split(":", 1) for line in file)
    handled = int(fields["SigCgt"], 16) | int(fields["SigIgn"], 16)
    return frozenset(each.name for each in signal.Signals if handled >> (each - 1) & 1)
