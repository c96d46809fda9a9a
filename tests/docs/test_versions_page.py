"""docs/versions.md promises what the code keeps, and names what the code reads."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pjrt_hub.base import abi
from pjrt_hub.cli.__main__ import ALIASES
from pjrt_hub.finding.contract import manifest
from pjrt_hub.finding.store import pylock
from pjrt_hub.finding.store.cache import layout
from pjrt_hub.frameworks.jax import framework
from pjrt_hub.kit.tracing import recording
from pjrt_hub.running.executable import serialized

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "versions.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.mark.parametrize(
    "row",
    [
        f"| `pylock.pjrt.toml` | `format = {pylock.FORMAT}` |",
        f"| manifests, `pjrt_plugin.toml` | `schema = {manifest.SCHEMA}` |",
        f"| the store | its folder `{layout.LAYOUT}` |",
        f"the first line `\\x93{serialized.MAGIC[1:-1].decode()}` |",
        f"| recordings of `pjrt-hub trace` | their version, {recording.VERSION} |",
        f"| PJRT C API | {abi.OLDEST} |",
        f"| JAX | {'.'.join(map(str, framework.OLDEST))} |",
        f"| Python | {PROJECT['requires-python'].removeprefix('>=')} |",
    ],
)
def test_what_a_file_or_a_version_is_marked_by(row):
    assert row in PAGE


def test_other_names_of_commands_stay():
    commands = {"plugins", "diagnose", "get"}
    assert set(ALIASES) == commands | {"out", "into"}
    for name in ALIASES:
        assert f"`{name if name in commands else f'--{name}'}`" in PAGE


def test_a_newer_plugin_runs_and_an_older_table_does_not():
    assert abi.compatible(abi.DECLARED, abi.ApiVersion(0, 9999)).ok
    assert not abi.compatible(abi.DECLARED, abi.ApiVersion(0, abi.OLDEST.minor - 1)).ok


def test_no_dependency_has_an_upper_bound():
    required = list(map(Requirement, PROJECT["dependencies"]))
    assert {mark.operator for each in required for mark in each.specifier} == {">="}
