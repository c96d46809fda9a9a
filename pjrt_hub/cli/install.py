"""`pjrt-hub install`: a plugin where every host that reads manifests finds it."""

from __future__ import annotations

import click

import pjrt_hub
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command, level_option, offline_option


@click.command(
    "install",
    cls=Command,
    examples=("pjrt-hub install cuda13", "sudo pjrt-hub install cpu --level system"),
)
@click.argument("name")
@level_option
@offline_option
def command(name: str, level: str | None, offline: bool, as_json: bool) -> None:
    """Put a plugin where programs in any language find it.

    It is fetched if it is missing, with what it requires; the path of its manifest is printed.
    Without --level it goes into the environment that is active, else into the user's own folders.
    """
    path = pjrt_hub.install(name, level=level, offline=offline)
    output.show_path(path, {"name": path.stem, "manifest": str(path)}, as_json)
