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

#: "-" stands for standard input.
PROGRAM = click.Path(exists=True, allow_dash=True, path_type=Path)


def read(path: Path, name: str | None = None, *, whole: bool = False) -> ExportedFunction | Program:
    """Read an exported function, else a program by itself; read only once, because of pipes.

    If the program must be `whole`, its large constants stay in it.
    """
    from pjrt_hub.frameworks.exported import jax_blob, reading, stablehlo_folder, torch_file
    from pjrt_hub.frameworks.exported.contents import Contents

    if path.is_dir():
        return stablehlo_folder.read(path, name)
    is_input = path == Path("-")
    try:
        if is_input:
            contents = Contents(sys.stdin.buffer.read())
        else:
            with path.open("rb") as file:
                contents = Contents(file)
    except OSError:
        # This raises the error that says why the file cannot be read.
        return pjrt_hub.Program.of(path)
    code = contents.data()
    origin = "standard input" if is_input else str(path)
    reading.refuse_others(code, path, origin)
    if torch_file.is_file(code[: torch_file.HEAD_NBYTES]) and not is_input:
        return torch_file.read(path)
    try:
        return jax_blob.read(contents, origin, hoists=not whole)
    except FileFormatError:
        if "export" in path.suffix or "jaxexp" in path.suffix:
            raise
        try:
            return pjrt_hub.Program.of(bytes(code), origin)
        except FileFormatError:
            if not pjrt_hub.Program.is_inside(bytes(code)):
                raise
        raise  # The file is an exported function, but damaged.
