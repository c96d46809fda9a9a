"""Packages of registry rows are found without an import, and they own their plugins."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import wheels
from trees import SENTINEL, Site

import pjrt_hub
from pjrt_hub.base.host import HostTag
from pjrt_hub.door import privilege, process
from pjrt_hub.errors import ManifestError, PluginNotFoundError
from pjrt_hub.finding.store.catalog import (
    Artifact,
    Catalog,
    read_rows,
    shipped_registry,
    write_rows,
)

MEMBERS = wheels.contents(5000)
WHEEL = wheels.build(MEMBERS)
ROW = wheels.pin(WHEEL, MEMBERS, host=HostTag.current())
CPU = ROW._replace(plugin="cpu", platform="cpu")
SHIPPED = Catalog([shipped_registry()]).rows()
OTHERS = tuple(row for row in SHIPPED if row.plugin != "cpu")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A folder on `sys.path`, with a mirror of the toy's wheel and an empty cache."""
    (tmp_path / ROW.file_name).write_bytes(WHEEL)
    monkeypatch.setenv("PJRT_HUB_MIRRORS", tmp_path.as_uri())
    monkeypatch.setenv("PJRT_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PJRT_HUB_LOCK", "0")
    made = Site(tmp_path / "site")
    monkeypatch.setattr(sys, "path", [*sys.path, str(made.folder)])
    process.warn.cache_clear()
    return made


def install(site: Site, name: str, text: str, *, code: Site | None = None) -> Path:
    """Install a package of rows; `code` is the folder of its module if its name differs."""
    module, code = name.replace("-", "_"), code or site
    site.install(name, "1.0", {"pjrt_registry:rows": module})
    code.write(f"{module}/__init__.py", SENTINEL)
    code.write(f"{module}/pjrt_plugin.toml", "of a plugin of the same package")
    return code.write(f"{module}/rows.toml", text)


def rows() -> tuple[Artifact, ...]:
    return process.registry(process.installed()).rows()


def test_rows_of_a_package_are_listed_and_fetched_until_it_is_removed(site: Site) -> None:
    install(site, "acme-registry", write_rows([ROW]))
    [found] = [each for each in pjrt_hub.plugins("toy") if "acme" in each.origin]
    assert (found.chosen, found.origin) == (True, "acme-registry 1.0, Toy.Plugin 1.0")
    assert pjrt_hub.fetch("toy").read_bytes() == MEMBERS[wheels.LIBRARY]
    shutil.rmtree(site.folder)
    with pytest.raises(PluginNotFoundError):
        pjrt_hub.fetch("toy", offline=True)


def test_a_package_owns_its_plugins_wherever_its_module_lies(site, tmp_path, monkeypatch) -> None:
    code = Site(tmp_path / "code")
    monkeypatch.setattr(sys, "path", [*sys.path, str(code.folder)])
    install(site, "acme-registry", write_rows([CPU, ROW]), code=code)
    assert rows() == (*OTHERS, CPU, ROW)


def test_two_packages_with_one_plugin_are_told_and_neither_counts(site: Site) -> None:
    install(site, "acme-registry", write_rows([CPU, ROW]))
    install(site, "other-registry", write_rows([ROW._replace(version="99")]))
    assert rows() == (*OTHERS, CPU)
    with pytest.raises(PluginNotFoundError) as caught:
        pjrt_hub.fetch("toy")
    told = "acme-registry 1.0 and other-registry 1.0 have rows of the plugin 'toy', so none of them"
    assert f"registry: {told} counts (uninstall all but one" in str(caught.value)


def test_malformed_rows_are_told_and_the_rest_counts(site: Site, caplog) -> None:
    path = install(site, "acme-registry", f"{write_rows([ROW])}\n[[artifact]]\nplugin = 'cpu'\n")
    broken = install(site, "broken-registry", "[[artifact]")
    install(site, "empty-registry", "").unlink()
    assert rows() == (*OTHERS, ROW)  # no shipped row replaces an unreadable one
    assert pjrt_hub.fetch("toy").is_file()
    told = sorted(each.getMessage() for each in caplog.records if each.name == "pjrt_hub")
    assert [line.rpartition("[")[2][:6] for line in told] == ["acme-r", "broken", "empty-"]
    assert f"{path}, row 2: the column 'platform' is missing (tell its makers, or `pip" in told[0]
    assert f"cannot read the registry file {broken}" in told[1]
    assert "the package empty_registry has no file of rows (*.toml)" in told[2]


def test_an_elevated_process_reads_only_what_root_alone_can_change(site: Site, monkeypatch) -> None:
    install(site, "acme-registry", write_rows([ROW]))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(privilege, "only_root_writes", lambda folder: folder == str(site.folder))
    assert rows() == (*SHIPPED, ROW)
    monkeypatch.setattr(privilege, "only_root_writes", lambda folder: folder != str(site.folder))
    there = process.world()
    assert there.catalog.rows() == rows() == SHIPPED


def test_lock_writes_the_rows_of_a_package(site: Site, tmp_path: Path, monkeypatch) -> None:
    path = install(site, "acme-registry", write_rows([ROW]))
    assert pjrt_hub.lock("toy", output=tmp_path / "rows.toml").pins.rows == (ROW,)
    shutil.copy(tmp_path / "rows.toml", path)
    assert rows() == (*SHIPPED, *read_rows(path)) == (*SHIPPED, ROW)
    shutil.copy(path, tmp_path / "pylock.pjrt.toml")
    monkeypatch.delenv("PJRT_HUB_LOCK")
    monkeypatch.chdir(tmp_path)
    narrowed = process.world().catalog
    assert narrowed is not None
    assert (narrowed.rows(), narrowed.owner(ROW)) == ((ROW,), "acme-registry 1.0")
    path.write_text(path.read_text().replace("format = 1", "format = 2"))
    with pytest.raises(ManifestError, match="has format 2, this pjrt-hub reads format 1"):
        read_rows(path)
