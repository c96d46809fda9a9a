"""`install` puts a plugin, with what it requires, where every reader of manifests finds it."""

import json
from pathlib import Path

import pytest
import wheels
from toys import DEPENDENCY, LIBRARY, TOOL

import pjrt_hub
from pjrt_hub.base import digest
from pjrt_hub.cli.__main__ import run
from pjrt_hub.door.process import world
from pjrt_hub.errors import PluginNotFoundError, StoreError
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
    assert run(["info", "to"]) == 2
