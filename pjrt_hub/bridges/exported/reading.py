"""From a path or bytes to an exported function (layer 3), whoever exported it.

Must not touch a plugin.
"""

from __future__ import annotations

import os
from pathlib import Path

from pjrt_hub.bridges.exported import jax_blob
from pjrt_hub.bridges.exported.function import ExportedFunction
from pjrt_hub.errors import FileFormatError


def read(source: str | os.PathLike[str] | bytes) -> ExportedFunction:
    """Reads what an exporter wrote.

    Args:
        source: a file or bytes of `jax.export`.

    Raises:
        FileFormatError: it is missing, damaged, or of no such form.
        NotRunnableError: its exporter was of a kind that pjrt-hub does not know.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return jax_blob.read(bytes(source), "the exported function")
    path = Path(source)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        why = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise FileFormatError(
            f"the exported function {str(path)!r} cannot be read: {why}",
            path=path,
            hint="give a file that jax.export serialized",
        ) from exc
    return jax_blob.read(data, str(path))
