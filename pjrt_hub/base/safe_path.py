"""Command lines that take no module and no program from the working directory.

Owns how a Python of ours is started, even in a frozen program, which has no Python, where
programs are looked for, and how they are asked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

#: The first argument of a frozen program that runs a module of this package in place of itself.
_RUN = "--pjrt-hub-run"


def is_frozen() -> bool:
    """Tell whether PyInstaller, cx_Freeze or Nuitka made this program, which needs no Python."""
    return hasattr(sys, "frozen") or getattr(globals().get("__compiled__"), "standalone", False)


def python(*arguments: str) -> list[str]:
    """Give the command line of a Python that takes no module from the working directory.

    `-I` would also leave out the user's own packages and PYTHONPATH. A frozen program starts
    itself, and `run_if_asked` calls the `main` of the module after "-m".
    """
    if is_frozen():  # Here sys.executable may name a Python that does not exist.
        program = os.path.realpath("/proc/self/exe") if sys.platform == "linux" else sys.executable
        return [program, _RUN, *arguments[1:]]
    return [sys.executable, "-P", *arguments]


def run_if_asked() -> None:
    """Run a module of ours, and exit, if this is a frozen program that started itself for that.

    No other program may ask for it: arguments name what these modules load, so that the caller of
    a program with more rights than its own could choose it.
    """
    if not is_frozen() or sys.argv[1:2] != [_RUN]:
        return
    from importlib import import_module

    module = "".join(sys.argv[2:3])
    if not _is_asked_by_itself() or not module.startswith("pjrt_hub."):
        sys.exit(f"{_RUN} is for this program's own use")
    del sys.argv[1:3]
    import_module(module).main()
    sys.exit()


def environment(env: Mapping[str, str], *folders: str) -> dict[str, str]:
    """Give `env` with `folders` first on PYTHONPATH.

    Empty entries, which mean the working directory, are left out.
    """
    path = filter(None, (*folders, *env.get("PYTHONPATH", "").split(os.pathsep)))
    return {**env, "PYTHONPATH": os.pathsep.join(path)}


def which(program: str, env: Mapping[str, str]) -> str | None:
    """Find a program on PATH; skip relative folders, which depend on the working directory."""
    import shutil

    folders = filter(os.path.isabs, env.get("PATH", os.defpath).split(os.pathsep))
    return shutil.which(program, path=os.pathsep.join(folders))


def ask(command: list[str], env: Mapping[str, str], seconds: float) -> str:
    """Run a program that gets no input, and return what it prints.

    One that cannot be run, fails or takes longer raises OSError or SubprocessError.
    """
    import subprocess

    return subprocess.run(
        command,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=seconds,
        check=True,
    ).stdout


def _is_asked_by_itself() -> bool:
    """Check whether the closest ancestor that was not started with `_RUN` is this program."""
    pid = os.getppid()
    try:
        while _read(pid, "cmdline").split(b"\0")[1:2] == [_RUN.encode()]:
            pid = int(_read(pid, "stat").rpartition(b")")[2].split()[1])
        return os.path.samefile(f"/proc/{pid}/exe", "/proc/self/exe")
    except OSError:
        return False


def _read(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
