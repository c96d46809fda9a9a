"""What every command has: examples in its help, `--json`, `--verbose`, guesses, usage errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from pjrt_hub.errors import PjrtHubError

#: This page explains the options and the exit codes.
_PAGE = "docs/cli.md"

#: Options that mean the same in all commands that have them.
offline_option = click.option(
    "--offline", is_flag=True, help="Use the cache only; never the network."
)
level_option = click.option(
    "--level",
    type=click.Choice(["env", "user", "system"]),
    help="For an environment, a user, or the whole machine.",
)


def verbose_option() -> click.Option:
    """Return the option `-v`, which may stand before a command's name or after it."""
    return click.Option(
        ["-v", "--verbose"],
        is_flag=True,
        expose_value=False,
        callback=_log_all,
        help="Log each step with its reason.",
    )


def _log_all(_ctx: click.Context, _param: click.Parameter, verbose: bool) -> None:
    if verbose:
        os.environ["PJRT_HUB_DEBUG"] = "all"


class Command(click.Command):
    """A command whose help ends with examples, which are command lines.

    Its `--json` is the argument `as_json`; only a command with `is_text` has none.
    """

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), is_text: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        if not is_text:
            json = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON.")
            self.params.append(json)
        self.params.append(verbose_option())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they stand, however narrow the terminal is."""
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"  {line}\n")
        formatter.write(f"\n{_PAGE} has more.\n")


class Group(click.Group):
    """A command that consists of other commands."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named; for a misspelt one, say which could be meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as exc:
            from difflib import get_close_matches

            meant = get_close_matches(args[0], self.list_commands(ctx), n=1)
            question = f" Did you mean {meant[0]!r}?" if meant else ""
            raise click.UsageError(exc.message + question, exc.ctx) from None


@contextmanager
def usage_errors(option: str | None = None) -> Iterator[None]:
    """Turn the errors that the library raises before it asks a plugin into usage errors."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as exc:
        if isinstance(exc, PjrtHubError):
            raise
        text = f"{exc}" if f"{exc}".endswith("?") else f"{exc}."
        if option is None:
            raise click.UsageError(text) from exc
        raise click.BadParameter(text, param_hint=option) from exc


def named_values(
    name: str, dest: str, what: str, *, as_text: bool = False, metavar: str = "NAME=VALUE"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make an option that takes NAME=VALUE and may be repeated, the argument `dest`.

    Values are as in TOML: 4, [2, 2, 1], true, 0.5 or "text"; anything else is text, and so are all
    values with `as_text`, where a name may be given once.
    """
    from pjrt_hub.kit.conformance import named_values as reading

    reads: Callable[[tuple[str, ...]], dict[str, Any]]
    reads = reading.read_text if as_text else reading.read

    def read(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
        try:
            return reads(texts)
        except ValueError as exc:
            raise click.BadParameter(str(exc), ctx, param) from exc

    return click.option(name, dest, multiple=True, callback=read, metavar=metavar, help=what)
