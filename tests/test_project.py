"""Files at the top of the repository agree: the version, the workflows, the conda recipe."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
#: Nightly sessions that measure a machine, need hardware, or emulate a machine that CI has.
BY_HAND = {"aarch64", "bench", "bench_gate", "bench_same_xla", "gpu"}
#: A package -> its different name in conda.
CONDA = {"isal": "python-isal", "ml-dtypes": "ml_dtypes"}


def text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def test_the_version_is_in_one_place():
    """Measurements are an exception, because they name the version that they were made with."""
    measured = {f"docs/benchmarks{end}" for end in (".md", "/figures.json", "/same_xla.json")}
    stated = re.compile(rf"pjrt[-_]hub\W{{1,6}}{re.escape(PROJECT['version'])}\b|__version__ = ")
    files = [
        path
        for folder in ("pjrt_hub", "docs", "examples", "conda", ".github")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".pyi", ".md", ".toml", ".yaml", ".yml", ".json"}
    ]
    assert len(files) > 300
    found = [path.relative_to(ROOT).as_posix() for path in files if stated.search(path.read_text())]
    assert set(found) - measured == set()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_what_is_pinned(path):
    used = re.findall(r"uses: (.*)", path.read_text("utf-8"))
    assert used
    pin = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [each for each in used if not pin.fullmatch(each)] == []


def test_every_change_passes_the_readmes_command():
    [command] = re.findall(r"<!-- tests -->\n```console\n(.*)\n```", text("README.md"))
    assert f"- run: {command}\n" in text(".github/workflows/ci.yml")


def test_the_night_runs_what_is_for_the_night():
    table = text("CONTRIBUTING.md").partition("| for the night |")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| `nox -s (\w+)` \|", table, re.MULTILINE))
    listed = text(".github/workflows/nightly.yml").partition("session:\n          - ")[2]
    assert set(re.findall(r"^\w+$", re.sub(r" +- ", "", listed), re.MULTILINE)) == named - BY_HAND


def test_the_recipe_requires_what_the_package_requires():
    run = text("conda/recipe.yaml").partition("  run:\n")[2].partition("\n\n")[0]
    ours = [Requirement(each) for each in PROJECT["dependencies"]]
    wanted = {f"{CONDA.get(each.name, each.name)} {each.specifier}" for each in ours}
    wanted.add(f"python {PROJECT['requires-python']}")
    assert {line.strip(" -") for line in run.splitlines()} == wanted
