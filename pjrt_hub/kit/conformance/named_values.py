"""Reading NAME=VALUE texts of a command line or of a test run; must not print."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any


def read(texts: Iterable[str]) -> dict[str, Any]:
    """Read "name=value" texts as in TOML: 4, [2, 2, 1], true, 0.5 or "text"; all else is text."""
    return {name: _value(text) for name, text in read_text(texts).items()}


def read_text(texts: Iterable[str]) -> dict[str, str]:
    """Read "name=value" texts, and leave values as text, for callers that know their types."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ValueError(f"{text!r} is not NAME=VALUE.")
        if name in values:
            raise ValueError(f"{name} is given twice.")
        values[name] = value
    return values


def _value(text: str) -> Any:
    try:
        [value] = tomllib.loads(f"value = {text}").values()
    except (tomllib.TOMLDecodeError, ValueError):
        # The text is not TOML, or its lines hold more than one value.
        return text
    return value if isinstance(value, bool | int | float | str | list) else text
