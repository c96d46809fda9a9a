"""`pjrt-hub lock`: writing the file that says what a project may fetch and load."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

import pjrt_hub
from pjrt_hub.base.listing import count_text
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command
from pjrt_hub.cli.status import FAILED


@click.command("lock", cls=Command, examples=("pjrt-hub lock cpu cuda", "pjrt-hub lock --check"))
@click.argument("requests", nargs=-1, metavar="[PLATFORM | PACKAGE[==VERSION] | [NAME=]ARCHIVE]...")
@click.option("--host", "hosts", multiple=True, help="For this machine only: linux-x86_64, ...")
@output.option("output", "Write this file.", kind=click.Path(path_type=Path))
@click.option("--upgrade", is_flag=True, help="Take the newest rows instead of those of the file.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 where it would change.")
@click.option("--yes", is_flag=True, help="Trust releases that the registry does not know.")
@click.option("--allow-look-alike", is_flag=True, help="Accept a name that looks like another.")
def command(requests: tuple[str, ...], check: bool, yes: bool, as_json: bool, **how: Any) -> int:
    """Write pylock.pjrt.toml: nothing outside of it is fetched or loaded.

    Without arguments, it locks what the file was written for; if there is no file yet, all that the
    registry knows. ARCHIVE is the path or address of a .whl, .tar.gz, .zip or .so file.
    """
    locked = pjrt_hub.lock(*requests, check=check, trust=lambda text: trusts(text, yes), **how)
    if as_json:
        rows = [row.as_row() for row in locked.pins.rows]
        value = {
            "path": str(locked.pins.path),
            "changes": locked.changes,
            "additions": locked.additions,
            "left_out": locked.pins.left_out,
            "artifacts": rows,
        }
        output.show_json(value)
    else:
        for change in locked.changes:
            print(change)
        verdict = ("would change" if check else "written") if locked.changes else "is up to date"
        print(f"{locked.pins.path}: {verdict}, {count_text(len(locked.pins.rows), 'build')}")
        if names := ", ".join(locked.additions):
            place = f"PJRT_HUB_LOCK={locked.pins.path}"
            print(f"no registry pins {names}: use {place}, or make a registry of this file")
        if names := ", ".join((locked.changes and not check and locked.pins.left_out) or ()):
            print(f"pip and uv leave out {names}: an archive is no wheel, or no index has it")
    return FAILED if check and locked.changes else 0


def trusts(text: str, yes: bool) -> bool:
    """Show an archive that is in no registry, and ask; without a terminal only `--yes` agrees."""
    print(text, file=sys.stderr)
    if yes:
        print("trusted, as --yes says", file=sys.stderr)
        return True
    return sys.stdin.isatty() and click.confirm("Trust exactly these bytes?", err=True)
