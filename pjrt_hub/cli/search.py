"""`pjrt-hub search`: the plugins that could be installed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

import pjrt_hub
from pjrt_hub.base.listing import Listing
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command

if TYPE_CHECKING:
    from pjrt_hub import Offer


@click.command("search", cls=Command, examples=("pjrt-hub search", "pjrt-hub search gpu --all"))
@click.argument("text", default="")
@click.option("--all", "everything", is_flag=True, help="Show also what is for other machines.")
def command(text: str, everything: bool, as_json: bool) -> None:
    """List the plugins that could be installed.

    TEXT leaves those whose names, package or description contains it.
    """
    found = pjrt_hub.search(text)
    offers = Listing(each for each in found if everything or each.fits.ok)
    if text and not offers:
        for_others = "; --all lists what is for other machines" if found else ""
        print(f"nothing is named so that it contains {text!r}{for_others}", file=sys.stderr)
    if as_json:
        output.show_json([as_dict(each) for each in offers])
    elif offers:
        output.show_rows(offers.rows(), cut=True)


def as_dict(offer: Offer) -> dict[str, Any]:
    """Return the documented JSON of one offer."""
    return {
        **offer._asdict(),
        "api_version": str(offer.api_version) if offer.api_version else None,
        "fits": offer.fits.ok,
        "installed": [str(each) for each in offer.installed],
    }
