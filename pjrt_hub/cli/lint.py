"""`pjrt-hub lint`: rules for what plugin authors ship."""

from __future__ import annotations

from pathlib import Path

import click

from pjrt_hub.base.listing import count_text
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command
from pjrt_hub.cli.status import FAILED
from pjrt_hub.kit import authoring


@click.command(
    "lint",
    cls=Command,
    examples=(
        "pjrt-hub lint dist/acme_pjrt-1.0-py3-none-linux_x86_64.whl",
        "pjrt-hub lint libacme.so --no-probe",
    ),
)
@click.argument("path", metavar="WHEEL|DIR|LIB", type=click.Path(path_type=Path, exists=True))
@click.option("--no-probe", is_flag=True, help="Load no plugin, not even in another process.")
def command(path: Path, no_probe: bool, as_json: bool) -> int:
    """Check a wheel, a folder or a library against the rules.

    docs/lint.md explains the rules. Exits with 1 if a rule of severity "error" is broken.
    """
    findings = authoring.lint(path, probes=not no_probe)
    errors = sum(finding.rule.severity == "error" for finding in findings)
    if as_json:
        output.show_json(
            [
                {
                    "rule": finding.rule.code,
                    "severity": finding.rule.severity,
                    "title": finding.rule.title,
                    "where": finding.where,
                    "text": finding.text,
                }
                for finding in findings
            ]
        )
    else:
        if findings:
            output.show_table(
                ("rule", "severity", "where", "what"),
                [(each.rule.code, each.rule.severity, each.where, each.text) for each in findings],
            )
        warnings = len(findings) - errors
        print(f"{path}: {count_text(errors, 'error')}, {count_text(warnings, 'warning')}")
    return FAILED if errors else 0
