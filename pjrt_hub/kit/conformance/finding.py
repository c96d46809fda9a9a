"""How a check says what it found: by an exception, or by returning if it passes.

Must not know which checks there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pjrt_hub.errors import PjrtError

_Answer = TypeVar("_Answer")


class Failed(AssertionError):
    """The plugin breaks a promise of the PJRT C API; `found` says what was expected and found."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found


class Unsupported(Exception):
    """The plugin does not offer what the check is about, and need not."""


class Skipped(Exception):
    """The check cannot be made here, with this plugin on this machine."""


class Hidden(Skipped):
    """The check needs a C `function` that is known not to work, and would find only that again."""

    def __init__(self, function: str) -> None:
        super().__init__(f"{function} does not work")
        self.function = function


def expect(condition: bool, text: str) -> None:
    """Fail the check with `text`, "expected X, found Y", unless the condition holds."""
    if not condition:
        raise Failed(text)


def equal(found: object, wanted: object, what: str) -> None:
    """Fail the check unless two values are equal; `what` says what they are."""
    if found != wanted:
        raise Failed(f"{what}: expected {wanted!r}, found {found!r}")


def at_least(found: int, least: int, what: str) -> None:
    """Fail the check if a number is too small; `what` says what it counts."""
    expect(found >= least, f"{what}: expected {least} or more, found {found}")


@contextmanager
def raise_as(
    kind: type[Exception],
    words: str = "",
    of: type[Exception] | tuple[type[Exception], ...] = PjrtError,
) -> Iterator[None]:
    """Raise `kind` in place of an error of the types `of`, with `words` before its message."""
    try:
        yield
    except of as exc:
        raise kind(f"{words} {getattr(exc, 'message', exc)}".lstrip()) from exc


def ask_twice(ask: Callable[[], _Answer], what: str) -> _Answer:
    """Return an answer; fail the check unless it is the same when asked again."""
    first = ask()
    equal(ask(), first, f"{what}, asked again")
    return first


def expect_reason(error: PjrtError) -> None:
    """Fail the check unless an error, which the plugin may give here, has a message."""
    expect(bool(error.message), "expected an error that says why, found no message")


def some_text(found: bytes, what: str) -> str:
    """Return bytes as text; fail the check if the text is empty."""
    words = text(found, what)
    expect(bool(words), f"{what}: expected text, found none")
    return words


def text(found: bytes, what: str) -> str:
    """Return bytes as text, which may be empty; fail unless they are UTF-8 without NUL."""
    try:
        words = found.decode()
    except UnicodeDecodeError as exc:
        raise Failed(f"{what}: expected UTF-8, found {found!r}") from exc
    expect("\0" not in words, f"{what}: expected text without NUL, found {found!r}")
    return words


def code_name(*codes: int) -> str:
    """Return the PJRT C API's names of error codes: "INVALID_ARGUMENT or NOT_FOUND"."""
    from pjrt_hub.running.capi import table

    names = {
        number: name.removeprefix("PJRT_Error_Code_")
        for name, number in table.ENUMS["PJRT_Error_Code"].items()
    }
    return " or ".join(names.get(code, f"the unknown code {code}") for code in codes)
