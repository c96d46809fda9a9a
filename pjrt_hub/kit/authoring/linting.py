"""`lint`: what a rule is, the list of all rules, and what they find in a package.

A rule is a generator over the files of a package; its docstring's first line is what must hold, the
rest says why and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pjrt_hub.kit.authoring import package_files
from pjrt_hub.kit.authoring.package_files import PackageFiles

#: Each finding is a place and a text.
Found = Iterator[tuple[str, str]]
Look = Callable[[PackageFiles], Found]

ERROR, WARNING = "error", "warning"
#: The hundreds digit of a rule's number tells which module of rules/ holds the rule.
AREAS = {1: "library", 2: "wheel", 3: "manifest", 4: "entry_points"}

_RULES: dict[int, Rule] = {}


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that must hold for every package that is shipped."""

    number: int  # The first digit is the number of the rule's area.
    severity: str  # An "error" fails the lint, a "warning" does not.
    title: str  # What must hold, in one sentence.
    why: str  # The reason for the rule, and what to do about a finding.
    look: Look  # Finds the places that break the rule.

    @property
    def code(self) -> str:
        """The rule's name in findings: "PLG101"."""
        return f"PLG{self.number}"


def rule(number: int, severity: str) -> Callable[[Look], Look]:
    """Make a generator function a rule."""

    def register(look: Look) -> Look:
        title, _, why = (look.__doc__ or "").partition("\n")
        lines = [line.strip() for line in why.strip().splitlines()]
        assert number not in _RULES, number
        _RULES[number] = Rule(number, severity, title.rstrip("."), " ".join(lines), look)
        return look

    return register


@cache
def rules() -> tuple[Rule, ...]:
    """Return every rule, by number."""
    from importlib import import_module

    for area in AREAS.values():
        import_module(f"{__package__}.rules.{area}")
    return tuple(_RULES[number] for number in sorted(_RULES))


@dataclass(frozen=True, slots=True)
class Finding:
    """A place that breaks a rule.

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
        path: the path of a wheel, of a folder, or of a library.
        probes: load plugins in child processes, to compare manifests with them.

    Raises:
        PjrtHubError: there is no file or folder at the path, or the wheel cannot be read.
    """
    with package_files.open_package(path, probes=probes) as shipped:
        return [
            Finding(each, where, text) for each in rules() for where, text in each.look(shipped)
        ]
