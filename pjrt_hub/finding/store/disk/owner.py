"""Owners of private directories: processes, named so that their death can be detected.

Owns the names of directories that one process works in; must not remove any.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

#: A directory that nobody wrote to for this long has no owner on a machine that we cannot ask.
_ABANDONED_SECONDS = 24 * 3600
#: In the place of an owner: whoever wants the directory may have it.
NOBODY = "left"


def this_process() -> str:
    """Name this process as "machine-pid-start", so that a reused pid differs."""
    return f"{_machine()}-{os.getpid()}-{_started(os.getpid())}"


def is_ours(path: Path) -> bool:
    """Check whether a directory "content.owner.random" is this process's; not so in a fork."""
    return _owner(path) == this_process()


def is_abandoned(path: Path) -> bool:
    """Check whether the owner of a directory named "content.owner.random" is gone."""
    owner = _owner(path)
    if owner == NOBODY:
        return True
    if not owner:
        return False  # somebody put it there, and it is theirs to remove
    machine, _, process = owner.partition("-")
    pid, _, started = process.partition("-")
    if machine == _machine() and pid.isdecimal():
        return _started(int(pid)) != started
    with suppress(OSError):
        newest = max(each.stat().st_mtime for each in (path, *path.iterdir()))
        return time.time() - newest > _ABANDONED_SECONDS
    return False


def _owner(path: Path) -> str:
    """Return the owner in "content.owner.random", or nothing for other names."""
    parts = path.name.split(".")
    return parts[1] if len(parts) == 3 else ""


def _machine() -> str:
    import hashlib
    import platform

    namespace = ""
    with suppress(OSError):  # two containers may share a cache and a host name
        namespace = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{platform.node()} {namespace}".encode()).hexdigest()[:12]


def _started(pid: int) -> str:
    """Return when a process started, in clock ticks after boot (proc(5), stat, field 22).

    "0" where that cannot be told, and nothing where there is no such process.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "0" if _is_alive(pid) else ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]  # dead, though nobody has waited for it yet


def _is_alive(pid: int) -> bool:
    if not hasattr(os, "geteuid"):
        return True  # on Windows such a question would end it
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # the latter of a number that no process has
        return False
    except OSError:
        pass  # somebody else's
    return True
