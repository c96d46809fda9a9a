"""The machine that plugins run on, as a tag (read once and passed in).

Owns `HostTag`; must not look at accelerators, as `discovery.hardware` does.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import NamedTuple


class HostTag(NamedTuple):
    """The properties of a machine that decide whether a native library can load on it.

    As text, it is "linux-x86_64-glibc2.36", "macos-arm64-14.0" or "windows-x86_64". In a registry
    row, the version is the oldest one that the library runs on.
    """

    os: str
    arch: str  # "x86_64" or "aarch64" ("arm64" is read as "aarch64").
    libc: str = ""  # "glibc" or "musl" on Linux, and empty on other systems.
    version: tuple[int, ...] = ()  # The version of libc on Linux, of the system on macOS, or ().

    def __str__(self) -> str:
        tail = f"{self.libc}{'.'.join(map(str, self.version))}"
        return f"{self.os}-{self.arch}" + (f"-{tail}" if tail else "")

    @classmethod
    def parse(cls, text: str) -> HostTag:
        """Read a tag that `str` wrote; raise ValueError for other text."""
        parts = text.split("-")
        if len(parts) not in (2, 3):
            raise ValueError(f"{text!r} is not a host tag such as 'linux-x86_64-glibc2.28'")
        tail = parts[2] if len(parts) == 3 else ""
        libc = tail.rstrip("0123456789.")
        digits = tail[len(libc) :]
        try:
            version = tuple(int(part) for part in digits.split(".")) if digits else ()
        except ValueError:
            raise ValueError(f"{text!r} has no readable version in {tail!r}") from None
        return cls(parts[0], _arch(parts[1]), libc, version)

    @classmethod
    def current(cls) -> HostTag:
        """Return the tag of this machine."""
        arch = _arch(platform.machine())
        if sys.platform == "darwin":
            release = platform.mac_ver()[0] or "0"
            return cls("macos", arch, "", tuple(int(part) for part in release.split(".")[:2]))
        if sys.platform == "win32":
            return cls("windows", arch)
        try:
            name, _, release = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        except (ValueError, OSError):  # musl does not know CS_GNU_LIBC_VERSION.
            name = ""
        if name != "glibc":
            return cls("linux", arch, "musl")
        return cls("linux", arch, "glibc", tuple(int(part) for part in release.split(".")[:2]))

    def runs(self, needed: HostTag) -> str:
        """Say why a library built for `needed` cannot run here, or give an empty string."""
        if self.os != needed.os:
            return f"it is built for {needed.os}, this machine runs {self.os}"
        if self.arch != needed.arch:
            return f"it is built for {needed.arch}, this machine is {self.arch}"
        if needed.libc and self.libc != needed.libc:
            return f"it is built for {needed.libc}, this machine has {self.libc or 'another libc'}"
        if self.version < needed.version:
            have, need = (".".join(map(str, v)) for v in (self.version, needed.version))
            return f"it needs {needed.libc or needed.os} {need} or newer, this machine has {have}"
        return ""


def _arch(machine: str) -> str:
    lower = machine.lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(lower, lower)
