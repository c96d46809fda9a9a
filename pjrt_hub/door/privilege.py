"""Whether this process has more rights than its caller, and what may be trusted then.

Owns the questions to the kernel and to the file system; imports nothing of pjrt-hub.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from functools import cache as once

# With this entry of getauxval(3), the kernel says that the program must not trust its caller.
_AT_SECURE = 23


def reason() -> str:
    """Return why this process has more rights than its caller, or ""; log it once."""
    if sys.platform == "win32":
        return ""  # Windows has no such programs.
    if os.getuid() != os.geteuid():
        why = f"the process of user {os.getuid()} runs as user {os.geteuid()}"
    elif os.getgid() != os.getegid():
        why = f"the process of group {os.getgid()} runs as group {os.getegid()}"
    else:
        why = _elevation_reason()
    if why:
        _warn(why)
    return why


@once
def _warn(why: str) -> None:
    import logging

    text = "%s: its environment, home folder and working directory are ignored"
    logging.getLogger("pjrt_hub").warning(text, why)


@once
def _elevation_reason() -> str:
    if not sys.platform.startswith("linux"):
        return ""
    try:
        with open("/proc/self/auxv", "rb") as file:
            pairs = list(struct.iter_unpack("@LL", file.read()))
    except OSError:
        # A program whose file has capabilities cannot read its own auxiliary vector.
        gained = _extra_capabilities()
        return f"the process has the capabilities {gained:#x}" if gained else ""
    secure = any(key == _AT_SECURE and value for key, value in pairs)
    return "the program was started with more rights than its caller has" if secure else ""


def _extra_capabilities() -> int:
    """Return the capabilities that neither the user has nor the starting process passed on."""
    if sys.platform == "win32" or os.geteuid() == 0:
        return 0
    try:
        with open("/proc/self/status", "rb") as file:
            lines = dict(line.split(b":", 1) for line in file if line.startswith(b"Cap"))
        return int(lines[b"CapPrm"], 16) & ~int(lines[b"CapAmb"], 16)
    except (OSError, KeyError, ValueError):
        return 0


def only_root_writes(path: str) -> bool:
    """Check whether only root can change what an absolute path leads to."""
    if not os.path.isabs(path):
        return False
    parts = path.rstrip("/").split("/")
    for count in range(1, len(parts) + 1):
        above = "/".join(parts[:count]) or "/"
        try:
            status = os.lstat(above)
        except OSError:
            return False
        writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky folder, such as /tmp, nobody else can replace what root made.
        shared = status.st_mode & stat.S_ISVTX and count < len(parts)
        if status.st_uid != 0 or stat.S_ISLNK(status.st_mode) or (writable and not shared):
            return False
    return True
