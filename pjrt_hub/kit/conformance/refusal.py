"""What a plugin has to refuse, and the error that it has to hand on.

Any error is right; another code than the usual one is worth a note. Must not decide what is
refused: checks do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pjrt_hub.errors import DataLossError, InvalidArgumentError, PjrtError
from pjrt_hub.kit.conformance.finding import code_name, expect, refused

if TYPE_CHECKING:
    from pjrt_hub.kit.conformance.subject import Subject

#: An error to give to a plugin, which it shall give back: the fields of most argument structs.
LOST: dict[str, Any] = {"error_code": DataLossError.code, "error_message": "lost on the way"}
_TEXT_AND_MORE = np.frombuffer(LOST["error_message"].encode() + b", and more\0", np.uint8)
#: The same error, whose text goes on behind its size.
LOST_AND_MORE: dict[str, Any] = {
    "error_code": LOST["error_code"],
    "error_message": _TEXT_AND_MORE.ctypes.data,
    "error_message_size": len(LOST["error_message"]),  # after the address, which counts nothing
}


def refuses(
    subject: Subject,
    call: Callable[[], object],
    what: str,
    code: int = InvalidArgumentError.code,
) -> None:
    """Fails the check unless the plugin refuses a call and goes on working.

    Args:
        subject: the plugin.
        call: makes it; its error may also come from an event that it awaits.
        what: is wrong with the call.
        code: that the error should have; the header demands none.
    """
    note_code(subject, refused(call, what=what), what, code)
    subject.usable()


def note_code(subject: Subject, error: PjrtError, what: str, *usual: int) -> None:
    """Tells of an error whose code is none of the usual ones."""
    if error.code not in usual:
        subject.note(f"{what}: {code_name(error.code)}, where {code_name(*usual)} is usual")


def loses(subject: Subject, call: Callable[[], object], what: str, *codes: int) -> None:
    """Fails the check unless a call fails with the text of `LOST`, no more; another code is told.

    Args:
        subject: the plugin.
        call: makes it.
        what: is done, for the text.
        codes: that alone are right, where the header says so.
    """
    error = refused(call, *codes, what=what)
    expect(
        LOST["error_message"] in error.message and ", and more" not in error.message,
        f"{what}, the text of the error: found {error.message!r}",
    )
    if error.code != LOST["error_code"]:
        given = code_name(LOST["error_code"])
        subject.note(f"{what}: {code_name(error.code)}, where {given} was given")
