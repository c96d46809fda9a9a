"""`pjrt-hub get`: a plugin onto this machine."""

from __future__ import annotations

import click

import pjrt_hub
from pjrt_hub.cli import output


@click.command("get")
@click.argument("platform")
@click.option("--offline", is_flag=True, help="Use the cache only; fail where it lacks the file.")
@output.json_option
def command(platform: str, offline: bool, as_json: bool) -> None:
    """Print the path of PLATFORM's plugin; fetch it into the cache first where it is missing."""
    path = pjrt_hub.fetch(platform, offline=offline)
    if as_json:
        output.show_json({"platform": platform, "path": str(path)})
    else:
        print(path)
