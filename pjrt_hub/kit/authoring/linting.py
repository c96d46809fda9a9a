"""`lint`: every rule over what is shipped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pjrt_hub.kit.authoring import shipment
from pjrt_hub.kit.authoring.rule import Rule, rules


@dataclass(frozen=True, slots=True)
class Finding:
    """A place where a rule does not hold.

    Attributes:
        rule: the rule.
        where: a file of the package, or a line of its metadata.
        text: what was found.
    """

    rule: Rule
    where: str
    text: str


def lint(path: Path, *, probes: bool = True) -> list[Finding]:
    """Check a package against the rules and return each violation, by the rule's number.

    Args:
        path: of a wheel, of a folder, or of a library.
        probes: load plugins in child processes, to compare manifests with them.

    Raises:
        PjrtHubError: it is not one of these.
    """
    with shipment.opened(path, probes=probes) as shipped:
        return [
            Finding(each, where, text) for each in rules() for where, text in each.look(shipped)
        ]
