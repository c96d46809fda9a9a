"""A process whose pjrt_hub sees Windows or macOS: `python elsewhere.py SYSTEM COMMAND...`.

Each COMMAND is a command line of `pjrt-hub` in one word; `imports` imports every portable module,
and `client NAME` asks for a client as a program does.
Their output and their exit statuses are printed as JSON on stdout.
"""

import builtins
import contextlib
import errno
import importlib
import io
import json
import os
import pkgutil
import platform
import select
import shlex
import signal
import stat
import sys
import time
from types import ModuleType
from typing import Any

#: The pure-Python rooms, without the modules of RUNNING, which need the C API.
ROOMS = ("base", "finding", "door", "cli")
RUNNING = {"pjrt_hub.base.native_log", "pjrt_hub.door.policy"}

POSIX_MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix"}
#: Names in `os`, `select`, `signal` and `time` that Windows lacks.
POSIX_NAMES = """
    O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK O_SYNC O_DSYNC O_NOCTTY O_ACCMODE WNOHANG
    WNOWAIT WEXITED P_PID PRIO_PROCESS ST_RDONLY RTLD_NOW RTLD_GLOBAL F_LOCK F_TLOCK SCHED_OTHER
    chown lchown fchown fchmod fchdir chroot fork forkpty openpty killpg nice wait wait3
    wait4 waitid WIFEXITED WEXITSTATUS getuid geteuid getgid getegid getgroups setuid setgid
    seteuid getpgid getpgrp getsid setsid getpriority setpriority getloadavg register_at_fork
    pread preadv pwrite pwritev readv writev sendfile statvfs fstatvfs sysconf confstr pathconf
    uname mkfifo mknod posix_spawn sync lockf ttyname ctermid poll SIGKILL SIGHUP SIGQUIT
    SIGPIPE SIGCHLD SIGUSR1 SIGUSR2 SIGALRM SIGSTOP SIGCONT alarm setitimer getitimer
    ITIMER_REAL pthread_kill pthread_sigmask sigwait sigpending siginterrupt tzset clock_gettime
    CLOCK_MONOTONIC CLOCK_REALTIME
"""
#: Names in the same modules that only Linux has.
LINUX_NAMES = """
    O_TMPFILE O_PATH O_DIRECT O_NOATIME O_LARGEFILE ST_NOEXEC ST_NODEV RTLD_DEEPBIND
    memfd_create MFD_CLOEXEC eventfd splice copy_file_range posix_fadvise POSIX_FADV_SEQUENTIAL
    posix_fallocate fdatasync preadv2 getrandom getxattr setxattr listxattr pidfd_open unshare
    setns sched_getaffinity sched_setaffinity getresuid setresuid epoll EPOLLIN SIGRTMIN SIGPWR
    SIGSTKFLT sigtimedwait sigwaitinfo CLOCK_BOOTTIME pthread_getcpuclockid
"""
COMPILED = ("pjrt_hub.running.capi._pjrt", "pjrt_hub.running.capi.hotpath")
COMPILED += ("pjrt_hub.kit.authoring._plugin",)


class Elsewhere(ModuleType):
    """A module as pjrt_hub would see it on the other system."""

    def __init__(self, real: ModuleType, gone: set[str] = frozenset(), **other: object) -> None:
        super().__init__(real.__name__)
        self._real, self._gone = real, gone
        self.__dict__.update(other)

    def __getattr__(self, name: str) -> Any:
        if name in self._gone:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} there")
        return getattr(self._real, name)


def become(system: str) -> None:
    """Make pjrt_hub see another system, while other modules still see the real one."""
    windows = system == "windows"
    gone = set((LINUX_NAMES + POSIX_NAMES * windows).split())
    machine = {"machine": lambda: "AMD64" if windows else "arm64"}
    machine |= {"system": lambda: "Windows" if windows else "Darwin"}
    machine |= {"mac_ver": lambda: ("" if windows else "14.5", ("", "", ""), "")}
    modules = {
        "sys": Elsewhere(sys, platform="win32" if windows else "darwin"),
        "platform": Elsewhere(platform, {"libc_ver"}, **machine),
        "select": Elsewhere(select, gone),
        "signal": Elsewhere(signal, gone),
        "time": Elsewhere(time, gone),
        "os": Elsewhere(os, gone, **(files_of_windows() if windows else {})),
    }
    hidden = {*COMPILED, *(POSIX_MODULES if windows else ())}
    original = builtins.__import__

    def from_there(name: str, globals: Any = None, *rest: Any, **kw: Any) -> Any:
        if str((globals or {}).get("__name__")).startswith("pjrt_hub"):
            if name in hidden:
                raise ModuleNotFoundError(f"No module named {name!r} there", name=name)
            if name in modules:
                return modules[name]
        return original(name, globals, *rest, **kw)

    builtins.__import__ = from_there


def files_of_windows() -> dict[str, object]:
    """Make file operations of this process fail as they do on Windows.

    Nothing can replace a folder, `rename` replaces nothing, and no file can be renamed or removed
    if it is open, read-only, or in a folder that is renamed. Only files can be synced.
    """
    opened, rename, replace, unlink, fsync = os.open, os.rename, os.replace, os.unlink, os.fsync

    def refuse(path: Any) -> None:
        raise PermissionError(errno.EACCES, "Access is denied", str(path))

    def require_closed(path: Any, dir_fd: int | None = None) -> None:
        base = os.readlink(f"/proc/self/fd/{dir_fd}") if dir_fd is not None else os.getcwd()
        place = os.path.join(base, os.fspath(path))
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):
                held = os.readlink(f"/proc/self/fd/{number}")
                is_file = stat.S_ISREG(os.stat(f"/proc/self/fd/{number}").st_mode)
                if is_file and (held == place or held.startswith(f"{place}/")):
                    refuse(path)

    def new_rename(src: Any, dst: Any, **kw: Any) -> None:
        require_closed(src)
        if os.path.exists(dst):
            raise FileExistsError(errno.EEXIST, "the file exists", str(dst))
        rename(src, dst, **kw)

    def new_replace(src: Any, dst: Any, **kw: Any) -> None:
        require_closed(src)
        require_closed(dst)
        if os.path.isdir(dst):
            refuse(dst)
        replace(src, dst, **kw)

    def new_unlink(path: Any, *, dir_fd: int | None = None) -> None:
        require_closed(path, dir_fd)
        found = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        if not found.st_mode & stat.S_IWUSR:
            refuse(path)
        unlink(path, dir_fd=dir_fd)

    def new_fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        fsync(file)

    os.rename, os.replace, os.unlink, os.remove = new_rename, new_replace, new_unlink, new_unlink
    os.fsync = new_fsync

    def open_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if os.path.isdir(path):
            refuse(path)
        return opened(path, flags, mode)

    def utime(path: Any, *rest: Any, **kw: Any) -> None:
        if isinstance(path, int):
            raise TypeError("utime: path should be string, bytes or os.PathLike, not int")
        os.utime(path, *rest, **kw)

    def kill(pid: int, number: int) -> None:
        raise AssertionError(f"{pid} would be ended by {number}")

    changed = {"open": open_file, "utime": utime, "kill": kill, "name": "nt"}
    return {**changed, "supports_dir_fd": set(), "supports_fd": {os.stat, os.truncate, os.chdir}}


def import_all(line: str) -> tuple[int, str, str]:
    """Import every portable module; one that needs something missing raises."""
    names = ["pjrt_hub.errors"]
    for room in ROOMS:
        package = importlib.import_module(f"pjrt_hub.{room}")
        found = pkgutil.walk_packages(package.__path__, f"pjrt_hub.{room}.")
        names += [each.name for each in found]
    for name in names:
        if name not in RUNNING:
            importlib.import_module(name)
    return 0, f"{len(names)} modules below {sys.modules['pjrt_hub'].__path__[0]}", ""


def client(line: str) -> tuple[int, str, str]:
    """Ask for a client, and report the error."""
    import pjrt_hub

    try:
        pjrt_hub.client(line.split()[1])
    except ImportError as exc:
        return 1, "", str(exc)
    return 0, "", ""


def run(line: str) -> tuple[int, str, str]:
    """Run one command line of `pjrt-hub`, and return its exit status and output."""
    from pjrt_hub.cli.__main__ import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(shlex.split(line))
    return status, out.getvalue(), err.getvalue()


def main(system: str, *commands: str) -> None:
    become(system)
    others = {"imports": import_all, "client": client}
    print(json.dumps([others.get(each.split()[0], run)(each) for each in commands]))


if __name__ == "__main__":
    main(*sys.argv[1:])
