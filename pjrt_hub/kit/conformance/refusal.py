"""What a plugin has to refuse, and the given error that it has to hand on.

Any error is right; an unusual code is noted. Checks decide what is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pjrt_hub.errors import DataLossError, InvalidArgumentError, PjrtError
from pjrt_hub.kit.conformance.finding import code_name, expect, expect_error

if TYPE_CHECKING:
    from pjrt_hub.kit.conformance.subject import Subject

_TEXT = "lost on the way"
#: A plugin is given this error and must give it back; most argument structs have these fields.
GIVEN_ERROR: dict[str, Any] = {"error_code": DataLossError.code, "error_message": _TEXT}
_TEXT_AND_MORE = np.frombuffer(f"{_TEXT}, and more\0".encode(), np.uint8)
#: This is the same error, but its text goes on beyond the size that is given.
GIVEN_ERROR_AND_MORE: dict[str, Any] = {
    "error_code": DataLossError.code,
    "error_message": _TEXT_AND_MORE.ctypes.data,
    "error_message_size": len(_TEXT),
}


def expect_refusal(
    subject: Subject,
    call: Callable[[], object],
    what: str,
    code: int = InvalidArgumentError.code,
) -> None:
    """Fail the check unless the plugin refuses a call and goes on working.

    The error may also come from an event that the call awaits. The header demands no `code`: a
    different one is noted.
    """
    note_code(subject, expect_error(call, what=what), what, code)
    subject.usable()


def note_code(subject: Subject, error: PjrtError, what: str, *usual: int) -> None:
    """Note an error whose code is none of the usual ones."""
    if error.code not in usual:
        subject.note(f"{what}: {code_name(error.code)}, where {code_name(*usual)} is usual")


def expect_given_error(
    subject: Subject, call: Callable[[], object], what: str, *codes: int
) -> None:
    """Fail the check unless a call fails with the text of `GIVEN_ERROR`, no more.

    Another code is noted; if `codes` are given, any other code fails the check.
    """
    error = expect_error(call, *codes, what=what)
    expect(
        _TEXT in error.message and ", and more" not in error.message,
        f"{what}, the text of the error: found {error.message!r}",
    )
    if error.code != DataLossError.code:
        given = code_name(DataLossError.code)
        subject.note(f"{what}: {code_name(error.code)}, where {given} was given")
