"""The file of `run`, `inspect` and `compile`: an exported function, or a program by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pjrt_hub
from pjrt_hub.errors import FileFormatError

if TYPE_CHECKING:
    from pjrt_hub import Program
    from pjrt_hub.frameworks.exported.function import ExportedFunction


#: What other files begin with, what they are, and what takes them.
_OTHERS = (
    (b"\x7fELF", "a library", "`pjrt-hub doctor` and `pjrt-hub check` take plugins"),
    (b"\x93NUMPY", "an array", "pass it as an argument: --arg {path}"),
    (b"\x93pjrt-hub", "a compiled program", "Client.load takes its bytes, in Python"),
    (
        b"PK\x03\x04",
        "an archive",
        "arrays are arguments: --arg FILE.npz; `pjrt-hub lint` takes wheels",
    ),
)


def read(path: Path, name: str | None = None) -> ExportedFunction | Program:
    """Reads an exported function, else a program by itself.

    Raises:
        FileFormatError: it is neither.
    """
    from pjrt_hub.frameworks.exported import reading

    if path.is_file():
        refuse_others(path)
    try:
        return reading.read(path, name)
    except FileFormatError:
        if path.is_dir() or "export" in path.suffix or "jaxexp" in path.suffix:
            raise
        try:
            return pjrt_hub.Program.of(path)
        except FileFormatError:
            if not pjrt_hub.Program.is_inside(path.read_bytes()):
                raise
        raise  # it is one, and damaged


def refuse_others(path: Path) -> None:
    """Refuses a file that another command takes.

    Raises:
        FileFormatError: it is one.
    """
    with path.open("rb") as file:
        head = file.read(16)
    for magic, kind, taker in _OTHERS:
        if head.startswith(magic):
            raise FileFormatError(
                f"{path} is {kind}, not a program", path=path, hint=taker.format(path=path)
            )
