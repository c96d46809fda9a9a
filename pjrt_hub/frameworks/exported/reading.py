"""From a path or bytes to an exported function, of any exporter.

Must not touch a plugin.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub.errors import FileFormatError
from pjrt_hub.frameworks.exported import jax_blob, stablehlo_folder, torch_file
from pjrt_hub.frameworks.exported.contents import Contents
from pjrt_hub.frameworks.exported.function import ExportedFunction

if TYPE_CHECKING:
    import mmap

#: Files of other kinds begin with these bytes; each row says what they are and what takes them.
_OTHERS = (
    (b"\x7fELF", "a library", "`pjrt-hub doctor` and `pjrt-hub check` take plugins"),
    (b"\x93NUMPY", "an array", "pass it as an argument: --arg {path}"),
    (b"PJRTPROG", "what `pjrt-hub export` wrote", "loader/pjrt_program.h reads it"),
    (b"\x93pjrt-hub", "a compiled program", "Client.load takes its bytes, in Python"),
    (
        b"PK\x03\x04",
        "an archive",
        "arrays are arguments: --arg FILE.npz; `pjrt-hub lint` takes wheels",
    ),
)


def read(
    source: str | os.PathLike[str] | bytes | ExportedFunction, name: str | None = None
) -> ExportedFunction:
    """Read what an exporter wrote.

    That is a file or bytes of jax.export, a file of `pjrt_hub.torch.export`, or a folder that
    torch_xla saved.

    A function that was read already is returned. `name` is that of a folder's function; by default
    the only one, or "forward". A source that is missing, damaged, or in another format raises
    FileFormatError; a calling convention that pjrt-hub does not know, NotRunnableError.
    """
    if isinstance(source, ExportedFunction):
        return source
    if isinstance(source, bytes | bytearray | memoryview):
        return jax_blob.read(Contents(bytes(source)), "the exported function")
    path = Path(source)
    if os.fspath(source) and path.is_dir():
        return stablehlo_folder.read(path, name)
    try:
        # `Path("")` would be this folder, so the name is opened as it is.
        with open(source, "rb") as file:
            head = file.peek(torch_file.HEAD_NBYTES)
            contents = Contents(file)
    except (OSError, ValueError) as exc:  # A NUL in the path is a ValueError.
        why = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise FileFormatError(
            f"the exported function {os.fspath(source)!r} cannot be read: {why}",
            path=path,
            hint="give a file of jax.export or pjrt_hub.torch.export, or a folder of torch_xla",
        ) from None
    if torch_file.is_file(head):
        return torch_file.read(path)
    refuse_others(head, path, str(path))
    return jax_blob.read(contents, str(path))


def refuse_others(head: bytes | mmap.mmap, path: Path, origin: str) -> None:
    """Raise FileFormatError for a file that begins like one of another kind."""
    for magic, kind, taker in _OTHERS:
        if head[: len(magic)] == magic:
            hint = taker.format(path=path)
            raise FileFormatError(f"{origin} is {kind}, not a program", path=path, hint=hint)
