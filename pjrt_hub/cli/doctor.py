"""`pjrt-hub doctor`: what would happen, step by step, and why (layer 5)."""

from __future__ import annotations

import click

import pjrt_hub
from pjrt_hub.cli import output
from pjrt_hub.cli.status import FAILED


@click.command("doctor")
@click.argument("platform", required=False)
@output.json_option
def command(platform: str | None, as_json: bool) -> int:
    """Say what would happen for PLATFORM, or for no name at all, and what is missing.

    Exits with 1 where a step fails.
    """
    diagnosis = pjrt_hub.diagnose(platform)
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
