"""`install` puts a plugin, with what it requires, where every reader of manifests finds it."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
import wheels
from toys import DEPENDENCY, LIBRARY, TOOL

import pjrt_hub
from pjrt_hub.base import digest
from pjrt_hub.cli.__main__ import run
from pjrt_hub.door import install as install_module
from pjrt_hub.door.process import world
from pjrt_hub.errors import (
    CacheError,
    ManifestError,
    OfflineError,
    PluginNotFoundError,
    StoreError,
)
from pjrt_hub.finding.discovery import manifests
from pjrt_hub.finding.discovery.source import Described
from pjrt_hub.finding.store.cache.cache import Cache


@pytest.fixture
def home(tmp_path, alone, toys):
    """A user with an environment that is active."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "CONDA_PREFIX"):
        alone.delenv(name, raising=False)
    alone.setenv("HOME", str(tmp_path / "home"))
    alone.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    return tmp_path / "home"


def library_of(manifest: Path) -> Path:
    [library] = manifests.read_libraries(manifest)
    return library


def held(store: Path) -> set[str]:
    return {entry.artifact.package for entry in Cache(store).entries()}


def test_it_goes_into_the_environment_that_is_active(home, tmp_path):
    path = pjrt_hub.install("toy")
    assert path == tmp_path / "venv/etc/pjrt/plugins/toy.toml"
    library = library_of(path)
    assert library.is_relative_to(tmp_path / "venv/share/pjrt-hub")
    for name in (LIBRARY, DEPENDENCY, TOOL):
        file = library.parents[2] / name
        assert file.resolve().is_relative_to(tmp_path / "venv/share/pjrt-hub")
    [found] = [each for each in manifests.find(world()) if isinstance(each, Described)]
    assert (found.manifest.name, found.source) == ("toy", "manifests")
    listed = next(each for each in pjrt_hub.plugins("toy") if each.chosen)
    assert (listed.name, listed.source) == ("toy", "manifests")
    assert pjrt_hub.fetch("toy", offline=True).resolve() == library.resolve()


def test_the_level_is_the_users_where_no_environment_is_active(home, alone):
    alone.delenv("VIRTUAL_ENV")
    assert pjrt_hub.install("toy") == home / ".config/pjrt/plugins/toy.toml"
    assert held(home / ".local/share/pjrt-hub") == {"toy-plugin", "toy-dep", "toy-tool"}
    with pytest.raises(StoreError, match="no level 'env' here, only user, system"):
        pjrt_hub.install("toy", level="env")


def test_a_relative_environment_has_no_store_and_is_no_error(home, alone):
    alone.setenv("VIRTUAL_ENV", "venv")
    assert home / ".local/share/pjrt-hub" in pjrt_hub.cache().system
    assert all(path.is_absolute() for path in pjrt_hub.cache().system)
    with pytest.raises(StoreError, match="no level 'env' here, only user, system"):
        pjrt_hub.install("toy", level="env")


@pytest.mark.parametrize("name", ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"])
def test_a_user_without_absolute_folders_gets_no_level_unawares(home, alone, name):
    alone.delenv("VIRTUAL_ENV")
    alone.setenv(name, "" if name == "HOME" else "relative")
    with pytest.raises(StoreError, match="no level 'env' or 'user' here, only system"):
        pjrt_hub.install("toy")


@pytest.mark.parametrize("level", ["env", "user"])
def test_folders_may_be_links(home, tmp_path, level):
    for folder in (home, tmp_path / "venv"):
        (tmp_path / f"real {folder.name}").mkdir()
        folder.symlink_to(f"real {folder.name}")
    for _ in range(2):
        library = library_of(pjrt_hub.install("toy", level=level))
        assert library.read_bytes()
    pjrt_hub.uninstall("toy")
    assert not library.exists()


@pytest.mark.parametrize("odd", ["a [b]", "back\\slash", "q?"])
def test_a_folder_that_no_manifest_can_name(home, alone, tmp_path, odd):
    alone.setenv("XDG_DATA_HOME", str(tmp_path / odd))
    with pytest.raises(StoreError, match=r"no reader would take .*library\[0\]\.path"):
        pjrt_hub.install("toy", level="user")
    assert held(tmp_path / odd / "pjrt-hub") == set()
    assert not (home / ".config/pjrt/plugins/toy.toml").exists()
    alone.setenv("XDG_DATA_HOME", str(tmp_path / "x/../plain"))
    assert library_of(pjrt_hub.install("toy", level="user")).is_relative_to(tmp_path / "plain")


@pytest.fixture
def free_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_others_can_read_what_is_installed_and_not_write_it(home, free_umask):
    path = pjrt_hub.install("toy", level="user")
    library = library_of(path).resolve()
    for each in (path, library, *path.parents, *library.parents):
        if each.is_relative_to(home):
            mode = each.stat().st_mode & 0o777
            assert mode & 0o044 == 0o044, each
            assert not mode & 0o022, each
    [found] = [each for each in manifests.find(world()) if isinstance(each, Described)]
    assert found.manifest.name == "toy"


def test_a_folder_that_readers_refuse_gets_nothing(home):
    folder = home / ".config/pjrt/plugins"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(ManifestError, match=f"{folder}: everybody may write to it") as caught:
        pjrt_hub.install("toy", level="user")
    assert "chmod go-w" in caught.value.hint
    folder.chmod(0o755)
    assert pjrt_hub.install("toy", level="user").parent == folder


def test_a_folder_that_cannot_be_made_is_named(home):
    (home / ".config").mkdir(parents=True)
    (home / ".config/pjrt").touch()
    with pytest.raises(CacheError, match=r"cannot make .*/\.config/pjrt/plugins") as caught:
        pjrt_hub.install("toy", level="user")
    assert "--level" in caught.value.hint
    assert "PJRT_HUB_CACHE" not in caught.value.hint


def test_a_malformed_manifest_costs_no_library(home):
    path = pjrt_hub.install("toy", level="user")
    library, text = library_of(path), path.read_text()
    path.with_stem("other").write_text("x = oops\n")
    pjrt_hub.install("toy", level="user")
    path.write_text(f"{text}x = oops\n")
    with pytest.raises(ManifestError, match=r"toy\.toml: line 11"):
        pjrt_hub.uninstall("toy")
    path.with_stem("other").unlink()
    path.write_text(text)
    assert library.read_bytes()
    assert pjrt_hub.uninstall("toy") == path
    assert not library.exists()


def test_two_at_once_wait_for_each_other(home, monkeypatch):
    """What one process has copied, and no manifest names yet, stays when another one removes."""
    pjrt_hub.install("toy", level="user")
    copied, removed = Event(), []

    def parse(_text, _path):
        copied.set()
        time.sleep(1)
        removed.append(not library.exists())

    library = library_of(home / ".config/pjrt/plugins/toy.toml")
    monkeypatch.setattr(install_module, "parse_standalone", parse)
    with ThreadPoolExecutor(1) as other:
        first = other.submit(pjrt_hub.install, "toy", level="user")
        assert copied.wait(60)
        assert pjrt_hub.uninstall("toy", level="user")
        first.result()
    assert removed == [False]


def test_what_is_not_here_is_installed_while_there_is_a_network(home):
    with pytest.raises(OfflineError) as caught:
        pjrt_hub.install("toy-plugin:toy", offline=True)
    assert "`pjrt-hub install toy-plugin:toy`" in caught.value.hint
    with pytest.raises(PluginNotFoundError, match="no plugin is named ''"):
        pjrt_hub.install("")


def test_what_clears_and_prunes_the_cache_leaves_it(home):
    library = library_of(pjrt_hub.install("toy", level="user"))
    pjrt_hub.cache().clear()
    pjrt_hub.cache().prune(max_nbytes=0)
    assert held(pjrt_hub.cache().root) == set()
    assert library.read_bytes()
    assert (library.parents[2] / DEPENDENCY).read_bytes()


def test_verify_finds_what_changed_in_it_and_repairs_it(home, capsys):
    library = library_of(pjrt_hub.install("toy", level="user")).resolve()
    whole = library.read_bytes()
    pjrt_hub.cache().clear()
    library.chmod(0o755)
    library.write_bytes(whole[:-1] + b"x")
    assert run(["cache", "verify"]) == 4
    assert f"{library.parents[2]}: {LIBRARY}" in capsys.readouterr().out
    assert run(["cache", "verify", "--repair"]) == 0
    assert library.read_bytes() == whole
    assert run(["cache", "verify"]) == 0


def test_a_newer_build_takes_the_place_of_the_older_one(home, toys, pin):
    old = library_of(pjrt_hub.install("toy", level="user"))
    content = {LIBRARY: old.read_bytes(), "toy_plugin-2.0.dist-info/METADATA": b"Name: y\n"}
    wheel = toys.wheels / "toy_plugin-2.0.whl"
    wheel.write_bytes(wheels.build(content))
    newer = toys.row._replace(version="2.0", file_name=wheel.name)
    pin(newer._replace(sha256=digest.of_file(wheel), size=wheel.stat().st_size))
    new = library_of(pjrt_hub.install("toy", level="user"))
    assert new != old
    assert not old.exists()
    versions = {each.artifact.version for each in Cache(home / ".local/share/pjrt-hub").entries()}
    assert versions == {"2.0", "2.5", "1.0"}  # The last two are what both require.


def test_uninstall_removes_the_plugin_and_what_it_alone_required(home, tmp_path):
    path = pjrt_hub.install("toy")
    assert pjrt_hub.uninstall("toy") == path
    assert not path.exists()
    assert held(tmp_path / "venv/share/pjrt-hub") == set()
    with pytest.raises(PluginNotFoundError, match=r"no toy\.toml is in "):
        pjrt_hub.uninstall("toy")


def test_uninstall_takes_the_names_that_install_takes(home):
    path = pjrt_hub.install("toy", level="user")
    path.write_text(
        path.read_text().replace('name = "toy"', 'name = "toy"\naliases = ["plaything"]')
    )
    assert pjrt_hub.uninstall("plaything") == path


def test_uninstall_leaves_what_others_wrote(home):
    path = pjrt_hub.install("toy", level="user")
    text = path.read_text().replace(str(home / ".local/share"), "/opt")
    path.write_text(text)
    with pytest.raises(StoreError, match="did not write it"):
        pjrt_hub.uninstall("toy")
    assert path.read_text() == text


def test_search_and_info_say_what_is_known_of_it(home, capsys):
    path = pjrt_hub.install("toy", level="user")
    capsys.readouterr()
    assert run(["search", "TOY", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["installed"] == [str(path)]
    assert found["requires"] == ["toy-dep 2.5", "toy-tool 1.0"]
    assert run(["search", "nothing"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["info", "toy-plugin"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "requires     toy-dep 2.5, toy-tool 1.0" in lines
    assert f"installed    {path}" in lines
    assert run(["info", "to"]) == 3
