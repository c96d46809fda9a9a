"""Ambient state: what all native code of a process shares, read from C, not from Python's copies.

Serves checks that a plugin leaves this state alone; Linux only. Must not change anything.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
from contextlib import suppress

_SIGACTION_NBYTES = 256  # No libc has a larger `struct sigaction`; its first word is the handler.
_LC_ALL = 6
_PR_GET_DUMPABLE = 3
_TIMERS = ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF")
#: The fields of the calling thread's status that a plugin must leave alone.
_STATUS = {
    "Name": "the thread's name",
    "Uid": "the user",
    "Gid": "the group",
    "Groups": "the list of groups",
    "Umask": "the umask",
    "SigBlk": "the mask of blocked signals",
    "CapEff": "the mask of capabilities",
    "NoNewPrivs": "no_new_privs",
    "Seccomp": "the mode of seccomp",
    "Cpus_allowed_list": "the cores that the thread may run on",
}


def settings() -> dict[str, object]:
    """Return each setting that has a single value, by the words that describe it."""
    libc = ctypes.CDLL(None)  # This finds libm's functions too, because Python is linked with libm.
    libc.setlocale.restype = ctypes.c_char_p
    small = sys.float_info.min
    found: dict[str, object] = {
        "the working folder": os.getcwd(),
        "the locale": (libc.setlocale(_LC_ALL, None) or b"").decode(errors="replace"),
        "the direction in which floats are rounded": libc.fegetround(),
        "whether floats below the normal ones become 0": small / 4 == 0,
        "the priority": os.getpriority(os.PRIO_PROCESS, 0),
        "the policy of scheduling": os.sched_getscheduler(0),
        "whether others may debug the process": libc.prctl(_PR_GET_DUMPABLE),
    }
    for name in _TIMERS:
        found[f"whether {name} runs"] = signal.getitimer(getattr(signal, name))[0] > 0
    if platform.machine() == "x86_64":  # x87 and SSE each have a control word.
        libc.fegetenv(registers := (ctypes.c_uint32 * 64)())
        units = (registers[0] & 0xFFFF, registers[7] & ~0x3F)  # The bits 0x3F are past exceptions.
        found["the control words of floats"] = "x87 {:#x}, SSE {:#x}".format(*units)
    with suppress(AttributeError):  # Only glibc has this function.
        found["the exceptions of floats that trap"] = libc.fegetexcept()
    with open("/proc/thread-self/status", encoding="ascii", errors="replace") as file:
        fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    return found | {words: fields.get(name) for name, words in _STATUS.items()}


def environment() -> dict[str, str]:
    """Return the variables that `getenv` finds."""
    entries = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    found, index = {}, 0
    while entries and (entry := entries[index]) is not None:
        name, _, value = os.fsdecode(entry).partition("=")
        found[name] = value
        index += 1
    return found


def handlers() -> dict[str, int]:
    """Return the address of each signal's handler; 0 is the default, 1 ignores it."""
    libc, found = ctypes.CDLL(None), {}
    for each in signal.Signals:
        action = ctypes.create_string_buffer(_SIGACTION_NBYTES)
        if libc.sigaction(int(each), None, action) == 0:
            found[each.name] = int.from_bytes(
                action.raw[: ctypes.sizeof(ctypes.c_void_p)], "little"
            )
    return found


def holdings() -> dict[str, int]:
    """Return how much the process holds: resident and allocated bytes, files, and threads."""
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    found = {"resident": resident}
    with suppress(AttributeError):  # Only glibc has mallinfo2, from 2.33 on.
        libc = ctypes.CDLL(None)
        libc.mallinfo2.restype = _Mallinfo2
        info = libc.mallinfo2()
        found["allocated"] = info.uordblks + info.hblkhd
    for name, folder in (("files", "fd"), ("threads", "task")):
        found[name] = len(os.listdir(f"/proc/self/{folder}"))
    return found


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")],
        *[(name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks")],
        ("keepcost", ctypes.c_size_t),
    ]


def leave(status: int) -> None:
    """End the process as C's `exit` does: after the exit handlers of all libraries."""
    ctypes.CDLL(None).exit(status)
