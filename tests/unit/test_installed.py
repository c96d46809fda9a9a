"""Installed packages, read from files: names, versions, entry points, and unreadable files."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from trees import world

from pjrt_hub.base import digest
from pjrt_hub.finding.discovery.installed import Installed
from pjrt_hub.finding.discovery.survey import survey


def test_metadata_that_cannot_be_read_names_no_entry_points(tmp_path):
    (tmp_path / "folder-1.0.dist-info" / "entry_points.txt").mkdir(parents=True)
    (tmp_path / "missing-1.0.dist-info").mkdir()
    (tmp_path / "file-1.0.dist-info").write_text("")
    long = tmp_path / "long-1.0.dist-info"
    long.mkdir()
    lines = ["[console_scripts]", *(f"tool-{n} = long:main" for n in range(9_000))]
    (long / "entry_points.txt").write_text("\n".join([*lines, "[pjrt_plugins]", "toy = long_toy"]))
    assert (long / "entry_points.txt").stat().st_size > 2 * (1 << 16)
    found = Installed([str(tmp_path)])
    assert [(each.name, each.module) for each in found.entry_points] == [("toy", "long_toy")]
    assert found.get("missing") is not None


TEXT = "toy = jax_plugins.toy\n"


def holds(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (holds(b"[jax_plugins\n" + TEXT.encode()), "line 1 is '[jax_plugins'"),
        (holds(b"[jax_plugins]\njax_plugins.toy\n"), "line 2 is 'jax_plugins.toy'"),
        (holds(TEXT.encode()), "line 1 is 'toy = jax_plugins.toy'"),
        (holds(f"[jax_plugins]\n{TEXT}".encode("utf-16")), "it is not UTF-8"),
        (holds(f"[jax_plugins]\n{TEXT}".encode("utf-16-le")), "it is not UTF-8"),
        (holds(b"[jax_plugins]\nt\xf6y = jax_plugins.toy\n"), "it is not UTF-8"),
        (holds(b"[jax_plugins]\n" * 10), "larger than 100 bytes"),
        (Path.mkdir, os.strerror(errno.EISDIR)),
        (lambda path: path.symlink_to(path), os.strerror(errno.ELOOP)),
        (os.mkfifo, None),  # a FIFO without a writer blocks readers for ever
    ],
)
def test_entry_points_that_cannot_be_read_are_a_rejection(
    tmp_path, site, monkeypatch, make, reason
):
    monkeypatch.setattr(digest, "MOST_NBYTES", 100)
    site.install("jax-broken")
    make(site.folder / "jax_broken-1.0.dist-info" / "entry_points.txt")
    site.vendor("jax-whole", "jax_plugins.whole", "pjrt_plugin_whole.so")
    found = survey(world(tmp_path, site))
    assert [each.name for each in found.candidates] == ["whole"]
    told = [
        (each.origin, each.reason, each.hint[:24])
        for each in found.rejections
        if "entry point" not in each.origin
    ]
    broken = f"its entry_points.txt cannot be read: {reason}"
    assert told == [("jax-broken 1.0", broken, "install jax-broken again")] * bool(reason)


def test_a_byte_order_mark_and_other_groups_are_no_matter_of_plugins(tmp_path, site):
    site.vendor("jax-marked", "jax_plugins.marked", "pjrt_plugin_marked.so")
    path = site.folder / "jax_marked-1.0.dist-info" / "entry_points.txt"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    site.install("tools")
    text = "[console_scripts]\nplugins\n[other_plugins]\nx\n; [jax_plugins\n"
    site.write("tools-1.0.dist-info/entry_points.txt", text)
    found = survey(world(tmp_path, site))
    assert ([each.name for each in found.candidates], found.rejections) == (["marked"], ())


def test_of_one_name_the_first_folder_wins_and_in_a_folder_the_first_version(tmp_path):
    for folder, names in {"a": ["Toy_x-2.0", "toy.x-1.0"], "b": ["toy-x-0.9", "other-1.0"]}.items():
        for name in names:
            (tmp_path / folder / f"{name}.dist-info").mkdir(parents=True)
    found = Installed([str(tmp_path / "a"), str(tmp_path / "b")])
    toy = found.get("toy-x")
    assert toy is not None
    assert (toy.version, toy.folder) == ("1.0", tmp_path / "a")
    assert toy.info == tmp_path / "a" / "toy.x-1.0.dist-info"
    hidden = [(str(loser), loser.folder.name, str(winner)) for loser, winner in found.shadowed]
    assert hidden == [("toy-x 2.0", "a", "toy-x 1.0"), ("toy-x 0.9", "b", "toy-x 1.0")]
