"""`pjrt-hub registry`: making signed registries, and trusting them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import pjrt_hub
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Group
from pjrt_hub.cli.lock import trusts

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_folder = click.argument("folder", metavar="DIR", type=_FOLDER)
_keys = click.option(
    "--keys", required=True, multiple=True, type=_FOLDER, help="A folder of private keys."
)
_passphrase = click.option("--passphrase-file", type=_FILE, help="For encrypted keys.")


def _expiries(function: Callable[..., Any]) -> Callable[..., Any]:
    for role, default in (("root", 365), ("targets", 90), ("snapshot", 90)):
        option = click.option(
            f"--{role}-days", type=click.IntRange(1), default=default, show_default=True,
            help=f"How long the {role} counts.",
        )  # fmt: skip
        function = option(function)
    return click.option(
        "--expires-days", type=click.IntRange(1), default=14, show_default=True,
        help="How long clients believe this state without a newer one.",
    )(function)  # fmt: skip


@click.group("registry", cls=Group)
def command() -> None:
    """Make a signed registry, or trust one."""


@command.command(
    examples=(
        "pjrt-hub registry init site --keys keys",
        "pjrt-hub registry init site --keys keys --threshold 2 --root-keys 3",
    ),
)
@_folder
@click.option("--keys", required=True, type=_FOLDER, help="Where the private keys go.")
@click.option("--threshold", type=click.IntRange(1), default=1, help="Signatures that must be.")
@click.option("--root-keys", type=click.IntRange(1), default=2, help="Spare ones included.")
@_passphrase
@output.json_option
def init(
    folder: Path,
    keys: Path,
    threshold: int,
    root_keys: int,
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Make keys and an empty registry."""
    root = pjrt_hub.registries.init(
        folder,
        keys,
        threshold=threshold,
        root_keys=max(root_keys, threshold),
        passphrase=_read(passphrase_file),
    )
    if as_json:
        output.show_json({"root": str(root), "keys": str(keys)})
        return
    print(f"{root}: give this file to who is to trust the registry")
    print(f"{keys}: the private keys; keep those of the root elsewhere, off line")


@command.command(
    examples=(
        "pjrt-hub registry add site rows.toml",
        "pjrt-hub registry add site acme=acme-1.0.whl --at https://example.com/files",
    ),
)
@_folder
@click.argument("sources", nargs=-1, required=True, metavar="ROWS.toml | [NAME=]ARCHIVE ...")
@click.option("--at", default="", metavar="URL", help="The folder that clients get the files from.")
@click.option("--yes", is_flag=True, help="Trust archives that no registry knows.")
@click.option("--allow-look-alike", is_flag=True, help="Accept a name that looks like another.")
@output.json_option
def add(
    folder: Path,
    sources: tuple[str, ...],
    at: str,
    yes: bool,
    allow_look_alike: bool,
    as_json: bool,
) -> None:
    """Add rows to the draft, or measure archives for it."""
    rows = pjrt_hub.registries.add(
        folder,
        *sources,
        at=at,
        allow_look_alike=allow_look_alike,
        trust=lambda text: trusts(text, yes),
    )
    if as_json:
        output.show_json({"artifacts": [row.as_row() for row in rows]})
        return
    for row in rows:
        print(f"{row.plugin} ({row.platform}): {row.package} {row.version}, {row.file_name}")
    print(f"{len(rows)} rows in the draft; sign it with `pjrt-hub registry publish`")


@command.command(
    examples=(
        "pjrt-hub registry publish site --keys keys",
        "pjrt-hub registry publish site --keys keys --json",
    ),
)
@_folder
@_keys
@_passphrase
@_expiries
@output.json_option
def publish(
    folder: Path,
    keys: tuple[Path, ...],
    passphrase_file: Path | None,
    as_json: bool,
    **days: int,
) -> None:
    """Sign the draft, or the same rows for another time."""
    published = pjrt_hub.registries.publish(
        folder, keys, days=_days(days), passphrase=_read(passphrase_file)
    )
    _show(published, as_json)


@command.command(
    examples=(
        "pjrt-hub registry rotate site timestamp --keys keys",
        "pjrt-hub registry rotate site root --keys keys --threshold 2",
    ),
)
@_folder
@click.argument("role", type=click.Choice(("root", "targets", "snapshot", "timestamp")))
@_keys
@click.option("--revoke", "revoked", multiple=True, help="Only this key, by its id's beginning.")
@click.option("--threshold", type=click.IntRange(1), help="Signatures that must be from now on.")
@_passphrase
@_expiries
@output.json_option
def rotate(
    folder: Path,
    role: str,
    keys: tuple[Path, ...],
    revoked: tuple[str, ...],
    threshold: int | None,
    passphrase_file: Path | None,
    as_json: bool,
    **days: int,
) -> None:
    """Replace the keys of a ROLE; needs keys of the root."""
    published = pjrt_hub.registries.rotate(
        folder,
        role,
        keys,
        revoked=revoked,
        threshold=threshold,
        days=_days(days),
        passphrase=_read(passphrase_file),
    )
    _show(published, as_json)


@command.command(
    examples=(
        "pjrt-hub registry trust https://example.com/registry --root root.json",
        "pjrt-hub registry trust https://example.com/registry --root root.json --platform acme",
    ),
)
@click.argument("url")
@click.option("--root", required=True, type=_FILE, help="The publisher's root.json.")
@click.option("--platform", "platforms", multiple=True, help="A shipped name that it takes over.")
@output.json_option
def trust(url: str, root: Path, platforms: tuple[str, ...], as_json: bool) -> None:
    """Trust the keys of the registry at URL."""
    trusted = pjrt_hub.registries.trust(url, root, platforms=platforms)
    if as_json:
        keys = {"threshold": trusted.threshold, "keyids": trusted.keyids}
        output.show_json({"path": str(trusted.path), "version": trusted.version, **keys})
        return
    print(f"trusted: root {trusted.version}, {trusted.threshold} of these keys:")
    for keyid in trusted.keyids:
        print(f"  {keyid}")
    print(f"kept in {trusted.path}; it is read where PJRT_HUB_REGISTRY={url}")


@command.command(
    examples=(
        "pjrt-hub registry refresh",
        "pjrt-hub registry refresh --json",
    ),
)
@output.json_option
def refresh(as_json: bool) -> None:
    """Read the registry that PJRT_HUB_REGISTRY names."""
    remote, reading = pjrt_hub.registries.refresh()
    if as_json:
        rows = [row.as_row() for row in reading.rows]
        output.show_json({"url": remote.name, "expires": reading.expires, "artifacts": rows})
        return
    for row in reading.rows:
        print(f"{row.plugin} ({row.platform}): {row.package} {row.version}, {row.host}")
    until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(reading.expires))
    print(f"{remote.name}: {len(reading.rows)} rows, believed until {until}")


def _read(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes().strip()


def _days(days: dict[str, int]) -> dict[str, int]:
    roles = {name.removesuffix("_days"): value for name, value in days.items()}
    return {"timestamp": roles.pop("expires"), **roles}


def _show(published: Any, as_json: bool) -> None:
    if as_json:
        expires = {role: each.isoformat() for role, each in published.expires.items()}
        value = {"versions": published.versions, "expires": expires, "rows": published.rows}
        output.show_json({"path": str(published.folder), **value})
        return
    for role, version in published.versions.items():
        print(f"{role} {version}, until {published.expires[role]:%Y-%m-%d %H:%M UTC}")
    print(f"{published.folder}: {published.rows} rows signed")
