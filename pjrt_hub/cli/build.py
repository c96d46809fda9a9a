"""`pjrt-hub build`: a plugin's library from a backend written in Python."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command, usage_errors


@click.command(
    "build",
    cls=Command,
    examples=(
        "pjrt-hub build my.module:Backend --output libmine.so",
        "pjrt-hub build my.module:Backend --output libmine.so --json",
    ),
)
@click.argument("backend", metavar="MODULE:CLASS")
@output.option("path", "The library to write.", required=True, metavar="LIB.so")
def command(backend: str, path: Path, as_json: bool) -> None:
    """Make a library from a plugin that is written in Python.

    MODULE is searched for where Python finds modules, then in this folder.
    """
    from pjrt_hub.kit.authoring.building import build

    # This folder comes last, so that a file in it hides no other module.
    sys.path.append(str(Path.cwd()))
    with usage_errors():
        written = build(backend, path)
    output.show_path(written, {"backend": backend, "path": str(written)}, as_json)
