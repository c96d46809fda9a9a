"""Disks: power cuts, and disks that are full, read-only, noexec or somebody else's.

After a cut a copy of the disk holds whole entries or none: an ext4 lies on a loop device, and a
copy of its file is what a disk would hold. What a drive loses of its own cache is not simulated.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from forks import Forks
from toy import Rounds, Tally, Toy

from pjrt_hub.finding.store.cache.cache import Cache


@contextmanager
def mounted(folder: Path, *command: object) -> Iterator[Path]:
    """A file system, mounted into a folder."""
    folder.mkdir(exist_ok=True)
    words = ["mount", *map(str, command), str(folder)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("mounting needs privileges and, for a file, a loop device")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def of_file(image: Path, options: str = "") -> AbstractContextManager[Path]:
    """The file system of an image file, mounted beside it."""
    return mounted(image.with_suffix(".mounted"), "-o", f"loop,{options}".rstrip(","), image)


def tmpfs(folder: Path, options: str) -> AbstractContextManager[Path]:
    return mounted(folder / "disk", "-t", "tmpfs", "-o", options, "tmpfs")


def disk(folder: Path) -> Path:
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(40 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-J", "size=4", str(image)], check=True)
    return image


def writes(mount: Path) -> tuple[str, str]:
    """How many writes the loop device has finished, and how many are on their way."""
    number = os.stat(mount).st_dev
    words = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat").read_text().split()
    return words[4], words[8]


def cut(image: Path, mount: Path) -> Path:
    """The disk as it is at one moment: a copy during which no write was finished or begun."""
    copy = image.with_name("cut.img")
    while True:
        before = writes(mount)
        shutil.copyfile(image, copy)
        if before == writes(mount) and before[1] == "0":
            return copy


@pytest.fixture
def place(tally: Tally) -> Iterator[Path]:
    """A folder in memory where there is one, because the disk is copied a hundred times."""
    if os.geteuid() or shutil.which("mkfs.ext4") is None:
        tally("power cuts: skipped, mounting needs root and mkfs.ext4")
        pytest.skip("mounting needs root and mkfs.ext4")
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with TemporaryDirectory(dir=memory) as folder:
        try:
            with of_file(disk(Path(folder))):
                pass
        except pytest.skip.Exception:
            tally("power cuts: skipped, no loop device can be mounted")
            raise
        yield Path(folder)


@pytest.mark.parametrize("mode", ["ordered", "writeback", "journal"])
def test_a_power_cut_leaves_whole_entries(forks: Forks, toy: Toy, place, mode, tally, rounds):
    """This holds however ext4 orders file data and its journal."""
    image = disk(place)
    wanted, cuts, wrong, found = rounds(20, 100), 0, [], 0
    draw = random.Random(mode)
    with of_file(image, f"data={mode}") as live:
        given = toy.given(live / "cache")
        fork = forks.fork("fetch_for_ever", **given).go()
        try:
            while cuts < wanted or (not found and cuts < 300):
                cuts += 1
                time.sleep(draw.uniform(0, 0.15))
                fork.kill(signal.SIGSTOP)  # without it, no cut would hit a busy time
                copy = cut(image, live)
                fork.kill(signal.SIGCONT)
                checked = subprocess.run(["fsck.ext4", "-fp", str(copy)], capture_output=True)
                assert checked.returncode in (0, 1), checked.stdout
                with of_file(copy) as after:
                    cache = Cache(after / "cache")
                    found += len(cache.entries())
                    wrong += toy.audit(cache)
                    toy.obtain(cache)
                    wrong += toy.audit(cache)
        finally:
            fork.kill()
            fork.ended()
    tally(
        f"power cut, data={mode}: {cuts - len(wrong)} of {cuts} healed, {len(wrong)} wrong, "
        f"{found} with an entry"
    )
    assert wrong == []
    assert found > 0


def test_a_store_that_does_not_sync_is_caught(forks: Forks, toy: Toy, place: Path) -> None:
    image = disk(place)
    with of_file(image, "data=writeback,commit=1") as live:
        given = toy.given(live / "cache")
        assert forks.run("fetch_unsynced", **given).error == ""
        time.sleep(2.5)  # the names are written soon, their bytes much later
        copy = cut(image, live)
    subprocess.run(["fsck.ext4", "-fp", str(copy)], capture_output=True)
    with of_file(copy) as after:
        assert toy.audit(Cache(after / "cache")) != []


@pytest.mark.parametrize("limit", ["size", "nr_inodes", "ulimit -f"])
def test_a_disk_that_fills_up(
    forks: Forks, toy: Toy, tmp_path: Path, limit: str, tally: Tally, rounds: Rounds
) -> None:
    """At every size there is an entry, or else an error about space and a clean store."""
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
        ended = forks.run("load", **toy.given(disk / "cache"))
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
