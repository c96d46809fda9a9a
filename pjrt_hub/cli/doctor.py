"""`pjrt-hub doctor`: what would happen, step by step, and why."""

from __future__ import annotations

import click

import pjrt_hub
from pjrt_hub.cli import output
from pjrt_hub.cli.status import FAILED


@click.command("doctor")
@click.argument("platform", required=False)
@click.option(
    "--for",
    "purpose",
    type=click.Choice(["run", "compile"]),
    default="run",
    help="What it is to be used for: to run programs here, or only to compile ahead of time.",
)
@output.json_option
def command(platform: str | None, purpose: str, as_json: bool) -> int:
    """Say what would happen for PLATFORM, or for no name at all, and what is missing.

    Exits with 1 where a step fails.
    """
    diagnosis = pjrt_hub.diagnose(platform, to_run=purpose == "run")
    if as_json:
        output.show_json(
            [
                {"what": step.what, "ok": step.ok, "detail": step.detail, "hint": step.hint}
                for step in diagnosis.steps
            ]
        )
    else:
        for step in diagnosis.steps:
            text = f"{'ok' if step.ok else 'no'}  {step.what}: {step.detail}"
            if step.hint:
                text += f"\nhint: {step.hint}"
            print(text.replace("\n", "\n    "))
    return 0 if all(step.ok for step in diagnosis.steps) else FAILED
