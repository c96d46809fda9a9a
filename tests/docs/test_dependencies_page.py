"""docs/dependencies.md has a row for each dependency and each extra, and for nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
REQUIRED = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
BUILD = [Requirement(each) for each in PROJECT["build-system"]["requires"]]


def rows() -> dict[str, list[str]]:
    """The cells after the name, for each dependency."""
    first = PAGE.partition("\n## ")[0]
    found = re.findall(r"^\| `([^`]+)` \|(.*)\|$", first, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in found}


def test_each_dependency_has_a_row():
    assert list(rows()) == sorted(each.name for each in REQUIRED)


@pytest.mark.parametrize("requirement", REQUIRED, ids=lambda each: each.name)
def test_the_release_in_the_row_is_one_that_we_take(requirement):
    release, _, month = rows()[requirement.name][3].partition(", ")
    assert requirement.specifier.contains(release)
    assert re.fullmatch(r"20\d\d-[01]\d", month)


def test_each_extra_is_named():
    extras = set(PROJECT["project"]["optional-dependencies"])
    table = PAGE.partition("## Extras")[2].partition("## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == extras


def test_what_builds_it_is_named():
    text = PAGE.partition("## To build")[2]
    assert [each.name for each in BUILD if each.name not in text] == []
