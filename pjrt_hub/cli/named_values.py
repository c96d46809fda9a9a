"""NAME=VALUE on the command line; a malformed one is a usage error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pjrt_hub.kit.conformance import named_values


def option(
    name: str, dest: str, what: str, *, as_text: bool = False, metavar: str = "NAME=VALUE"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make an option that takes NAME=VALUE and may be repeated, the argument `dest`.

    Values are as in TOML: 4, [2, 2, 1], true, 0.5 or "text"; anything else is text, and so are all
    values with `as_text`, where a name may be given once.
    """
    reads: Callable[[tuple[str, ...]], dict[str, Any]]
    reads = named_values.read_text if as_text else named_values.read

    def read(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
        try:
            return reads(texts)
        except ValueError as exc:
            raise click.BadParameter(str(exc), ctx, param) from exc

    return click.option(name, dest, multiple=True, callback=read, metavar=metavar, help=what)
