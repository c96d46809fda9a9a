"""Names of plugins, platforms and distributions (layer 1; pure).

Owns what a name may look like and the did-you-mean text; must not look anything up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"[a-z0-9_]{1,32}")
_SEPARATORS = re.compile(r"[-_.]+")


def is_name(text: str) -> bool:
    """Says whether `text` may name a plugin or a platform: ASCII `[a-z0-9_]`, 1 to 32 of them.

    Nothing else is ever a name, so a Cyrillic look-alike of "cuda" cannot be one.
    """
    return _NAME.fullmatch(text) is not None


def canonical(distribution: str) -> str:
    """Gives a distribution's name as packaging compares it: "Jax_CUDA.pjrt" is "jax-cuda-pjrt"."""
    return _SEPARATORS.sub("-", distribution).lower()


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Gives "did you mean 'cuda'?", or an empty string where nothing is close.

    It is a text only: nothing is ever chosen by likeness.
    """
    from difflib import get_close_matches

    close = get_close_matches(text.lower()[:80], sorted(set(known)), n=2, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""
