"""`pjrt-hub doctor`: what would happen, step by step, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import pjrt_hub
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command
from pjrt_hub.cli.status import FAILED


@click.command(
    "doctor",
    cls=Command,
    examples=("pjrt-hub doctor tpu --for compile", "pjrt-hub doctor cuda --after torch"),
)
@click.argument("platform", required=False)
@click.option(
    "--for",
    "purpose",
    type=click.Choice(["run", "compile"]),
    default="run",
    help="What it is to be used for: to run programs here, or only to compile ahead of time.",
)
@click.option(
    "--after",
    multiple=True,
    metavar="MODULE",
    help="What would be imported before, such as torch: its libraries serve the plugin as well.",
)
@click.option(
    "--jax", "of_jax", is_flag=True, help="Say what the JAX that is installed here would do."
)
def command(
    platform: str | None, purpose: str, after: tuple[str, ...], of_jax: bool, as_json: bool
) -> int:
    """Say what would happen for a platform, and what is missing.

    Without PLATFORM, it says what would happen if none was named. Exits with 1 if a step fails.
    """
    if of_jax and platform:
        raise click.UsageError("--jax takes no PLATFORM: it tells of all that JAX would register")
    if of_jax:
        from pjrt_hub.frameworks import jax

        diagnosis = jax.diagnose(after)
    else:
        diagnosis = pjrt_hub.diagnose(platform, to_run=purpose == "run", after=after)
    if as_json:
        output.show_json([asdict(step) for step in diagnosis.steps])
    else:
        output.show_lines([as_line(step) for step in diagnosis.steps])
        if hints := [f"{step.what}: {step.hint}" for step in diagnosis.steps if step.hint]:
            print()
            output.show_lines([("hint", "bold", hint) for hint in hints])
    return 0 if diagnosis.ok else FAILED


def as_line(step: Any) -> tuple[str, str, str]:
    """Return a step as a word, its style, and what was found."""
    text = f"{step.what}: {step.detail}".replace("\n", "\n      ")
    if not step.ok:
        return "no", "bold red", text
    return ("warn", "yellow", text) if step.hint else ("ok", "green", text)
