"""`pjrt-hub bundle`: plugins to and from machines without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import pjrt_hub
from pjrt_hub.base.listing import count_text, size_text
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Group


@click.group("bundle", cls=Group)
def command() -> None:
    """Carry plugins to machines without a network, in one file."""


@command.command(
    "export",
    examples=(
        "pjrt-hub bundle export plugins.bundle cpu cuda13",
        "pjrt-hub bundle export cuda.bundle cuda13 --host linux-aarch64",
    ),
)
@click.argument("path", metavar="OUT", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("platforms", metavar="[PLATFORM | PACKAGE]...", nargs=-1)
@click.option("--platform", "more", multiple=True, hidden=True, help="As without the option.")
@click.option("--host", "hosts", multiple=True, help="A machine: linux-x86_64; else this one.")
@click.option("--plugin-only", is_flag=True, help="Leave out the libraries that plugins require.")
@click.option(
    "--allow-restricted", is_flag=True, help="Include what its licence does not let you pass on."
)
def export(
    path: Path, platforms: tuple[str, ...], more: tuple[str, ...], as_json: bool, **how: Any
) -> None:
    """Fetch pinned archives and write them to a file.

    The archives are those of the lock file, if there is one; else the newest of the registry.
    Without PLATFORM, all that run on the machine. Each is printed with its licence.
    """
    show(path, pjrt_hub.export_bundle(path, *platforms, *more, **how), as_json)


@command.command(
    "import",
    examples=(
        "pjrt-hub bundle import plugins.bundle",
        "PJRT_HUB_LOCK=pylock.pjrt.toml pjrt-hub bundle import plugins.bundle",
    ),
)
@click.argument(
    "path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def import_(path: Path, as_json: bool) -> None:
    """Put the plugins of a bundle into the cache.

    Each archive is first compared with the lock file or the registry of this machine.
    """
    show(path, pjrt_hub.import_bundle(path), as_json)


def show(path: Path, held: tuple[str, ...], as_json: bool) -> None:
    """Print what a bundle holds."""
    if as_json:
        output.show_json({"path": str(path), "artifacts": held})
        return
    for line in held:
        print(line)
    print(f"{count_text(len(held), 'archive')} in {path} ({size_text(path.stat().st_size)})")
