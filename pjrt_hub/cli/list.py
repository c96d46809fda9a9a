"""`pjrt-hub list`: every candidate, and why it was chosen or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import pjrt_hub
from pjrt_hub.cli import output

if TYPE_CHECKING:
    from pjrt_hub import Finding

_HARDWARE = {True: "yes", False: "no", None: "unknown"}


@click.command("list")
@click.argument("platform", required=False)
@output.json_option
def command(platform: str | None, as_json: bool) -> None:
    """List every plugin that was found, and why it was chosen or not.

    With PLATFORM, as if that platform had been asked for; with a library's path, that plugin.
    """
    findings = list(pjrt_hub.plugins(platform))
    if as_json:
        output.show_json([as_dict(finding) for finding in findings])
        return
    columns = ("name", "platform", "version", "api", "priority", "hardware", "from", "verdict")
    output.show_table(columns, [as_row(finding) for finding in findings])
    if pins := pjrt_hub.pins():
        print(f"locked by {pins.path}")


def as_dict(finding: Finding) -> dict[str, Any]:
    """The documented JSON of one candidate."""
    return {
        "name": finding.name,
        "platform": finding.platform,
        "version": finding.version,
        "api_version": str(finding.api_version) if finding.api_version else None,
        "priority": finding.priority,
        "hardware": {"ok": finding.hardware.ok, "reason": finding.hardware.reason},
        "source": finding.source,
        "origin": finding.origin,
        "library_path": str(finding.library_path) if finding.library_path else None,
        "verdict": {"ok": finding.verdict.ok, "reason": finding.verdict.reason},
        "chosen": finding.chosen,
    }


def as_row(finding: Finding) -> tuple[str, ...]:
    """One line of the table; of what is not usable, only the name, the place and the reason."""
    word = "chosen" if finding.chosen else "usable" if finding.verdict.ok else "no"
    known = bool(finding.platform)
    return (
        finding.name,
        finding.platform or "-",
        finding.version or "-",
        str(finding.api_version or "-"),
        str(finding.priority) if known else "-",
        _HARDWARE[finding.hardware.ok] if known else "-",
        str(finding.library_path or finding.origin),
        ": ".join(filter(None, (word, finding.verdict.reason))),
    )
