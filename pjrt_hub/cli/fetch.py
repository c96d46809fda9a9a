"""`pjrt-hub fetch`: a plugin onto this machine."""

from __future__ import annotations

import click

import pjrt_hub
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command, offline_option


@click.command(
    "fetch", cls=Command, examples=("pjrt-hub fetch cuda13", "pjrt-hub fetch cuda13 --plugin-only")
)
@click.argument("platform")
@offline_option
@click.option("--plugin-only", is_flag=True, help="Leave out the libraries that it requires.")
def command(platform: str, offline: bool, plugin_only: bool, as_json: bool) -> None:
    """Print a plugin's path; fetch it first if it is missing.

    With it come the libraries and programs that it requires at run time, such as CUDA's, unless
    they are installed.
    """
    path = pjrt_hub.fetch(platform, offline=offline, plugin_only=plugin_only)
    output.show_path(path, {"platform": platform, "path": str(path)}, as_json)
