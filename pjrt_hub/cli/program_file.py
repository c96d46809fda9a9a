"""The file of `run`, `inspect` and `compile`: an exported function, or a program by itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

import pjrt_hub
from pjrt_hub.errors import FileFormatError

if TYPE_CHECKING:
    from pjrt_hub import Program
    from pjrt_hub.frameworks.exported.function import ExportedFunction


#: Files of other kinds begin with these bytes; each row says what they are and what takes them.
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


#: "-" stands for standard input.
PROGRAM = click.Path(exists=True, allow_dash=True, path_type=Path)


def read(path: Path, name: str | None = None) -> ExportedFunction | Program:
    """Read an exported function, else a program by itself; read only once, because of pipes."""
    from pjrt_hub.frameworks.exported import jax_blob, stablehlo_folder, torch_file

    if path.is_dir():
        return stablehlo_folder.read(path, name)
    is_input = path == Path("-")
    try:
        code = sys.stdin.buffer.read() if is_input else path.read_bytes()
    except OSError:
        # This raises the error that says why the file cannot be read.
        return pjrt_hub.Program.of(path)
    origin = "standard input" if is_input else str(path)
    for magic, kind, taker in _OTHERS:
        if code.startswith(magic):
            hint = taker.format(path=path)
            raise FileFormatError(f"{origin} is {kind}, not a program", path=path, hint=hint)
    if torch_file.is_file(code) and not is_input:
        return torch_file.read(path)
    try:
        return jax_blob.read(code, origin)
    except FileFormatError:
        if "export" in path.suffix or "jaxexp" in path.suffix:
            raise
        try:
            return pjrt_hub.Program.of(code, origin)
        except FileFormatError:
            if not pjrt_hub.Program.is_inside(code):
                raise
        raise  # The file is an exported function, but damaged.
