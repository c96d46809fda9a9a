"""Eviction from the cache: least recently used first, whole entries, never one in use."""

import errno
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import wheels

from pjrt_hub.base.listing import size_text
from pjrt_hub.cli.__main__ import run
from pjrt_hub.door import process
from pjrt_hub.finding.store.cache import layout
from pjrt_hub.finding.store.cache.cache import ROW_NAME, Cache
from pjrt_hub.finding.store.catalog import Artifact, Catalog

MEMBERS = wheels.contents(100_000)
DAY = 24 * 3600


def release(version: str, folder: Path) -> tuple[Artifact, Path]:
    """The pin of another release of the toy plugin, and its wheel."""
    members = {**MEMBERS, "toy_plugin-1.0.dist-info/METADATA": version.encode()}
    path = folder / f"toy_plugin-{version}-py3-none-any.whl"
    path.write_bytes(wheel := wheels.build(members))
    return wheels.pin(wheel, members, version=version, file_name=path.name), path


@pytest.fixture
def pins(cache, tmp_path) -> list[Artifact]:
    """Three releases in the cache, which were last used 30, 20 and 10 days ago."""
    found = []
    for index, version in enumerate(("1.0", "2.0", "3.0")):
        pin, path = release(version, tmp_path)
        cache.publish(pin, path)
        use(cache, pin, 30 - 10 * index)
        found.append(pin)
    return found


def use(cache: Cache, pin: Artifact, days_ago: float) -> None:
    then = time.time() - days_ago * DAY
    os.utime(cache.root / f"v1/locks/{pin.sha256}.use", (then, then))


def versions(cache: Cache) -> list[str]:
    return sorted(entry.artifact.version for entry in cache.entries())


def test_the_least_recently_used_go_first(cache, pins):
    first = cache.layout.entry_root(pins[0])
    nbytes = sum(path.stat().st_size for path in first.rglob("*") if path.is_file())
    assert cache.prune(max_nbytes=3 * nbytes).removed == ()
    removal = cache.prune(max_nbytes=2 * nbytes)
    assert removal.removed == (first,)
    assert removal.nbytes == nbytes
    assert versions(cache) == ["2.0", "3.0"]
    assert cache.prune(max_nbytes=2 * nbytes).removed == ()
    assert cache.prune(max_nbytes=0, keep={pins[1].sha256}).removed == (
        cache.layout.entry_root(pins[2]),
    )
    assert versions(cache) == ["2.0"]
    assert list((cache.root / "v1/trash").iterdir()) == []


def test_what_was_not_used_for_long_goes(cache, pins):
    assert len(cache.prune(older_than_seconds=15 * DAY, dry_run=True).removed) == 2
    assert versions(cache) == ["1.0", "2.0", "3.0"]
    with cache.lease(pins[0]) as entry:
        assert entry is not None
    cache.prune(older_than_seconds=15 * DAY)
    assert versions(cache) == ["1.0", "3.0"]


def test_the_last_use_is_written_once_a_day(cache, pins):
    (newest,) = (each for each in cache.entries() if each.artifact == pins[2])
    for days_ago, is_written in ((0.9, False), (1.1, True)):
        use(cache, pins[2], days_ago)
        before = cache.layout.last_use(newest.root)
        with cache.lease(pins[2]):
            pass
        assert (cache.layout.last_use(newest.root) > before) == is_written, days_ago


def test_the_bound_holds_after_a_publication(cache, tmp_path):
    bounded = Cache(cache.root, max_nbytes=1)
    for version in ("1.0", "2.0"):
        bounded.publish(*release(version, tmp_path))
        assert versions(cache) == [version]


def test_an_entry_in_use_stays(cache, pins):
    with cache.lease(pins[0]) as entry:
        assert cache.prune(max_nbytes=0).kept == (entry.root,)
        assert versions(cache) == ["1.0"]
        assert cache.clear().kept == (entry.root,)
        assert cache.lookup(pins[0]) is not None
    assert cache.clear().kept == ()
    assert versions(cache) == []
    with cache.lease(pins[0]) as entry:
        assert entry is None


def test_who_waits_for_a_removal_is_told(cache, pins, monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(layout, "_LEASE_PATIENCE_SECONDS", 1.5)
    monkeypatch.setattr("pjrt_hub.finding.store.lock._QUIET_SECONDS", 0.0)
    with cache.layout.removal_lock(pins[0].sha256) as lock:
        assert lock
        with cache.lease(pins[0], told.append) as entry:
            assert entry is not None
    assert len(told) == 2
    who = f"waiting for another process (pid {os.getpid()}), which is removing this entry ("
    assert told[0].startswith(who)


def test_old_leftovers_go_and_young_ones_stay(cache, pins):
    made = {}
    for days in (1, 100):
        for name in (f"memo/file-{days}.json", f"probes/{days}.json", f"partial/x.left.{days}"):
            path = cache.root / "v1" / name.replace("x", pins[0].sha256)
            path.parent.mkdir(exist_ok=True)
            path.mkdir(parents=True) if "left" in name else path.write_text("{}")
            then = time.time() - days * DAY
            os.utime(path, (then, then))
            made[path] = days
    removal = cache.prune()
    assert set(removal.removed) == {path for path, days in made.items() if days == 100}
    assert all(path.exists() == (days == 1) for path, days in made.items())
    assert versions(cache) == ["1.0", "2.0", "3.0"]


def test_a_folder_that_others_remove_and_make_meanwhile_is_no_file(cache, pins, monkeypatch):
    memo, looks, stat = cache.root / "v1/memo", [], Path.stat
    memo.mkdir(exist_ok=True)

    def look(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        looks.append(path == memo)
        if looks[-1] and sum(looks) == 2:  # it is missing only for this one look
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return stat(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", look)
    cache.clear()
    assert sum(looks) == 2
    assert memo.exists()
    assert versions(cache) == []


def test_the_quarantine_keeps_the_newest_two_and_says_why(cache, pins, caplog):
    quarantine = cache.root / "v1/quarantine"
    for number, pin in enumerate(pins):
        damage(cache.layout.entry_root(pin) / pin.library)
        os.utime(cache.layout.entry_root(pin), (number, number))
        with caplog.at_level(logging.WARNING, "pjrt_hub.store"):
            assert cache.lookup(pin) is None
        assert "has sha256" in caplog.text
    kept = {path.name.partition(".")[0]: path for path in quarantine.iterdir()}
    assert kept.keys() == {pin.sha256 for pin in pins[1:]}
    for path in kept.values():
        assert "has sha256" in (path / "reason.txt").read_text()
        assert (path / pins[0].library).read_bytes() == b"x" * 100_000
    assert cache.entries() == ()
    assert cache.clear().nbytes > 200_000
    assert list(quarantine.iterdir()) == []


def test_a_system_cache_is_looked_at_last_and_never_written(tmp_path):
    first, first_wheel = release("1.0", tmp_path)
    shared = Cache(tmp_path / "shared")
    shared.publish(first, first_wheel)

    def seen() -> list[tuple[Path, int]]:
        return sorted((path, path.stat().st_mtime_ns) for path in shared.root.rglob("*"))

    before = seen()
    cache = Cache(tmp_path / "cache", system=(tmp_path / "none", shared.root))
    with cache.lease(first) as entry:
        assert entry is not None
        assert entry.root == shared.layout.entry_root(first)
        assert shared.prune(max_nbytes=0).kept == (entry.root,)
    assert cache.place(first) == shared.layout.entry_root(first)
    assert cache.entries() == ()
    assert seen() == before
    assert len(list((cache.root / "v1/memo").iterdir())) == len(first.members)
    cache.publish(first, first_wheel)
    assert cache.place(first) == cache.layout.entry_root(first)


def test_a_corrupted_system_cache_is_left_out_with_a_warning(tmp_path, caplog):
    pin, wheel = release("1.0", tmp_path)
    shared = Cache(tmp_path / "shared")
    damage(path := shared.publish(pin, wheel).library_path)
    cache = Cache(tmp_path / "cache", system=(shared.root,))
    with caplog.at_level(logging.WARNING, "pjrt_hub.store"), cache.lease(pin) as entry:
        assert entry is None
    assert f"left out {shared.root}" in caplog.text
    assert path.exists()


@pytest.fixture
def hub(cache, monkeypatch, capsys) -> Callable[..., str]:
    """Run `pjrt-hub cache` with this cache, and return its output."""
    monkeypatch.setenv("PJRT_HUB_CACHE", str(cache.root))

    def call(*words: str, status: int = 0) -> str:
        assert run(["cache", *words]) == status
        return capsys.readouterr().out

    return call


def test_list_verify_and_clear_of_the_command_line(cache, pins, hub):
    _, *rows, total = hub("list").splitlines()
    days = {
        e.artifact.version: time.localtime(cache.layout.last_use(e.root)) for e in cache.entries()
    }
    shown = {
        pin.version: ["toy", "Toy.Plugin", pin.version, "106", "kB", time.strftime("%Y-%m-%d", day)]
        for pin in pins
        for day in [days[pin.version]]
    }
    assert {row.split()[2]: row.split() for row in rows} == shown
    assert total == f"{size_text(cache.nbytes())} in {cache.root}"
    paths = {pin.version: str(cache.layout.entry_root(pin) / pin.library) for pin in pins}
    wide = [row.split() for row in hub("list", "--wide").splitlines()[1:-1]]
    assert {row[2]: row for row in wide} == {each: [*shown[each], paths[each]] for each in paths}
    listed = json.loads(hub("list", "--json"))["entries"]
    assert {(each["package"], each["nbytes"]) for each in listed} == {("Toy.Plugin", 106_000)}
    assert {each["version"]: each["path"] for each in listed} == paths
    assert set(hub("verify").splitlines()) == {
        f"{cache.layout.entry_root(pin)}: ok" for pin in pins
    }
    assert {each["ok"] for each in json.loads(hub("verify", "--json"))} == {True}
    nbytes = cache.nbytes()
    assert hub("clear") == f"removed {size_text(nbytes)} from {cache.root}\n"


def test_prune_of_the_command_line(cache, pins, hub):
    out = hub("prune", "--older-than", "15d", "--dry-run")
    assert out.count("would remove") == 3
    assert str(cache.layout.entry_root(pins[0])) in out
    told = json.loads(hub("prune", "--max-size", "0.15MB", "--json"))
    assert told["removed"] == [str(cache.layout.entry_root(pin)) for pin in pins[:2]]
    assert told["in_use"] == []
    assert versions(cache) == ["3.0"]
    hub("prune", "--max-size", "much", status=2)
    hub("prune", "--older-than", "long", status=2)
    assert hub("dir") == f"{cache.root}\n"


def test_repair_of_the_command_line(cache, pins, hub, monkeypatch, tmp_path):
    """It fetches the same release again, even if newer ones exist and its row is also damaged."""
    monkeypatch.setenv("PJRT_HUB_MIRRORS", str(tmp_path))
    monkeypatch.setattr(process, "registry", lambda there: Catalog([], pins))
    root = cache.layout.entry_root(pins[0])
    damage(root / pins[0].library)
    told = hub("verify", status=4)
    assert f"{root}: {pins[0].library} has sha256" in told
    assert f"{cache.layout.entry_root(pins[1])}: ok\n" in told
    damage(root / ROW_NAME)
    audits = json.loads(hub("verify", "--json", status=4))
    assert sorted(each["ok"] for each in audits) == [False, True, True]
    assert "fetched Toy.Plugin 1.0 again" in hub("verify", "--repair")
    assert (root / pins[0].library).read_bytes() == MEMBERS[wheels.LIBRARY]
    hub("verify")
    assert len(list((cache.root / "v1/quarantine").iterdir())) == 1


def test_repair_of_what_nobody_pins_any_more(cache, pins, hub, monkeypatch):
    monkeypatch.setattr(process, "registry", lambda there: Catalog([], pins[1:]))
    damage(cache.layout.entry_root(pins[0]) / pins[0].library)
    told = hub("verify", "--repair", status=4)
    assert "not fetched again: the registry pins it no more" in told
    assert versions(cache) == ["2.0", "3.0"]
    hub("verify")


def test_repair_goes_on_after_what_it_cannot_move(cache, pins, hub, monkeypatch, tmp_path):
    monkeypatch.setenv("PJRT_HUB_MIRRORS", str(tmp_path))
    monkeypatch.setattr(process, "registry", lambda there: Catalog([], pins))
    stuck, moved = sorted(map(cache.layout.entry_root, pins))[:2]
    for root in (stuck, moved):
        damage(root / wheels.LIBRARY)
    rename = os.rename

    def refuse(source: Path, target: Path) -> None:
        if Path(source) == stuck:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    told = hub("verify", "--repair", status=4)
    assert f"  the cache entry {stuck} is corrupted" in told
    assert "cannot be removed: Permission denied; remove that directory" in told
    assert (moved / wheels.LIBRARY).read_bytes() == MEMBERS[wheels.LIBRARY]
    audits = {
        each["path"]: each for each in json.loads(hub("verify", "--repair", "--json", status=4))
    }
    assert "Permission denied" in audits[str(stuck)]["repair"]
    assert audits[str(moved)] == {"path": str(moved), "ok": True, "reason": ""}


def damage(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"x" * path.stat().st_size)


AREAS = ["", "aa", "partial", "unpacking", "trash", "quarantine", "memo", "probes", "compiled"]
MACHINE, _, REST = layout.this_process().partition("-")
NAMES = [b"README", b"a.b", b"a.left.b", b".hidden", b"a.b.c.d", b"\xff\n. ."]
NAMES += [f"x.{MACHINE}{'-9' * 20}-{REST}.y".encode(), f"x.{MACHINE}-{'9' * 60}-1.y".encode()]


def stray(kind: str, path: bytes) -> None:
    if kind == "file":
        open(path, "wb").close()
    elif kind == "folder":
        os.makedirs(path + b"/inside")
    elif kind == "link":
        os.symlink(b"/nowhere", path)
    else:
        os.mkfifo(path)


@pytest.mark.parametrize("kind", ["file", "folder", "link", "pipe"])
@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
def test_what_somebody_put_there_breaks_nothing(cache, pins, tmp_path, kind, old):
    for area in (*AREAS, "locks", pins[0].sha256[:2], f"{pins[0].sha256[:2]}/{pins[0].sha256}"):
        folder = cache.root / "v1" / area
        folder.mkdir(exist_ok=True)
        for name in NAMES:
            path = os.fsencode(folder) + b"/" + name
            stray(kind, path)
            if old:
                os.utime(path, (0, 0), follow_symlinks=False)
    assert versions(cache) == ["1.0", "2.0", "3.0"]
    assert cache.lookup(pins[2]) is not None
    assert all(audit.verdict.ok for audit in cache.verify())
    assert cache.prune(dry_run=True).kept == ()
    cache.prune(max_nbytes=0, keep={pins[2].sha256})
    assert versions(cache) == ["3.0"]
    pin, path = release("4.0", tmp_path)
    cache.publish(pin, path)
    with cache.workspace(pin) as private:
        assert list(private.iterdir()) == []
    assert cache.nbytes() > 0
    removal = cache.clear()
    assert {path.name for path in removal.removed} >= {pin.sha256, pins[2].sha256}
    assert versions(cache) == []


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_names_of_odd_bytes_are_shown(cache, pins, form):
    path = os.fsencode(cache.root / "v1" / "memo") + b"/\xff"
    stray("file", path)
    os.utime(path, (0, 0))
    env = {**os.environ, "PJRT_HUB_CACHE": str(cache.root), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "pjrt_hub.cli", "cache", "prune", "--dry-run", *form]
    done = subprocess.run(command, env=env, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert b"ff" in done.stdout
