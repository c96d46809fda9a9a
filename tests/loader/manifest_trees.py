"""The form of a case: a folder of manifests, and what every reader must say of it.

The readers follow docs/spec/manifest.md. cases.py has the cases.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

FOREIGN = 12345  # The number of a user whom nobody is.


class File(NamedTuple):
    """A file of a case; text, bytes, a link to `link`, a folder or a FIFO."""

    content: str | bytes = b""
    mode: int = 0o644
    link: str = ""
    kind: str = "file"  # "file", "folder", "fifo", or "closed", a folder that may not be entered.
    owner: int = -1
    group: int = -1


Files = dict[str, File | str | bytes]


class Case(NamedTuple):
    """A tree of files below one folder, variables, and the lines that a reader must print.

    It prints these lines, in the order of the folders and of the names in each:

        usable NAME PLATFORM PRIORITY HARDWARE LIBRARY   HARDWARE is `present` or `absent`; then
        preload PATH                                     each file to load before it, in order, and
        set NAME=VALUE                                   each variable of this hardware, by name
        hidden NAME PATH                                 an earlier manifest has that name
        disabled NAME REASON                             a variable says so; it is not read
        absent NAME REASON                               no library fits, or none is there
        refused PATH REASON                              a manifest or a folder

    In texts, links, variables and lines `{root}` stands for the folder of the case, and `{arch}`
    for the processor of this machine; in lines `{host}` for the machine, such as
    `linux-x86_64-glibc2.36`. The reader gets these variables and no others. Where `system` is true,
    `{root}/system` stands for `/` as the place of /etc, /sys, /dev and /proc. `only` says that a
    case needs the rights of `root`, or those of a `user`.
    """

    name: str
    files: Mapping[str, File | str | bytes]
    lines: tuple[str, ...]
    env: Mapping[str, str] = {"PJRT_PLUGIN_MANIFESTS": "{root}/m"}
    system: bool = False
    only: str = ""

    def write(self, root: Path, arch: str = "x86_64") -> dict[str, str]:
        """Write the files below `root`, for a machine of this kind; return the variables."""
        owned = []
        for name, given in self.files.items():
            file = given if isinstance(given, File) else File(given)
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if file.link:
                path.symlink_to(_fill(file.link, root))
                continue
            if file.kind == "fifo":
                os.mkfifo(path)
            elif file.kind in ("folder", "closed"):
                path.mkdir(exist_ok=True)
            elif isinstance(file.content, bytes):
                path.write_bytes(file.content.replace(b"{root}", os.fsencode(root)))
            else:
                path.write_bytes(_fill(file.content, root, arch).encode())
            owned.append((path, file))
        for path in (root, *root.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        for path, file in owned:
            path.chmod(file.mode | 0o111 * (file.kind == "folder"))
            if file.owner >= 0 or file.group >= 0:
                os.chown(path, file.owner, file.group)
        return {name: _fill(value, root) for name, value in self.env.items()}

    def expected(self, root: Path, host: str) -> list[str]:
        """Return the lines for a tree at `root`, on the machine `host`."""
        arch = host.split("-")[1]
        return [_fill(line, root, arch).replace("{host}", host) for line in self.lines]


def _fill(text: str, root: Path, arch: str = "") -> str:
    other = "x86_64" if arch == "aarch64" else "aarch64"
    filled = text.replace("{root}", str(root))
    return filled.replace("{arch}", arch).replace("{other}", other)


HEAD = 'schema = 1\nname = "toy"\nplatform = "toy"\n'
LIBRARY = '[[library]]\npath = "{root}/lib/toy.so"\n'
TOY = HEAD + LIBRARY
USABLE = "usable toy toy 400 present {root}/lib/toy.so"


def toy(name: str, platform: str = "toy") -> str:
    """Return the text of a manifest of another name."""
    return TOY.replace('name = "toy"', f'name = "{name}"').replace(
        'platform = "toy"', f'platform = "{platform}"'
    )


def usable(name: str, platform: str = "toy", priority: int = 400) -> str:
    return f"usable {name} {platform} {priority} present {{root}}/lib/toy.so"


def one(name: str, text: str | bytes, *lines: str, **more: object) -> Case:
    """Return the case of one manifest, `m/toy.toml`, beside one library, `lib/toy.so`."""
    return Case(name, {"m/toy.toml": text, "lib/toy.so": b""}, lines, **more)  # type: ignore[arg-type]


def refused(name: str, text: str | bytes, reason: str) -> Case:
    return one(name, text, f"refused {{root}}/m/toy.toml {reason}")
