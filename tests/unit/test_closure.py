"""A plugin's requirements are fetched with it, laid out around it, and removed with it."""

import errno
import json
import logging
import os
import re
import shutil
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import finished
import pytest
from toys import DEPENDENCY, LIBRARY, TOOL
from trees import MANIFEST, Site

import pjrt_hub
from pjrt_hub.base.listing import size_text
from pjrt_hub.door import bundle, lock, plugin, repair
from pjrt_hub.door.client import choose
from pjrt_hub.errors import ArchiveError, CacheError, OfflineError, StoreError
from pjrt_hub.finding.store.cache import closure
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import (
    Archive,
    Artifact,
    Catalog,
    Requirement,
    shipped_registry,
)
from pjrt_hub.finding.store.pins import Pins, read

DAY = 24 * 3600


@pytest.fixture
def here(tmp_path, toys) -> Cache:
    """The cache that this test and its child processes use."""
    return Cache(tmp_path / "cache")


@pytest.fixture
def site(site, monkeypatch) -> Site:
    """A folder that this process searches for packages."""
    monkeypatch.syspath_prepend(site.folder)
    return site


def held(cache: Cache) -> set[str]:
    return {entry.artifact.package for entry in cache.entries()}


def at(library: Path, path: str) -> Path:
    """The path of a required file in the layout around a library."""
    return library.parents[2] / path


def answer(library: Path) -> str:
    """The answer of a library that is loaded in a child process, or why it cannot be loaded."""
    call = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).answer())"
    done = finished.python("-c", call, library, seconds=60)
    return done.stdout.strip() or done.stderr


ALL = {"toy-plugin", "toy-dep", "toy-tool"}


def test_a_fetch_brings_what_a_plugin_requires(toys, here, capsys):
    found = pjrt_hub.fetch("toy")
    assert held(here) == ALL
    assert answer(found) == "42"
    # The required program is where the plugin looks for it, and it can be run.
    tool = at(found, TOOL)
    assert subprocess.check_output([tool], text=True) == "here\n"
    assert os.stat(tool).st_mode & 0o777 == 0o555
    assert os.stat(found).st_mode & 0o777 == 0o444
    told = capsys.readouterr().err
    assert re.search(r"toy-plugin 1\.0 and 2 archives that it requires \([\d.]+ kB\)", told)
    shutil.rmtree(toys.wheels)
    assert pjrt_hub.fetch("toy", offline=True) == found
    assert capsys.readouterr().err == ""


def test_the_plugin_alone(toys, here, capsys):
    alone = pjrt_hub.fetch("toy", plugin_only=True)
    assert held(here) == {"toy-plugin"}
    assert alone == here.layout.entry_root(toys.row) / LIBRARY
    assert "libdep.so" in answer(alone)
    assert plugin.library_path(choose("toy")) == alone  # a choice uses the plugin alone
    assert held(here) == {"toy-plugin"}
    capsys.readouterr()
    # Without the flag the same command fetches what is missing, and names only that.
    assert answer(pjrt_hub.fetch("toy")) == "42"
    assert held(here) == ALL
    assert "fetching 2 archives that toy requires" in capsys.readouterr().err
    assert pjrt_hub.fetch("toy", plugin_only=True) == alone
    pjrt_hub.cache().clear()
    assert answer(plugin.library_path(choose("toy"))) == "42"  # a choice fetches everything
    assert held(here) == ALL


def test_for_absent_hardware_only_what_compiling_needs(toys, here, pin):
    names = {"plugin": "cuda13", "platform": "cuda"}
    requires = tuple(each._replace(**names) for each in toys.row.requires)
    pin(toys.row._replace(**names, package="jax-cuda13-pjrt", requires=requires))
    choice = choose("cuda13")
    if choice.candidate.may_run:
        pytest.skip("a GPU is here")
    found = plugin.library_path(choice)
    assert held(here) == {"jax-cuda13-pjrt", "toy-tool"}
    assert (at(found, TOOL).exists(), at(found, DEPENDENCY).exists()) == (True, False)
    assert answer(pjrt_hub.fetch("cuda13")) == "42"


def test_offline(toys):
    with pytest.raises(OfflineError, match="toy-dep"):
        pjrt_hub.fetch("toy", offline=True)
    pjrt_hub.fetch("toy", plugin_only=True)
    with pytest.raises(OfflineError, match="toy-dep") as caught:
        pjrt_hub.fetch("toy", offline=True)
    assert "pjrt-hub fetch toy" in caught.value.hint
    assert plugin.library_path(choose("toy"), offline=True).exists()


def test_what_cannot_be_fetched_is_named_and_the_plugin_stays_away(toys, here):
    (toys.wheels / toys.tool.file_name).write_bytes(b"other")
    with pytest.raises(StoreError, match=r"no source gave toy_tool-1\.0"):
        pjrt_hub.fetch("toy")
    # A plugin that is in the cache was therefore fetched completely.
    assert "toy-plugin" not in held(here)


@pytest.mark.parametrize(
    ("version", "files", "lost", "serves"),
    [
        ("2.9", ["dep/lib/libdep.so", "dep/lib/libmore.so.2"], [], True),
        ("2.0", ["dep/lib/libdep.so.9"], [], True),
        ("3.0", ["dep/lib/libdep.so"], [], False),
        ("1.9", ["dep/lib/libdep.so"], [], False),
        ("2.9", [], [], False),
        ("2.9", ["dep/include/dep.h"], [], False),
        ("2.9", [], ["dep/lib/libdep.so"], False),
    ],
)
def test_what_is_installed_serves(toys, here, site, version, files, lost, serves):
    site.install("toy-dep", version, files=dict.fromkeys([*files, *lost], b"installed"))
    for path in lost:
        (site.folder / path).unlink()
    found = pjrt_hub.fetch("toy")
    assert held(here) == (ALL - {"toy-dep"} if serves else ALL)
    if serves:
        laid_out = [at(found, path).resolve() for path in files]
        assert laid_out == [site.folder / path for path in files]
    else:
        assert at(found, DEPENDENCY).resolve() == here.layout.entry_root(toys.library) / DEPENDENCY
        assert answer(found) == "42"


def test_another_installed_version_is_another_folder(here, site):
    fetched = pjrt_hub.fetch("toy")
    site.install("toy-dep", "2.9", files={DEPENDENCY: b"installed"})
    installed = pjrt_hub.fetch("toy")
    assert installed != fetched
    assert at(installed, DEPENDENCY).resolve() == site.folder / DEPENDENCY
    assert answer(fetched) == "42"
    (site.folder / DEPENDENCY).unlink()
    here.prune()
    assert not installed.exists()
    assert answer(fetched) == "42"


@pytest.fixture
def installed(toys, site) -> Path:
    """The plugin, installed without its requirements."""
    with zipfile.ZipFile(toys.wheels / toys.row.file_name) as wheel:
        library = wheel.read(LIBRARY)
    manifest = MANIFEST.format(name="toy", platform="toy", priority=1, more="")
    files = {LIBRARY: library, "toy/pjrt_plugin.toml": manifest.replace("*.so", "lib/toy.so")}
    site.install("toy-plugin", "1.0", {"pjrt_plugins:toy": "toy"}, files)
    return site.folder / LIBRARY


def test_an_installed_plugin_is_completed(toys, here, installed, capsys):
    assert plugin.library_path(choose("toy")) == installed
    assert pjrt_hub.fetch("toy", plugin_only=True) == installed
    assert "libdep.so" in answer(installed)
    assert held(here) == set()
    found = pjrt_hub.fetch("toy")
    assert "fetching 2 archives that toy requires" in capsys.readouterr().err
    assert held(here) == ALL - {"toy-plugin"}
    assert found.resolve() == installed
    assert answer(found) == "42"
    # From now on, the installed plugin is used with its requirements.
    shutil.rmtree(toys.wheels)
    with plugin.library(choose("toy")) as (path, entry):
        assert (path, entry) == (found, None)
        here.clear()
        assert held(here) == ALL - {"toy-plugin"}
    here.clear()
    assert plugin.library_path(choose("toy")) == installed


@pytest.mark.parametrize("case", ["whole", "another release"])
def test_what_an_installer_put_there_stays_as_it_is(toys, here, installed, site, pin, case):
    if case == "whole":
        site.install("toy-dep", "2.9", files={DEPENDENCY: b"installed"})
        site.install("toy-tool", "1.5", files={TOOL: b"installed"})
    else:
        pin(toys.row._replace(version="2.0"))
    assert pjrt_hub.fetch("toy") == installed
    assert held(here) == set()


@pytest.mark.parametrize("damage", ["other", "missing", "empty"])
def test_a_damaged_folder_is_made_again(damage, toys):
    found = pjrt_hub.fetch("toy")
    link = at(found, DEPENDENCY)
    link.unlink()
    if damage == "other":
        link.symlink_to("/etc/passwd")
    elif damage == "empty":
        shutil.rmtree(found.parents[2])
    assert pjrt_hub.fetch("toy") == found
    assert answer(found) == "42"


def test_a_folder_that_others_can_write_to_is_refused(toys):
    at(pjrt_hub.fetch("toy"), "dep/lib").chmod(0o777)
    with pytest.raises(CacheError, match="dep/lib"):
        pjrt_hub.fetch("toy")


def test_a_cache_that_is_only_read_serves_the_plugin(toys, here, monkeypatch, caplog):
    def refuse(*given: object) -> Path:
        raise OSError(errno.EROFS, "Read-only file system")

    found = pjrt_hub.fetch("toy")
    monkeypatch.setattr(closure, "lay_out", refuse)  # root could write everywhere
    assert pjrt_hub.fetch("toy") == found
    shutil.rmtree(here.root / "v1/closures")
    assert pjrt_hub.fetch("toy") == here.layout.entry_root(toys.row) / LIBRARY
    (told,) = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert told.startswith("toy-plugin is used without what it requires")


def test_a_required_archive_goes_with_the_last_plugin_that_requires_it(toys, here):
    pjrt_hub.fetch("toy")
    newer = toys.row._replace(version="2.0", sha256="b" * 64, requires=(toys.library,))
    _pretend(here, toys.row, newer)
    _use(here, 30, toys.row)
    gone = {path.name for path in here.prune(older_than_seconds=20 * DAY).removed}
    assert gone & {each.sha256 for each in toys.row.archives} == {toys.row.sha256, toys.tool.sha256}
    left = {entry.artifact.sha256 for entry in here.entries()}
    assert left == {newer.sha256, toys.library.sha256}
    _use(here, 30, newer)
    here.prune(older_than_seconds=20 * DAY)
    assert here.entries() == ()
    assert list((here.root / "v1/closures").iterdir()) == []


def test_what_is_required_stays_though_it_was_not_used_for_long(toys, here):
    pjrt_hub.fetch("toy")
    _use(here, 100, *toys.row.requires)
    here.prune(older_than_seconds=50 * DAY)
    assert held(here) == ALL
    here.prune(max_nbytes=0)
    assert held(here) == set()


def test_what_no_plugin_requires_waits_a_week_for_one(toys, here):
    pjrt_hub.fetch("toy")
    shutil.rmtree(here.layout.entry_root(toys.row))
    here.prune()
    assert held(here) == ALL - {"toy-plugin"}
    _use(here, 8, *toys.row.requires)
    here.prune()
    assert held(here) == set()


def _pretend(cache: Cache, row: Artifact, other: Artifact) -> None:
    """Put a cache entry of another release beside an entry."""
    root, copy = cache.layout.entry_root(row), cache.layout.entry_root(other)
    shutil.copytree(root, copy)
    path = copy / "pjrt_hub_entry.json"
    path.chmod(0o644)
    path.write_text(json.dumps(other.as_row()))


def _use(cache: Cache, days_ago: float, *archives: Archive) -> None:
    then = time.time() - days_ago * DAY
    for each in archives:
        path = cache.root / f"v1/locks/{each.sha256}.use"
        path.touch()
        os.utime(path, (then, then))


def test_verify_and_repair(toys, here):
    found = pjrt_hub.fetch("toy")
    damaged = here.layout.entry_root(toys.library) / DEPENDENCY
    damaged.chmod(0o644)
    damaged.write_bytes(b"damaged")
    (audit,) = [each for each in here.verify() if not each.verdict.ok]
    assert audit.entry.artifact == toys.library
    assert "fetched toy-dep 2.5 again" in repair.repair(audit)
    assert answer(found) == "42"
    assert all(each.verdict.ok for each in here.verify())


def test_a_lock_file_pins_them(toys, tmp_path, monkeypatch):
    monkeypatch.delenv("PJRT_HUB_LOCK")
    monkeypatch.setattr(lock, "registry", lambda there: Catalog([], [toys.row]))
    path = tmp_path / "pylock.pjrt.toml"
    (told,) = lock.lock("toy", output=path).changes
    assert "with 2 archives that it requires" in told
    assert lock.lock(output=path, check=True).changes == ()
    assert (read(path).rows, read(path).left_out) == ((toys.row,), ("toy",))
    newer = toys.row._replace(requires=(toys.library, toys.tool._replace(sha256="c" * 64)))
    monkeypatch.setattr(lock, "registry", lambda there: Catalog([], [newer]))
    assert lock.lock(output=path, check=True).changes == ()
    assert len(lock.lock(output=path, upgrade=True, check=True).changes) == 1


def test_a_lock_file_that_was_found_narrows_what_is_required(toys):
    """It allows only the requirements that it lists and that the registry also has."""

    def among(*requires: Requirement) -> list[Artifact]:
        locked = toys.row._replace(requires=requires)
        return Pins(Path("pylock.pjrt.toml"), (), (), (locked,)).among([toys.row])

    assert among(*toys.row.requires) == [toys.row]
    assert among(toys.tool) == [toys.row._replace(requires=(toys.tool,))]
    assert among() == [toys.row._replace(requires=())]
    foreign = toys.tool._replace(sha256="c" * 64)
    assert among(foreign) == among(toys.library, foreign) == []
    # For a known archive the registry's row counts, not the lock file's.
    generous = toys.tool._replace(members=(), urls=("https://elsewhere/toy.whl",))
    assert among(generous) == among(toys.tool)


@pytest.fixture
def exported(toys, tmp_path) -> Callable[..., Path]:
    """Export a bundle with these options."""

    def export(**options: bool) -> Path:
        path = tmp_path / "toy.bundle"
        told = bundle.export_bundle(path, "toy", **options)
        archives = toys.row.archives[:1] if options.get("plugin_only") else toys.row.archives
        assert [line.split(" ")[0] for line in told] == [each.package for each in archives]
        assert all(line.endswith(", MIT") for line in told)
        return path

    return export


@pytest.mark.parametrize("plugin_only", [False, True])
def test_a_bundle_carries_them_to_an_empty_root(
    exported, toys, tmp_path, monkeypatch, capsys, plugin_only
):
    path, elsewhere = exported(plugin_only=plugin_only), tmp_path / "elsewhere"
    assert ("3 archives" in capsys.readouterr().err) == (not plugin_only)
    monkeypatch.setenv("PJRT_HUB_CACHE", str(elsewhere))
    monkeypatch.setenv("PJRT_HUB_OFFLINE", "1")
    bundle.import_bundle(path)
    assert held(Cache(elsewhere)) == ({"toy-plugin"} if plugin_only else ALL)
    shutil.rmtree(toys.wheels)
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    found = pjrt_hub.fetch("toy", plugin_only=plugin_only)
    assert found.is_relative_to(elsewhere)
    assert ("libdep.so" in answer(found)) == plugin_only
    assert (answer(found) == "42") == (not plugin_only)


def test_a_bundle_with_a_requirement_that_is_not_pinned_here_is_refused(exported, toys, here, pin):
    path = exported()
    pin(toys.row._replace(requires=(toys.library,)))
    with pytest.raises(ArchiveError, match=r"toy_tool-1\.0") as caught:
        bundle.import_bundle(path)
    assert "toy-dep" not in caught.value.message
    assert held(here) == set()


@pytest.mark.parametrize(
    "terms", ["Google Cloud Platform Terms of Service", "All Rights Reserved."]
)
def test_what_may_not_be_passed_on_is_refused(toys, tmp_path, pin, terms, capsys):
    path = tmp_path / "toy.bundle"
    pin(toys.row._replace(requires=(toys.library._replace(license=terms),)))
    with pytest.raises(StoreError, match=r"does not let you pass on: toy-dep 2\.5") as caught:
        bundle.export_bundle(path, "toy")
    assert terms in caught.value.message
    assert "--allow-restricted" in caught.value.hint
    assert not path.exists()
    assert "toy-dep" not in " ".join(bundle.export_bundle(path, "toy", plugin_only=True))
    told = bundle.export_bundle(path, "toy", allow_restricted=True)
    assert told[1] == f"toy-dep 2.5, for toy, {size_text(toys.library.size)}, {terms}"


def test_the_licence_of_libtpu_is_known_not_to_allow_it():
    rows = [row for row in Catalog([shipped_registry()]).rows() if row.plugin == "tpu"]
    assert rows
    with pytest.raises(StoreError, match="libtpu"):
        bundle._require_licenses(rows)
    others = [
        row for row in Catalog([shipped_registry()]).rows() if row.plugin in ("cpu", "cuda13")
    ]
    bundle._require_licenses([each for row in others for each in row.archives])


def test_the_size_is_refused_before_the_first_byte(toys, here, pin):
    huge = toys.tool._replace(size=1 << 60)
    pin(toys.row._replace(requires=(toys.library, huge)))
    with pytest.raises(CacheError, match="space"):
        pjrt_hub.fetch("toy")
    assert held(here) == set()


def test_the_registry_requires_what_the_extra_installs():
    """CUDA's rows require the libraries that the manifest preloads, and the assembler."""
    rows = [row for row in Catalog([shipped_registry()]).rows() if row.requires]
    assert {row.plugin for row in rows} >= {"cuda12", "cuda13"}
    for row in rows:
        files = {one.path.rpartition("/")[2]: one for each in row.requires for one in each.members}
        assert files["ptxas"].executable
        assert {"libdevice.10.bc", "libcudnn.so.9", "libnccl.so.2"} <= files.keys()
        assert any(each.compiles for each in row.requires)
        assert len({each.package for each in row.requires}) == len(row.requires)
