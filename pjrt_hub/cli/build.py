"""`pjrt-hub build`: a library of a backend in Python."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pjrt_hub.cli import output


@click.command("build")
@click.argument("backend", metavar="MODULE:CLASS")
@click.option(
    "-o",
    "--output",
    "path",
    type=output.File(),
    required=True,
    metavar="LIB.so",
    help="The library to write.",
)
@output.json_option
def command(backend: str, path: Path, as_json: bool) -> None:
    """Make a library of a plugin in Python, which any host can open.

    MODULE is looked for where Python finds modules, and then in this folder.
    """
    from pjrt_hub.kit.authoring.building import build

    sys.path.append(str(Path.cwd()))  # last: a file here stands for no other module
    try:
        written = build(backend, path)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    if as_json:
        output.show_json({"backend": backend, "path": str(written)})
    else:
        print(written)
