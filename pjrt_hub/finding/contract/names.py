"""Names of plugins, platforms and distributions (pure).

Owns the form of names, similar names, and the did-you-mean text; must not
look anything up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"[a-z0-9_]{1,32}")
#: A reader may mistake the first of each pair for the second.
_ALIKE = (("rn", "m"), ("vv", "w"), ("cl", "d"), ("0", "o"), ("1", "l"), ("i", "l"), ("5", "s"))


def is_name(text: str) -> bool:
    """Check whether `text` may name a plugin or a platform: ASCII `[a-z0-9_]`, 1 to 32 of them.

    Nothing else is ever a name, so a Cyrillic look-alike of "cuda" cannot be one.
    """
    return _NAME.fullmatch(text) is not None


def canonical(distribution: str) -> str:
    """Normalize a distribution's name as packaging does: "Jax_CUDA.pjrt" is "jax-cuda-pjrt"."""
    name = distribution.lower().replace("_", "-").replace(".", "-")
    # This runs for thousands of names, and a regular expression would take three times as long.
    while "--" in name:
        name = name.replace("--", "-")
    return name


def did_you_mean(text: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return "did you mean 'cuda'?", or an empty string if no name is close.

    The text is only for messages: nothing is ever chosen by similarity. A `prefix` that all names
    share does not make them similar.
    """
    from difflib import get_close_matches

    spelled = {each.removeprefix(prefix).lower(): each for each in sorted(set(known))}
    wanted = text.removeprefix(prefix).lower()[:80]
    found = get_close_matches(wanted, spelled, n=2, cutoff=0.6)
    close = [spelled[each] for each in found]
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""


def look_alike(name: str, known: Iterable[str]) -> str:
    """Return the known name that a new one looks like, or an empty string.

    The two read the same, as "rocrn" and "rocm" do, or differ in one letter that was added, left
    out, changed, or swapped with its neighbour.
    """
    known = set(known)
    if name in known:
        return ""
    alike = (each for each in known if _read(each) == _read(name) or _is_one_edit(name, each))
    return min(alike, default="")


def _read(name: str) -> str:
    name = name.replace("_", "")
    for seen, as_if in _ALIKE:
        name = name.replace(seen, as_if)
    return name


def _is_one_edit(one: str, other: str) -> bool:
    if len(one) > len(other):
        one, other = other, one
    if len(other) - len(one) > 1:
        return False
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    if len(one) != len(other):
        return one[at:] == other[at + 1 :]
    swapped = one[at + 1 : at + 2] + one[at : at + 1] + one[at + 2 :]
    return one[at + 1 :] == other[at + 1 :] or swapped == other[at:]
