"""`pjrt-hub list`: every candidate, and why it was chosen or not."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

import pjrt_hub
from pjrt_hub.base.listing import Listing
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command

if TYPE_CHECKING:
    from pjrt_hub import Finding

_HARDWARE = {True: "yes", False: "no", None: "unknown"}
_STYLES = {"chosen": "bold green", "usable": "", "no": "dim"}


@click.command("list", cls=Command, examples=("pjrt-hub list", "pjrt-hub list cuda --wide"))
@click.argument("platform", required=False)
@click.option(
    "--wide", is_flag=True, help="Show also who ships it, the priority and the place; cut nothing."
)
@click.option("--all", "everything", is_flag=True, help="Show also what is not for this machine.")
def command(platform: str | None, wide: bool, everything: bool, as_json: bool) -> None:
    """List the plugins, and why each was chosen or not.

    With PLATFORM, list as if that platform had been asked for; with a library's path, that plugin.
    Plugins for other machines, and copies that another one hides, are listed only with --all.
    """
    findings = pjrt_hub.plugins(platform)
    for each in findings:
        if each.is_unknown:
            print(f"nothing is named {each.name!r}", file=sys.stderr)
    if as_json:
        output.show_json([as_dict(finding) for finding in findings])
        return
    shown = Listing(each for each in findings if everything or not each.aside)
    rows = shown.rows()
    if rows:
        styles = [_STYLES[row["verdict"].partition(":")[0]] for row in rows]
        if wide:
            rows = list(map(widen, rows, shown))
        output.show_rows(rows, styles, cut=not wide)
    if left := len(findings) - len(shown):
        print(f"{left} more: --all")
    if pins := pjrt_hub.pins():
        print(f"locked by {pins.path}")


def as_dict(finding: Finding) -> dict[str, Any]:
    """Return the documented JSON of one candidate."""
    return {
        **finding._asdict(),
        "api_version": str(finding.api_version) if finding.api_version else None,
        "hardware": finding.hardware._asdict(),
        "library_path": str(finding.library_path) if finding.library_path else None,
        "verdict": finding.verdict._asdict(),
    }


def widen(row: Mapping[str, str], finding: Finding) -> dict[str, str]:
    """Return the cells of a row, with the additional cells of --wide before the verdict."""
    known = bool(finding.platform)
    *first, verdict = row.items()
    more = {
        "package": finding.package or "-",
        "license": finding.license or "-",
        "attested by": finding.publisher or ("nobody" if finding.license else "-"),
        "priority": str(finding.priority) if known else "-",
        "hardware": _HARDWARE[finding.hardware.ok] if known else "-",
        "from": str(finding.library_path or finding.origin),
    }
    return dict([*first, *more.items(), verdict])
