"""Runs the tests on an emulated aarch64: Debian's Python of that machine below .nox/aarch64.

`nox -s aarch64` calls it. It needs root, and Debian's packages debootstrap and qemu-user-static.
What it mounts is gone when it ends, but the kernel keeps in mind how to start the emulator.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import wheels

ROOT = Path(__file__).resolve().parents[1]
SYSTEM = ROOT / ".nox" / "aarch64"
RELEASE, PYTHON = "bookworm", "3.11"
EMULATOR = Path("/usr/bin/qemu-aarch64-static")
FORMATS = Path("/proc/sys/fs/binfmt_misc")
#: The header of a program or library for aarch64 (ELF, 64 bits), and a mask of the bits that count.
HEADER = r"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xb7\0".replace(r"\0", r"\x00")
MASK = r"\xff\xff\xff\xff\xff\xff\xff\0\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
MASK = MASK.replace(r"\0", r"\x00")
#: The minor versions of glibc whose wheels Debian's Python of that release can use.
GLIBC = range(17, 37)
#: An emulated test takes ten times as long, or thirty while it compiles.
TESTS = ("-p", "no:randomly", "--timeout=1800", "--numprocesses=2", "--dist=loadfile")
LEFT_OUT = (
    *("-m", "not slow and not network"),
    # The emulator adds a line to what dying processes print, and starts them after their deadlines.
    "--ignore=fake/test_contact.py",
    # In the emulator, the stub's work ends before the program looks.
    "--deselect=fake/test_awaiting.py::test_a_cancelled_task_among_others",
    "--deselect=fake/test_awaiting.py::test_a_loop_that_ends_first",
)


def main() -> None:
    """Installs the wheel that the command line names, and runs the parts that follow it."""
    wheel, *parts = sys.argv[1:]
    register_emulator()
    if not (SYSTEM / "venv").is_dir():
        make_system()
    install(Path(wheel))
    shutil.rmtree(SYSTEM / "src", ignore_errors=True)
    wheels.copy_sources(SYSTEM / "src")
    emulate("/venv/bin/python", "/src/examples/hello.py")
    emulate(
        "sh", "-c", 'cd /src/tests && exec /venv/bin/pytest "$@"', "-", *TESTS, *LEFT_OUT, *parts
    )


def register_emulator() -> None:
    """Let the kernel start the emulator for each program of an aarch64."""
    if not (EMULATOR.exists() and shutil.which("debootstrap")) or os.geteuid():
        sys.exit(
            "error: the emulator needs root, debootstrap and qemu-user-static\n\n"
            "hint: apt-get install debootstrap qemu-user-static, then run this as root"
        )
    if not (FORMATS / "register").exists():
        run("mount", "-t", "binfmt_misc", "none", FORMATS)
    if not (FORMATS / "qemu-aarch64").exists():
        # Flag F opens the emulator now, so that it is found below another root.
        (FORMATS / "register").write_text(f":qemu-aarch64:M::{HEADER}:{MASK}:{EMULATOR}:OCF")


def make_system() -> None:
    """Unpack Debian with Python and a compiler, for the plugins of a few lines of C."""
    shutil.rmtree(SYSTEM, ignore_errors=True)
    packages = "--include=python3-venv,gcc,libc6-dev"
    run("debootstrap", "--arch=arm64", "--variant=minbase", packages, RELEASE, SYSTEM)
    emulate("python3", "-m", "venv", "/venv")


def install(wheel: Path) -> None:
    """Installs a wheel and what the tests need; the emulated pip reaches no index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups = project["dependency-groups"]
    there = (*groups["test"], *groups["cpu"])
    wanted = [*project["project"]["dependencies"], *there, "setuptools"]
    wanted.append("async-timeout")  # redis requires it on Python 3.11.2.
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in GLIBC]
    run(
        *(sys.executable, "-m", "pip", "download", "--quiet", f"--dest={SYSTEM / 'wheels'}"),
        *(f"--python-version={PYTHON}", "--only-binary=:all:", "--platform=manylinux2014_aarch64"),
        *platforms,
        *wanted,
    )
    shutil.copy(wheel, SYSTEM / "wheels")
    pip = ("/venv/bin/pip", "install", "--quiet", "--no-index", "--find-links=/wheels")
    emulate(*pip, *wanted)
    emulate(*pip, "--no-deps", "--force-reinstall", f"/wheels/{wheel.name}")


def emulate(*command: str) -> None:
    """Run a command below that root, whose mounts end with it."""
    mounts = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev"'
    clean = (
        "env",
        "-i",
        "HOME=/root",
        "LANG=C.UTF-8",
        "PATH=/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    )
    script = f'{mounts} && exec chroot "$0" "$@"'
    run("unshare", "--mount", "sh", "-c", script, SYSTEM, *clean, *command)


def run(*command: str | Path) -> None:
    """Run a command, and ends with its status if it fails."""
    if status := subprocess.run(command, check=False).returncode:
        sys.exit(status)


if __name__ == "__main__":
    main()
