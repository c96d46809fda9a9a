"""`pjrt-hub get`: a plugin into the cache (layer 5)."""

from __future__ import annotations

import click

import pjrt_hub
from pjrt_hub.cli import output
from pjrt_hub.cli.progress import terminal_progress


@click.command("get")
@click.argument("platform")
@click.option("--offline", is_flag=True, help="Use the cache only; fail where it lacks the file.")
@output.json_option
def command(platform: str, offline: bool, as_json: bool) -> None:
    """Fetch the plugin of PLATFORM into the cache, verify it, and print its path."""
    path = pjrt_hub.fetch(platform, offline=offline, progress=terminal_progress(platform))
    if as_json:
        output.show_json({"platform": platform, "path": str(path)})
    else:
        print(path)
