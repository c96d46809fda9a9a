"""`pjrt-hub bundle`: plugins to and from machines without a network."""

from __future__ import annotations

from pathlib import Path

import click

import pjrt_hub
from pjrt_hub.cli import output


@click.group("bundle")
def command() -> None:
    """Carry plugins to machines without a network, in one file."""


@command.command("export")
@click.argument("path", metavar="OUT", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--platform", "platforms", multiple=True, help="A platform, plugin or package.")
@click.option("--host", "hosts", multiple=True, help="A machine: linux-x86_64; else this one.")
@output.json_option
def export(path: Path, platforms: tuple[str, ...], hosts: tuple[str, ...], as_json: bool) -> None:
    """Fetch the pinned archives and write them to OUT: those of the lock file, where one holds."""
    held = pjrt_hub.export_bundle(path, *platforms, hosts=hosts)
    show(path, held, as_json)


@command.command("import")
@click.argument(
    "path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@output.json_option
def import_(path: Path, as_json: bool) -> None:
    """Verify FILE against the lock file or the registry here, and put it into the cache."""
    show(path, pjrt_hub.import_bundle(path), as_json)


def show(path: Path, held: tuple[str, ...], as_json: bool) -> None:
    """Prints what a bundle holds."""
    if as_json:
        output.show_json({"path": str(path), "artifacts": held})
        return
    for line in held:
        print(line)
    print(f"{len(held)} in {path} ({output.human_nbytes(path.stat().st_size)})")
