"""Long boolean constants of MLIR text: a bit for each element, or since 2026 a byte.

No MLIR reads the other's. Owns rewriting one form as the other; must not look at constants of other
types, nor know which form a plugin reads.
"""

from __future__ import annotations

import math
import re

_CONSTANT = re.compile(
    rb'dense<"0x(?P<digits>(?:[0-9A-Fa-f]{2})*+)">'
    rb"(?P<type>\s*:\s*(?:tensor|vector)<(?P<sizes>(?:\s*\d{1,19}\s*x){0,99})\s*i1\s*[,>])"
)


def rewrite(text: bytes) -> bytes | None:
    """Write constants that have bytes with bits or, where none has, those of bits with bytes.

    Gives None where there is no such constant.
    """
    found = [_size(constant) for constant in _CONSTANT.finditer(text)]
    has_bytes = any(nbytes == count > 1 for nbytes, count in found)
    if not has_bytes and not any(nbytes == -(-count // 8) > 1 for nbytes, count in found):
        return None
    import numpy as np

    def other(constant: re.Match[bytes]) -> bytes:
        nbytes, count = _size(constant)
        # Any other size is one value for all elements, or malformed.
        if nbytes != (count if has_bytes else -(-count // 8)):
            return constant[0]
        data = np.frombuffer(bytes.fromhex(constant["digits"].decode()), np.uint8)
        if has_bytes:
            data = np.packbits(data, bitorder="little")
        else:
            data = np.unpackbits(data, count=count, bitorder="little")
        return b'dense<"0x%s">%s' % (data.tobytes().hex().encode(), constant["type"])

    return _CONSTANT.sub(other, text)


def _size(constant: re.Match[bytes]) -> tuple[int, int]:
    """Return the bytes of a constant's digits, and how many elements it has."""
    sizes = map(int, re.findall(rb"\d+", constant["sizes"]))
    return len(constant["digits"]) // 2, math.prod(sizes)
