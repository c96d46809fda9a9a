"""What the build reads of the TOML files beforehand: the same, and only of the very same text."""

import importlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pjrt_hub.finding.contract import table

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def parsed() -> Iterator[ModuleType]:
    """The generator, which is no part of the package."""
    sys.path.append(str(ROOT / "tools"))
    yield importlib.import_module("parsed")
    sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(autouse=True)
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: ModuleType) -> Iterator[Path]:
    """A package that was built."""
    path = tmp_path / "parsed.json"
    path.write_text(parsed.text(), "utf-8")
    monkeypatch.setattr(table, "PARSED", path)
    table._parsed_files.cache_clear()
    yield path
    table._parsed_files.cache_clear()


def test_every_file_of_the_package_says_the_same(parsed, monkeypatch):
    said = {path: tomllib.loads(path.read_bytes().decode()) for path in parsed.files()}
    folders = {path.parent.name for path in said}
    assert folders == {"registry", "cpu", "cuda", "metal", "rocm", "tpu", "tt", "xpu"}
    monkeypatch.setattr(tomllib, "loads", None)
    assert {path: table.parse(path.read_bytes()) for path in said} == said


def test_a_file_that_was_edited_is_read_and_no_reader_changes_it_for_others(parsed):
    raw = next(parsed.files()).read_bytes()
    edited = raw.replace(b'plugin = "cpu"', b'plugin = "gpu"')
    assert table.parse(raw)["artifact"][0]["plugin"] == "cpu"
    assert table.parse(edited)["artifact"][0]["plugin"] == "gpu"
    with pytest.raises(ValueError, match="Invalid statement"):
        table.parse(raw + b"=")
    table.parse(raw)["artifact"].clear()
    assert table.parse(raw)["artifact"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", None])
def test_without_it_the_files_themselves_are_read(built, content, parsed):
    built.unlink()
    if content is not None:
        built.write_bytes(content)
    assert table.parse(next(parsed.files()).read_bytes())["artifact"]


def test_a_survey_of_a_built_package_imports_no_parser(built, tmp_path):
    code = f"""
import sys
from pathlib import Path
from pjrt_hub.finding.contract import table
table.PARSED = Path({str(built)!r})
import pjrt_hub
found = {{each.name for each in pjrt_hub.plugins(offline=True)}}
assert {{"cpu", "cuda13", "tpu"}} <= found, found
print("tomllib" in sys.modules)
"""
    env = {"PJRT_HUB_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT), "PJRT_HUB_LOCK": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
