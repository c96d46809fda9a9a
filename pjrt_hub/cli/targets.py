"""`pjrt-hub targets`: the machines to compile for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import pjrt_hub
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command
from pjrt_hub.errors import PluginNotFoundError

if TYPE_CHECKING:
    from pjrt_hub import Target


@click.command("targets", cls=Command, examples=("pjrt-hub targets", "pjrt-hub targets tpu --json"))
@click.argument("platform", required=False)
def command(platform: str | None, as_json: bool) -> None:
    """List the machines that programs can be compiled for.

    With PLATFORM, only those of that platform or plugin.
    """
    known = pjrt_hub.targets(platform)
    if platform and not known and any(each.is_unknown for each in pjrt_hub.plugins(platform)):
        hint = "`pjrt-hub targets` lists the machines of every platform"
        raise PluginNotFoundError(f"nothing is named {platform!r}", hint=hint)
    if as_json:
        output.show_json([as_dict(each) for each in known])
    else:
        output.show_table(("target", "description"), [[*row.values()] for row in known.rows()])


def as_dict(target: Target) -> dict[str, str]:
    """Return the documented JSON of one machine."""
    return {
        "target": str(target),
        "plugin": target.plugin,
        "name": target.name,
        "description": target.description,
    }
