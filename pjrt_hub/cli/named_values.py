"""NAME=VALUE on the command line (layer 5)."""

from __future__ import annotations

import tomllib
from typing import Any

import click


def read(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Reads values as in TOML: 4, [2, 2, 1], true, 0.5 or "text"; whatever else is text."""
    return {name: _value(text) for name, text in read_text(ctx, param, texts).items()}


def read_text(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Leaves values to whoever knows their types; a name may be given once."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.", ctx, param)
        if name in values:
            raise click.BadParameter(f"{name} is given twice.", ctx, param)
        values[name] = value
    return values


def _value(text: str) -> Any:
    try:
        [value] = tomllib.loads(f"value = {text}").values()
    except (tomllib.TOMLDecodeError, ValueError):  # also several lines
        return text
    return value if isinstance(value, bool | int | float | str | list) else text
