"""`pjrt-hub pack`: a wheel straight from a library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pjrt_hub.base.listing import size_text
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command
from pjrt_hub.kit import authoring


@click.command(
    "pack",
    cls=Command,
    examples=(
        "pjrt-hub pack libacme.so --name acme",
        "pjrt-hub pack libacme.so --name acme --version 1.2.0 --license Apache-2.0",
    ),
)
@click.argument("library", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", required=True, help="What the plugin will be called.")
@click.option("--version", default="0.1.0", show_default=True, help="Of the package.")
@click.option("--platform", default="", help="What it drives; by default what the library says.")
@click.option("--license", default="", metavar="SPDX", help="The licence it has.")
@output.option(
    "out", "The folder for the wheel.", kind=output.FOLDER, default="dist", show_default=True
)
@click.option("--no-options", is_flag=True, help="Make no client to learn the create options.")
def command(library: Path, no_options: bool, as_json: bool, **how: Any) -> None:
    """Write a wheel around a plugin's library."""
    packed = authoring.pack(library, with_options=not no_options, **how)
    identity = packed.identity
    if as_json:
        output.show_json(
            {
                "wheel": str(packed.path),
                "distribution": packed.package.distribution,
                "platform": packed.package.platform,
                "api_version": identity.api_version,
                "extensions": list(identity.extensions),
                "options": {option.name: option.type for option in identity.options},
                "sha256": identity.sha256,
            }
        )
        return
    rows = [
        ("platform", packed.package.platform),
        ("api", identity.api_version),
        ("extensions", ", ".join(identity.extensions) or "none"),
        ("options", ", ".join(f"{each.name} ({each.type})" for each in identity.options) or "none"),
        ("sha256", identity.sha256),
    ]
    if identity.refusal:
        rows.append(("no client here", identity.refusal))
    output.show_table(("of the library", ""), rows)
    print(f"{packed.path}: {size_text(packed.path.stat().st_size)}")
