"""A file's whole content, its sha256, and a name that changes with its content.

Owns the only hash that a pin is compared with, and the limit for reading files that others may
have written. Must not remember anything.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import BinaryIO

#: The most bytes that are read from one text file, such as registry rows or settings.
MOST_NBYTES = 64 << 20


def content(path: str | os.PathLike[str], most_nbytes: int = MOST_NBYTES) -> bytes:
    """Read a whole file; raise OSError (EFBIG) if it is larger than `most_nbytes`."""
    with open(path, "rb") as file:
        return content_of(file, most_nbytes)


def content_of(file: BinaryIO, most_nbytes: int) -> bytes:
    """Read a whole open file, as `content` does."""
    # read() allocates as many bytes as it is asked for. Pipes and files in /proc have a size of 0.
    size = os.fstat(file.fileno()).st_size or most_nbytes
    found = file.read(min(size, most_nbytes) + 1)
    if len(found) > most_nbytes:
        raise OSError(errno.EFBIG, f"larger than {most_nbytes:,} bytes", file.name)
    return found


def of_file(path: str | os.PathLike[str]) -> str:
    """Hash a file in small parts; return 64 lowercase hexadecimal digits."""
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identity(path: str | os.PathLike[str] | int) -> str:
    """Return a name that changes with the content of a file, without reading the file.

    The name is made of device, inode, size and times, so it changes with every write through the
    file system, but not if the storage medium itself decays.
    """
    status = os.stat(path)
    parts = (status.st_dev, status.st_ino, status.st_size)
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return f"file-{'-'.join(f'{each:x}' for each in (*parts, *times))}"


def identity_if_any(path: str | os.PathLike[str]) -> str:
    """Return the name like `identity`, or an empty string if there is no such file."""
    try:
        return identity(path)
    except OSError:
        return ""
