"""`pjrt-hub fetch`: a plugin onto this machine."""

from __future__ import annotations

import click

import pjrt_hub
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command


@click.command(
    "fetch",
    cls=Command,
    examples=(
        "pjrt-hub fetch cpu",
        "pjrt-hub fetch cuda13 --offline",
    ),
)
@click.argument("platform")
@click.option("--offline", is_flag=True, help="Use the cache only; never the network.")
@output.json_option
def command(platform: str, offline: bool, as_json: bool) -> None:
    """Print a plugin's path; fetch it first if it is missing."""
    path = pjrt_hub.fetch(platform, offline=offline)
    if as_json:
        output.show_json({"platform": platform, "path": str(path)})
    else:
        print(path)
