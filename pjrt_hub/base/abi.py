"""Versions of the PJRT C API and whether two of them are compatible (pure).

Owns `ApiVersion`, `Verdict` and `compatible`; must not read files, the environment or a plugin.
"""

from __future__ import annotations

from typing import NamedTuple


class ApiVersion(NamedTuple):
    """A PJRT C API version: what `PJRT_Api_Version` holds."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: str) -> ApiVersion:
        """Read a version such as "0.81".

        Args:
            text: major and minor, as `str` writes them.

        Raises:
            ValueError: the text is not two integers of at most nine digits, joined by a dot.
        """
        major, _, minor = text.partition(".")
        if not all(it.isdecimal() and it.isascii() and len(it) < 10 for it in (major, minor)):
            raise ValueError(f"{text!r} is not a PJRT API version such as '0.81'")
        return cls(int(major), int(minor))


ApiVersion.__module__ = "pjrt_hub"  # The body of a NamedTuple cannot set this.


class Verdict(NamedTuple):
    """An answer with its reason; a positive one may carry a note.

    Attributes:
        ok: the answer; None if it is unknown.
        reason: the reason for the answer, or the note.
    """

    ok: bool | None
    reason: str = ""

    def __bool__(self) -> bool:
        return bool(self.ok)


Verdict.__module__ = "pjrt_hub"


#: The API version that this package's declarations describe.
DECLARED = ApiVersion(0, 117)

#: The oldest version whose function table has today's order and an exact struct_size.
#: 0.55 and 0.56 had another order; 0.54 and older misreport the size of the table.
OLDEST = ApiVersion(0, 57)


def compatible(ours: ApiVersion, theirs: ApiVersion) -> Verdict:
    """Say whether a plugin of version `theirs` can be used with declarations of version `ours`.

    The table only grows at its end and argument structs carry their size, so within major 0 an
    older plugin is sent full-size, zero-filled structs, and the new functions of a newer one are
    left alone.
    """
    if theirs.major != ours.major:
        return Verdict(
            False, f"needs PJRT API major {ours.major}, the plugin has {theirs}: another ABI"
        )
    if theirs < OLDEST:
        why = (
            "its function table has another order"
            if theirs.minor in (55, 56)
            else "it misreports the size of its function table"
        )
        return Verdict(False, f"needs PJRT API {OLDEST} or newer, the plugin has {theirs}: {why}")
    if theirs > ours:
        return Verdict(
            True, f"the plugin has PJRT API {theirs}, newer than {ours}: its additions are unused"
        )
    return Verdict(True)
