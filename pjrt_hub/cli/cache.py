"""`pjrt-hub cache`: what the cache holds (layer 5)."""

from __future__ import annotations

import click

import pjrt_hub
from pjrt_hub.cli import output
from pjrt_hub.cli.status import NOT_FETCHED


@click.group("cache")
def command() -> None:
    """Show, check or empty the cache of fetched plugins."""


@command.command("list")
@output.json_option
def list_(as_json: bool) -> None:
    """List the fetched plugins."""
    cache = pjrt_hub.cache()
    entries = cache.entries()
    if as_json:
        rows = [
            {
                "platform": entry.artifact.platform,
                "package": entry.artifact.package,
                "version": entry.artifact.version,
                "sha256": entry.artifact.sha256,
                "nbytes": entry.artifact.nbytes,
                "path": str(entry.library_path),
            }
            for entry in entries
        ]
        output.show_json({"root": str(cache.root), "nbytes": cache.nbytes(), "entries": rows})
        return
    if entries:
        output.show_table(
            ("platform", "package", "version", "size", "path"),
            [
                (
                    entry.artifact.platform,
                    entry.artifact.package,
                    entry.artifact.version,
                    output.human_nbytes(entry.artifact.nbytes),
                    str(entry.library_path),
                )
                for entry in entries
            ],
        )
    print(f"{output.human_nbytes(cache.nbytes())} in {cache.root}")


@command.command()
@output.json_option
def verify(as_json: bool) -> int:
    """Compare every byte with its pin; exit with 4 where one differs."""
    audits = pjrt_hub.cache().verify()
    if as_json:
        output.show_json(
            [
                {"path": str(audit.root), "ok": audit.verdict.ok, "reason": audit.verdict.reason}
                for audit in audits
            ]
        )
    else:
        for audit in audits:
            print(f"{audit.root}: {audit.verdict.reason or 'ok'}")
    return 0 if all(audit.verdict.ok for audit in audits) else NOT_FETCHED


@command.command()
@output.json_option
def clear(as_json: bool) -> None:
    """Remove every fetched plugin."""
    cache = pjrt_hub.cache()
    freed = cache.clear()
    if as_json:
        output.show_json({"root": str(cache.root), "freed_nbytes": freed})
    else:
        print(f"removed {output.human_nbytes(freed)} from {cache.root}")
