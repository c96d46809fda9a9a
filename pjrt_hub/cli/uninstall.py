"""`pjrt-hub uninstall`: what `install` put somewhere, gone."""

from __future__ import annotations

import click

import pjrt_hub
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command, level_option


@click.command(
    "uninstall",
    cls=Command,
    examples=("pjrt-hub uninstall cuda13", "pjrt-hub uninstall cpu --level user"),
)
@click.argument("name")
@level_option
def command(name: str, level: str | None, as_json: bool) -> None:
    """Remove a plugin that `install` installed.

    The path of its manifest is printed. Without --level it goes from the first level that has it.
    """
    path = pjrt_hub.uninstall(name, level=level)
    output.show_path(path, {"name": path.stem, "manifest": str(path)}, as_json)
