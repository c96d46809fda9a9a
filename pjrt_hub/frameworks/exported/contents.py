"""What the file of an exported function holds: its bytes, or a mapping of them if they are many.

Must not know what they mean.
"""

from __future__ import annotations

import mmap
import os
import stat
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pjrt_hub.frameworks.exported.aval import Aval
    from pjrt_hub.running.buffer.buffer import Buffer
    from pjrt_hub.running.device.device import Device

#: The size in bytes from which on a file is mapped.
_LARGE_NBYTES = 16 << 20


class Contents:
    """The bytes that were given, or those of an open file.

    A large file stays open, so that its constants can be read when they are needed, even if another
    file has got its name by then. It must not be written to.
    """

    def __init__(self, source: bytes | BinaryIO) -> None:
        self._bytes = b""
        self._file: int | None = None
        if isinstance(source, bytes):
            self._bytes = source
            return
        status = os.fstat(source.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size >= _LARGE_NBYTES:
            self._file = os.dup(source.fileno())
            weakref.finalize(self, os.close, self._file)
        else:
            self._bytes = source.read()

    def data(self) -> bytes | mmap.mmap:
        """Return all of them; the caller lets go of what is mapped."""
        if self._file is None:
            return self._bytes
        return mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)

    def buffer(self, start: int, aval: Aval, device: Device) -> Buffer:
        """Move an array, whose elements begin at byte `start`, to a device.

        FileFormatError: the file has become shorter.
        """
        from pjrt_hub.running.array.shape_spec import ShapeSpec
        from pjrt_hub.running.buffer import upload

        shape = tuple(map(int, aval.dimensions))
        if self._file is not None:
            spec = ShapeSpec(shape, aval.element)
            return upload.from_file(device.client, self._file, spec, start, device)
        import numpy as np

        put: Callable[..., Buffer] = device.client.buffer_from_host
        return put(np.ndarray(shape, aval.dtype, self._bytes, start), device=device)
