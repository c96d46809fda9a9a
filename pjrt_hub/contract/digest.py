"""sha256 of files (layer 1); the only hash that a pin is compared with."""

from __future__ import annotations

from os import PathLike


def of_file(path: str | PathLike[str]) -> str:
    """Hashes a file without holding more than a small buffer of it.

    Returns:
        64 lowercase hexadecimal digits.

    Raises:
        OSError: the file cannot be read.
    """
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
