"""`pjrt-hub targets`: the machines to compile for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import pjrt_hub
from pjrt_hub.cli import output

if TYPE_CHECKING:
    from pjrt_hub import Target


@click.command("targets")
@click.argument("platform", required=False)
@output.json_option
def command(platform: str | None, as_json: bool) -> None:
    """List the machines that `compile --target` knows, of one PLATFORM or plugin or of all."""
    known = pjrt_hub.targets(platform)
    if as_json:
        output.show_json([as_dict(each) for each in known])
    else:
        output.show_table(("target", "description"), [(str(e), e.description) for e in known])


def as_dict(target: Target) -> dict[str, str]:
    """The documented JSON of one machine."""
    return {
        "target": str(target),
        "plugin": target.plugin,
        "name": target.name,
        "description": target.description,
    }
