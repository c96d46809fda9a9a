"""`pjrt-hub pack`: the same library gives the same wheel, which says what the library is."""

from __future__ import annotations

import hashlib
import json
import zipfile

import pytest

from pjrt_hub.kit import authoring


@pytest.fixture
def packed(run, folder, library):
    """What the command said, and the wheel."""
    words = ("pjrt-hub", "pack", library, "--name", "mychip", "--version", "1.0", "--json")
    said = json.loads(run(*words, SOURCE_DATE_EPOCH="1700000000"))
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
    run(
        *("pjrt-hub", "pack", library, "--name", "mychip", "--version", "1.0", "--output", "again"),
        SOURCE_DATE_EPOCH="1700000000",
    )
    assert (folder / "again" / wheel.name).read_bytes() == wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        assert {member.date_time for member in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--version", "one"), "'one' is not a version"),
        (("--name", "cpu"), "is the name of another plugin"),
    ],
)
def test_what_cannot_be_packed_is_refused(library, tmp_path, capsys, words, why):
    from pjrt_hub.cli.__main__ import run

    words = ["pack", str(library), "--name", "mychip", "--output", str(tmp_path / "out"), *words]
    assert run(words) == 1
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_no_plugin_is_refused(tmp_path, capsys):
    from pjrt_hub.cli.__main__ import run

    path = tmp_path / "page.so"
    path.write_text("<html>")
    assert run(["pack", str(path), "--name", "mychip"]) == 5
    assert "it is an HTML page" in capsys.readouterr().err
