"""How much a plugin can answer: more is an error before anything is read or allocated.

Owns how many bytes and elements there can be; `native/function.c` holds to the same bounds.
"""

from __future__ import annotations

from typing import Any

from pjrt_hub.running.capi import hotpath
from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.status import refuse_answer

#: Of a text, in bytes: a serialized program is no larger, because protobuf's messages end at 2 GiB.
MOST_BYTES = hotpath.MOST_BYTES
#: Of a list: more than any machine has devices.
MOST_ELEMENTS = hotpath.MOST_ELEMENTS
#: Of an array: what the compiled call path takes.
MOST_DIMENSIONS = 64


def count(function: str, name: str, given: int, most: int = MOST_ELEMENTS, least: int = 0) -> int:
    """Gives a plugin's count back where it can be.

    Args:
        function: the C function that gave it.
        name: of the field.
        given: what stands there.
        most: the largest that can be.
        least: the smallest.

    Raises:
        PluginError: it cannot be.
    """
    if not least <= given <= most:
        refuse_answer(function, f"{given} as {name}")
    return given


def text(function: str, name: str, pointer: Any, nbytes: int) -> bytes:
    """Copies a plugin's bytes.

    Raises:
        PluginError: there are more than can be, or none where it says that there are some.
    """
    if count(function, f"the size of {name}", nbytes, MOST_BYTES) == 0:
        return b""
    if pointer == ffi.NULL:
        refuse_answer(function, f"NULL as {name}")
    return bytes(ffi.buffer(pointer, nbytes))
