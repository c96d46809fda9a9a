"""`pjrt-hub cache`: showing, checking and emptying the cache."""

from __future__ import annotations

import re
import time
from typing import Any

import click

import pjrt_hub
from pjrt_hub.base.listing import size_text
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Group
from pjrt_hub.cli.status import NOT_FETCHED
from pjrt_hub.errors import CacheError

_SHOWN = ("platform", "package", "version")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}


@click.group("cache", cls=Group)
def command() -> None:
    """Show, check or empty the cache of fetched plugins."""


@command.command("dir", examples=("pjrt-hub cache dir", "ls $(pjrt-hub cache dir)"))
def dir_(as_json: bool) -> None:
    """Print the cache's directory."""
    cache = pjrt_hub.cache()
    told = {"root": str(cache.root), "system": [str(each) for each in cache.system]}
    output.show_path(cache.root, told, as_json)


@command.command("list", examples=("pjrt-hub cache list", "pjrt-hub cache list --wide"))
@click.option("--wide", is_flag=True, help="Show also where each library is.")
def list_(wide: bool, as_json: bool) -> None:
    """List the fetched plugins."""
    cache = pjrt_hub.cache()
    entries = cache.entries()
    moments = (cache.layout.last_use(each.root) for each in entries)
    used = [time.strftime("%Y-%m-%d", time.localtime(each)) for each in moments]
    if as_json:
        rows = [
            {
                **{name: getattr(entry.artifact, name) for name in (*_SHOWN, "sha256", "nbytes")},
                "last_use": day,
                "path": str(entry.library_path),
            }
            for entry, day in zip(entries, used, strict=True)
        ]
        output.show_json({"root": str(cache.root), "nbytes": cache.nbytes(), "entries": rows})
        return
    if entries:
        cells = [
            {
                **{name: getattr(entry.artifact, name) for name in _SHOWN},
                "size": size_text(entry.artifact.nbytes),
                "last use": day,
                **({"path": str(entry.library_path)} if wide else {}),
            }
            for entry, day in zip(entries, used, strict=True)
        ]
        output.show_rows(cells, cut=not wide)
    print(f"{size_text(cache.nbytes())} in {cache.root}")


@command.command(examples=("pjrt-hub cache verify", "pjrt-hub cache verify --json"))
@click.option("--repair", is_flag=True, help="Move what differs aside and fetch it again.")
def verify(repair: bool, as_json: bool) -> int:
    """Compare every file with its pin; exit with 4 if one differs."""
    audits = pjrt_hub.cache().verify()
    told: list[dict[str, object]] = [
        {"path": str(each.root), **each.verdict._asdict()} for each in audits
    ]
    bad = 0
    for audit, row in zip(audits, told, strict=True):
        is_whole = bool(audit.verdict)
        if repair and not is_whole:
            is_whole, row["repair"] = _repair(audit)
        bad += not is_whole
    if as_json:
        output.show_json(told)
    else:
        for row in told:
            print(f"{row['path']}: {row['reason'] or 'ok'}")
            if "repair" in row:
                print(f"  {row['repair']}")
    return NOT_FETCHED if bad else 0


def _repair(audit: Any) -> tuple[bool, str]:
    """Return whether an entry is whole now, and what was done."""
    try:
        done = pjrt_hub.repair(audit)
    except CacheError as exc:  # Another entry may be in a cache that this user can write.
        return False, f"{exc.message}; {exc.hint}"
    return audit.root.is_dir(), done


@command.command(
    examples=(
        "pjrt-hub cache prune --max-size 20GB --dry-run",
        "pjrt-hub cache prune --older-than 30d",
    )
)
@click.option("--max-size", help="What the plugins may take together, such as 20GB.")
@click.option("--older-than", help="For how long the others were not used, such as 30d.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
def prune(max_size: str | None, older_than: str | None, dry_run: bool, as_json: bool) -> None:
    """Remove the least recently used plugins.

    The leftovers of interrupted downloads are removed, too.
    """
    cache = pjrt_hub.cache()
    removal = cache.prune(
        max_nbytes=cache.max_nbytes if max_size is None else _nbytes(max_size),
        older_than_seconds=None if older_than is None else _seconds(older_than),
        dry_run=dry_run,
    )
    _show(removal, as_json, dry_run=dry_run)


@command.command(examples=("pjrt-hub cache clear", "pjrt-hub cache clear --json"))
def clear(as_json: bool) -> None:
    """Remove compiled programs, and fetched plugins that no process uses."""
    _show(pjrt_hub.cache().clear(), as_json)


def _show(removal: Any, as_json: bool, *, dry_run: bool = False) -> None:
    root = pjrt_hub.cache().root
    if as_json:
        output.show_json(
            {
                "root": str(root),
                "freed_nbytes": removal.nbytes,
                "removed": [str(path) for path in removal.removed],
                "in_use": [str(path) for path in removal.kept],
                "dry_run": dry_run,
            }
        )
        return
    for path in removal.kept:
        print(f"kept {path}: another process uses it")
    if dry_run:
        for path in removal.removed:
            print(f"would remove {path}")
    verb = "would remove" if dry_run else "removed"
    print(f"{verb} {size_text(removal.nbytes)} from {root}")


def _nbytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text.strip().lower())
    if found is None:
        what = f"{text!r} is not a size, such as 500MB or 20GB"
        raise click.BadParameter(what, param_hint="--max-size")
    return int(float(found[1]) * _UNITS[found[2]])


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([hdw])", text.strip().lower())
    if found is None:
        what = f"{text!r} is not a time, such as 12h, 30d or 4w"
        raise click.BadParameter(what, param_hint="--older-than")
    return float(found[1]) * _SECONDS[found[2]]
