"""Upcalls: what a plugin gives to a function that it calls, and how an exception becomes its error.

The compiled part is `native/upcall.c`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pjrt_hub.errors import PjrtError
from pjrt_hub.running.capi import table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from traceback import FrameSummary

#: A status code and text, and an interrupt, which the main thread raises once the plugin returns.
Failure = tuple[int, bytes] | tuple[int, bytes, KeyboardInterrupt]

_CODES = table.ENUMS["PJRT_Error_Code"]


def failure(exc: BaseException, name: str, depth: int) -> Failure:
    """Return an exception as a plugin gets it: a status code of PJRT and XLA FFI, and a text.

    So many frames of the traceback as `depth` says are pjrt-hub's own.
    """
    text = f"{name}: {_words(exc, depth)}".encode("utf-8", "replace").replace(b"\0", b"")
    return (_code(exc), text, exc) if isinstance(exc, KeyboardInterrupt) else (_code(exc), text)


def _code(exc: BaseException) -> int:
    if isinstance(exc, PjrtError) and exc.code:
        return exc.code
    if isinstance(exc, NotImplementedError):
        return _CODES["PJRT_Error_Code_UNIMPLEMENTED"]
    if isinstance(exc, TypeError | ValueError):
        return _CODES["PJRT_Error_Code_INVALID_ARGUMENT"]
    ordinary = isinstance(exc, Exception)
    return _CODES["PJRT_Error_Code_INTERNAL" if ordinary else "PJRT_Error_Code_CANCELLED"]


def _words(exc: BaseException, depth: int) -> str:
    """Return the last line of the traceback, and where in the function it happened."""
    import traceback

    try:
        words = traceback.format_exception_only(exc)[-1].strip()
    except BaseException as failing:  # Its __str__ may raise anything.
        words = f"{type(exc).__name__}, whose text raised {type(failing).__name__}"
    places: Sequence[FrameSummary] = traceback.extract_tb(exc.__traceback__)
    if len(places) > depth:
        place = places[-1]
        words += f" ({os.path.basename(place.filename)}:{place.lineno})"
    return words
