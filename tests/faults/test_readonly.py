"""Disks that are full, read-only, noexec or somebody else's: a warm hit, or a clear word."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from forks import Forks
from toy import Toy

from pjrt_hub.finding.store.cache.cache import Cache

Tally = Callable[[str], None]
Rounds = Callable[[int, int], int]


@contextmanager
def tmpfs(folder: Path, options: str) -> Iterator[Path]:
    """A file system in memory."""
    mount = folder / "disk"
    mount.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(mount)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting needs privileges")
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.parametrize("limit", ["size", "nr_inodes", "ulimit -f"])
def test_a_disk_that_fills_up(
    forks: Forks, toy: Toy, tmp_path: Path, limit: str, tally: Tally, rounds: Rounds
) -> None:
    """Every size from nothing to enough: an entry, or a word about space and a clean store."""
    nbytes = 2 * (len(toy.wheel) + (256 << 10))
    steps = rounds(16, 64)
    refused, wrong = 0, []
    for step in range(1, steps + 1):
        size = nbytes * step // steps
        options = {"size": f"size={size}", "nr_inodes": f"nr_inodes={step * 24 // steps + 1}"}
        with tmpfs(tmp_path, options.get(limit, "size=32m")) as disk:
            cache = Cache(disk / "cache")
            given = toy.given(cache.root)
            file_nbytes = len(toy.wheel) * step // (steps - 1) if limit == "ulimit -f" else None
            ended = forks.run("fetch_with_file_limit", nbytes=file_nbytes, **given)
            wrong += toy.audit(cache)
            if ended.error:
                refused += 1
                no_space = "space" in ended.told and "PJRT_HUB_CACHE" in ended.told
                if ended.error != "CacheError" or not no_space:
                    wrong.append(f"{limit} {step}: {ended.told}")
                wrong += [f"left: {path}" for path in disk.glob("cache/v1/unpacking/*")]
            elif not cache.entries():
                wrong.append(f"{limit} {step}: neither an error nor an entry")
    tally(f"full disk ({limit}): {steps} sizes, {refused} refused, {len(wrong)} wrong")
    assert wrong == []
    assert 0 < refused < steps


def test_a_read_only_disk(forks: Forks, toy: Toy, tmp_path: Path, tally: Tally) -> None:
    with tmpfs(tmp_path, "size=32m") as disk:
        given = toy.given(disk / "cache")
        empty = {**given, "root": str(disk / "empty")}
        (disk / "empty").mkdir(mode=0o700)
        assert not forks.run("load", **given).error
        toy.server.requests.clear()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        warm, cold = forks.run("load", **given), forks.run("fetch", **empty)
        assert "stub_name" in warm.value, warm.told
        assert toy.server.requests == []
        assert cold.error == "CacheError", cold
        assert "PJRT_HUB_CACHE" in cold.told
        tally("read-only disk: 1 of 1 warm loads, 1 of 1 cold ones refused with the next step")


def test_a_disk_that_runs_nothing(forks: Forks, toy: Toy, tmp_path: Path, tally: Tally) -> None:
    with tmpfs(tmp_path, "size=32m,noexec") as disk:
        ended = forks.run("load", row=str(toy.row), root=str(disk / "cache"), env=toy.sources)
        assert ended.error == "PluginLoadError", ended
        for word in ("noexec", str(disk / "cache"), "PJRT_HUB_CACHE"):
            assert word in ended.told
        tally("noexec disk: 1 of 1 named")


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_user_without_a_home(forks: Forks, toy: Toy, tally: Tally) -> None:
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        row, root = Path(folder, "row.json"), Path(folder, "cache")
        row.write_text(toy.row.read_text())
        given = {"row": str(row), "env": toy.sources}
        asked = forks.run("fetch_as_nobody", root="", **given)
        assert asked.error == "CacheError", asked
        assert "PJRT_HUB_CACHE" in asked.told
        assert not forks.run("fetch", root=str(root), **given).error
        for path in (root, *root.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o444)
        toy.server.requests.clear()
        warm = forks.run("fetch_as_nobody", root=str(root), **given)
        assert warm.value, warm.told
        assert toy.server.requests == []
        tally("nobody without a home: 1 of 1 told what to set, 1 of 1 warm hits in root's cache")
