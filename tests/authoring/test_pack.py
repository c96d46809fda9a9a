"""`pjrt-hub pack`: the same library gives the same wheel, which says what the library is."""

import hashlib
import json
import zipfile

import pytest

from pjrt_hub.cli.__main__ import run as cli
from pjrt_hub.kit import authoring

PACK = ("pjrt-hub", "pack", "--name", "mychip", "--version", "1.0")
THEN = {"SOURCE_DATE_EPOCH": "1700000000"}


@pytest.fixture
def packed(run, folder, library):
    said = json.loads(run(*PACK, library, "--json", **THEN))
    return said, folder / said["wheel"]


def test_the_wheel_says_what_the_library_is(packed, library, row, extensions):
    said, wheel = packed
    assert said == {
        "wheel": f"dist/{wheel.name}",
        "distribution": "mychip-pjrt",
        "platform": "cpu",
        "api_version": str(row.api_version),
        "extensions": extensions,
        "options": {"cpu_device_count": "int64"},
        "sha256": hashlib.sha256(library.read_bytes()).hexdigest(),
    }
    assert wheel.name.startswith("mychip_pjrt-1.0-py3-none-manylinux_2_27_")
    errors = [each for each in authoring.lint(wheel) if each.rule.severity == "error"]
    assert errors == []


def test_the_same_library_gives_the_same_bytes(packed, run, folder, library):
    _, wheel = packed
    run(*PACK, library, "--output", "again", **THEN)
    assert (folder / "again" / wheel.name).read_bytes() == wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        assert {member.date_time for member in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("--version", "one"), 1, "'one' is not a version"),
        (("--name", "cpu"), 1, "is the name of another plugin"),
        ((), 5, "it is an HTML page"),
    ],
)
def test_what_cannot_be_packed_is_refused(library, tmp_path, capsys, words, status, why):
    page, out = tmp_path / "page.so", tmp_path / "out"
    page.write_text("<html>")
    plugin = page if status == 5 else library
    assert cli(["pack", str(plugin), "--name", "mychip", "--output", str(out), *words]) == status
    assert why in capsys.readouterr().err
    assert not out.exists()
