"""NAME=VALUE on the command line; a malformed one is a usage error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pjrt_hub.kit.conformance import named_values


def read(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Read values as in TOML: 4, [2, 2, 1], true, 0.5 or "text"; anything else is text."""
    return _usable(named_values.read, ctx, param, texts)


def read_text(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Read NAME=VALUE pairs, with values as text; a name may be given once."""
    return _usable(named_values.read_text, ctx, param, texts)


def _usable(
    reads: Callable[[tuple[str, ...]], dict[str, Any]],
    ctx: click.Context,
    param: click.Parameter,
    texts: tuple[str, ...],
) -> dict[str, Any]:
    try:
        return reads(texts)
    except ValueError as exc:
        raise click.BadParameter(str(exc), ctx, param) from exc
