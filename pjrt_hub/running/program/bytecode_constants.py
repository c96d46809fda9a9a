"""Constants of a portable program made parameters of its main function, and the reverse.

Without its large constants a program is as small as its operations, compiles as quickly, and takes
the bytes from where they lie. Owns what is large; must not know who gives the parameters.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pjrt_hub.running.program.bytecode_rewriting import Constant

#: A program keeps its constants if the large ones have fewer bytes together, and the small ones.
#: Compilers compute with small constants beforehand, and copy large ones several times.
MIN_NBYTES, MIN_CONSTANT_NBYTES = 64 << 20, 1 << 20


def hoist(code: bytes | memoryview) -> tuple[bytes, tuple[Constant, ...]] | None:
    """Return a program whose large constants are its last parameters, and those constants.

    None if they have fewer than `MIN_NBYTES` together, or if the program has a form in which they
    cannot be taken out. A constant of fewer than `MIN_CONSTANT_NBYTES` stays.
    """
    if len(code) < MIN_NBYTES:
        return None
    from pjrt_hub.running.program.bytecode_rewriting import Rewriting

    try:
        rewriting = Rewriting(code, MIN_CONSTANT_NBYTES)
        if sum(each.nbytes for each in rewriting.constants) < max(MIN_NBYTES, 1):
            return None
        return rewriting.program(), rewriting.constants
    except (ValueError, LookupError, RecursionError):
        return None


def fix_first(code: bytes, value: int) -> bytes | None:
    """Return a program without its first parameter, an i32, for which this value stands.

    None if the program has a form in which it cannot be changed.
    """
    from pjrt_hub.running.program.bytecode_rewriting import Rewriting

    try:
        return Rewriting(code, sys.maxsize).with_first(value)
    except (ValueError, LookupError, RecursionError):
        return None
