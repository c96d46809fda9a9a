"""What a file holds (layer 0): its sha256, and a name that changes with it.

Owns the only hash that a pin is compared with. Must not remember anything.
"""

from __future__ import annotations

import os


def of_file(path: str | os.PathLike[str]) -> str:
    """Hashes a file without holding more than a small buffer of it.

    Returns:
        64 lowercase hexadecimal digits.

    Raises:
        OSError: the file cannot be read.
    """
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identity(path: str | os.PathLike[str]) -> str:
    """Gives a name that changes with the content of a file, which is not read.

    It is made of device, inode, size and times, so it changes with whatever goes through the file
    system, and not where the medium itself decays.

    Raises:
        OSError: there is no such file.
    """
    status = os.stat(path)
    parts = (status.st_dev, status.st_ino, status.st_size)
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return f"file-{'-'.join(f'{each:x}' for each in (*parts, *times))}"


def identity_if_any(path: str | os.PathLike[str]) -> str:
    """As `identity`, but empty where there is no such file."""
    try:
        return identity(path)
    except OSError:
        return ""
