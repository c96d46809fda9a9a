"""Power cuts: a copy of the disk at a random moment holds whole entries or none.

An ext4 lies on a loop device; a copy of its file is what a disk would hold after a cut. What a
drive loses of its own cache is not simulated.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from forks import Forks
from toy import Toy

from pjrt_hub.finding.store.cache.cache import Cache

#: How ext4 orders file data and its journal.
MODES = ("ordered", "writeback", "journal")


@contextmanager
def mounted(image: Path, options: str = "") -> Iterator[Path]:
    """The file system in a file, mounted beside it."""
    folder = image.with_suffix(".mounted")
    folder.mkdir(exist_ok=True)
    command = ["mount", "-o", f"loop,{options}".rstrip(","), str(image), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no loop device can be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def disk(folder: Path) -> Path:
    """A small, empty ext4."""
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
def place(tally: Callable[[str], None]) -> Iterator[Path]:
    """A folder in memory where there is one, because the disk is copied a hundred times."""
    if os.geteuid() or shutil.which("mkfs.ext4") is None:
        tally("power cuts: skipped, mounting needs root and mkfs.ext4")
        pytest.skip("mounting needs root and mkfs.ext4")
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with TemporaryDirectory(dir=memory) as folder:
        try:
            with mounted(disk(Path(folder))):
                pass
        except pytest.skip.Exception:
            tally("power cuts: skipped, no loop device can be mounted")
            raise
        yield Path(folder)


@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut_leaves_whole_entries(
    forks: Forks,
    toy: Toy,
    place: Path,
    mode: str,
    tally: Callable[[str], None],
    rounds: Callable[[int, int], int],
) -> None:
    image = disk(place)
    wanted, cuts, wrong, found = rounds(20, 100), 0, [], 0
    draw = random.Random(mode)
    with mounted(image, f"data={mode}") as live:
        given = toy.given(live / "cache")
        fork = forks.fork("fetch_for_ever", **given).go()
        try:
            while cuts < wanted or (not found and cuts < 300):
                cuts += 1
                time.sleep(draw.uniform(0, 0.15))
                fork.kill(signal.SIGSTOP)  # else no cut would fall into a busy time
                copy = cut(image, live)
                fork.kill(signal.SIGCONT)
                checked = subprocess.run(["fsck.ext4", "-fp", str(copy)], capture_output=True)
                assert checked.returncode in (0, 1), checked.stdout
                with mounted(copy) as after:
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
    with mounted(image, "data=writeback,commit=1") as live:
        given = toy.given(live / "cache")
        assert forks.run("fetch_unsynced", **given).error == ""
        time.sleep(2.5)  # the names are written soon, their bytes much later
        copy = cut(image, live)
    subprocess.run(["fsck.ext4", "-fp", str(copy)], capture_output=True)
    with mounted(copy) as after:
        assert toy.audit(Cache(after / "cache")) != []
