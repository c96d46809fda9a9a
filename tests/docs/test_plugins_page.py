"""docs/plugins.md: made of what the registry and the adapters hold now, all of it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.finding.store.catalog import read_rows

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text("utf-8")
TOOL = runpy.run_path(str(ROOT / "tools" / "plugins_page.py"))
ROWS = [row for path in (ROOT / "registry").glob("*.toml") for row in read_rows(path)]


def section(name: str) -> str:
    """The text below a heading, up to the next of its level."""
    [(level, text)] = re.findall(rf"^(#+) {name}\n(.*?)(?=^\1 |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert level in ("##", "###")
    return text


def test_the_page_is_up_to_date():
    assert TOOL["page"]() == PAGE, "python tools/plugins_page.py"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.file_name)
def test_every_row_of_the_registry_stands_below_its_plugin(row):
    lines = re.findall(rf"^\| {re.escape(row.version)} \|.*", section(row.plugin), re.MULTILINE)
    arch = {"x86_64": "x86-64", "aarch64": "ARM64"}[row.host.arch]
    mine = (line for line in lines if f"`{row.package}`" in line)
    [line] = [line for line in mine if re.search(rf" on {arch}\b", line)]
    version = ".".join(map(str, row.host.version))
    assert version in line
    assert f"| {round(row.size / 1e6)} MB | {round(row.nbytes / 1e6)} MB |" in line
    assert f"`{row.package}` | {row.license} |" in line
    assert ("not measured" if row.api_version is None else f"{row.api_version}, accepted") in line


@pytest.mark.parametrize("name", sorted({row.platform for row in ROWS}))
def test_every_platform_has_an_anchor_and_a_line_at_a_glance(name):
    assert section(name)
    glance = section("At a glance")
    assert any(f"| {name} |" in line for line in glance.splitlines())


def test_what_a_person_needs_is_told():
    cuda = section("cuda13")
    assert "driver 580 or newer" in cuda
    assert 'pip install "pjrt-hub[cuda13]"`, which brings `nvidia-cublas`' in cuda
    assert "`libcudart.so.13`" in cuda
    assert "`H100`" in cuda
    assert "| `memory_fraction`, or `XLA_CLIENT_MEM_FRACTION`, or" in cuda
    assert "`v5e:2x2`" in section("tpu")


def test_a_plugin_that_is_too_old_is_said_to_be_refused():
    old = ROWS[0]._replace(api_version=ApiVersion(0, 40))
    assert TOOL["_api"](old).startswith("0.40, refused: needs PJRT API 0.57 or newer")
