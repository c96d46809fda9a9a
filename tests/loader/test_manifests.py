"""pjrt-hub's reader of manifests outside packages, held against the cases of all readers."""

import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import wheels
from cases import CASES
from hypothesis import given
from hypothesis import strategies as st
from manifest_texts import TAKEN
from manifest_trees import HEAD, Case
from trees import MANIFEST, Site, only, plugin_bytes, world

from pjrt_hub.base.host import HostTag
from pjrt_hub.door import privilege, process
from pjrt_hub.errors import PluginNotFoundError
from pjrt_hub.finding.contract import plain
from pjrt_hub.finding.discovery import manifests
from pjrt_hub.finding.discovery.hardware import present
from pjrt_hub.finding.discovery.installed import Installed
from pjrt_hub.finding.discovery.library import preloads
from pjrt_hub.finding.discovery.select import Request, choose
from pjrt_hub.finding.discovery.source import Described, Rejection, World
from pjrt_hub.finding.discovery.survey import Survey, survey
from pjrt_hub.finding.store.catalog import Artifact, Catalog

HOST = HostTag("linux", "x86_64", "glibc", (2, 36))


def lines(world: World) -> Iterator[str]:
    """Yield the lines that `Case` describes."""
    for each in manifests.find(world):
        if isinstance(each, Rejection):
            yield rejection(each)
            continue
        manifest = each.manifest
        [library] = manifest.libraries
        hardware = bool(present(manifest.probe, world.root))
        word = "present" if hardware else "absent"
        yield f"usable {manifest.name} {manifest.platform} {manifest.priority} {word} {library}"
        yield from (
            f"preload {path}" for path in preloads(world, manifest, Path(library.path)).paths
        )
        variables = manifest.environment_for(present=hardware)
        yield from (f"set {name}={value}" for name, value in variables.items())


def rejection(each: Rejection) -> str:
    if each.origin == "a folder of manifests":
        return f"refused {each.name} {each.reason}"
    if each.shadowed:
        return f"hidden {each.name} {each.origin}"
    if each.reason.startswith("PJRT_HUB_"):
        return f"disabled {each.name} {each.reason}"
    if each.absent:
        return f"absent {each.name} {each.reason}"
    return f"refused {each.origin} {each.reason}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_reader_says_what_every_reader_must(case: Case, tmp_path):
    if case.only and (case.only == "root") != (os.geteuid() == 0):
        pytest.skip(f"needs the rights of {case.only}")
    env = case.write(tmp_path)
    world = World(env, HOST, Installed([]), root=tmp_path / "system")
    assert list(lines(world)) == case.expected(tmp_path, str(HOST))


MESSAGES = {value for name, value in vars(plain).items() if name.isupper() and name[0] != "_"}
#: Pieces of texts that are TOML more often than random characters are.
PIECES = [*"[]{}=,.#'\"\\\t\né", " = ", "[[", "]]", "a", "b-c", "[a]", "[[a]]", "[a.b]", "1", "-2"]
PIECES += [
    "1.5",
    "6e23",
    "true",
    "false",
    "a = 1",
    "b = {c = 2}",
    "'x'",
    '"y"',
    '"\\u00e9"',
    "\r\n",
]
PIECES += ['"\\n"', "[1, 2]", "inf", "0x1", "1_0", "01", "1979-05-27", '"""', "a.b = 1", "\ufeff"]


@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
def test_what_it_takes_is_toml_of_that_content(text: str):
    try:
        found = plain.parse(text.encode())
    except ValueError as exc:
        told = re.fullmatch(r"line \d+: (.+)", str(exc))
        assert told
        assert told[1] in MESSAGES
    else:
        assert repr(found) == repr(tomllib.loads(text))


@pytest.mark.parametrize("text", TAKEN.values(), ids=TAKEN)
def test_what_looks_odd_is_toml_of_that_content(text: str | bytes):
    raw = text if isinstance(text, bytes) else text.encode()
    assert repr(plain.parse(raw)) == repr(tomllib.loads(raw.decode()))


def test_each_message_has_a_case():
    told = {line.rpartition(": ")[2] for case in CASES for line in case.lines}
    assert len(MESSAGES) == 14
    assert MESSAGES - told == set()


def put(site: Site, path: str, library: Path, more: str = "", name: str = "toy") -> Path:
    """Write a manifest below the folder of a site; its folder is that of the machine's user."""
    text = MANIFEST.format(name=name, platform=name, priority=3, more=more)
    manifest = site.write(path, text.replace("*.so", str(library)))
    manifest.parent.chmod(0o755)
    return manifest


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return Site(tmp_path / "own").write("lib.so", plugin_bytes())


def reasons(found: Survey) -> dict[str, str]:
    return {each.name: each.reason for each in found.rejections}


def test_a_folder_that_the_user_names_comes_before_what_is_installed(tmp_path, site, library):
    theirs = site.plugin("toy-plugin", "toy")
    put(site, "m/toy.toml", library)
    found = survey(world(tmp_path, site, env={"PJRT_PLUGIN_MANIFESTS": f"{site.folder}/m"}))
    assert (only(found).source, only(found).library_path) == ("environment", library)
    assert reasons(found) == {"toy": f"shadowed by {only(found)}"}
    assert [each.origin for each in found.rejections] == [
        "toy-plugin 1.0, entry point pjrt_plugins:toy"
    ]
    found = survey(world(tmp_path, site))
    assert only(found).library_path == theirs


def test_a_standard_folder_comes_after_what_is_installed(tmp_path, site, library):
    theirs = site.plugin("toy-plugin", "toy")
    manifest = put(site, "m/pjrt/plugins/toy.toml", library)
    put(site, "m/pjrt/plugins/other.toml", library, name="other")
    found = survey(world(tmp_path, site, env={"XDG_CONFIG_HOME": f"{site.folder}/m"}))
    toy = next(each for each in found.candidates if each.name == "toy")
    other = next(each for each in found.candidates if each.name == "other")
    assert (toy.library_path, toy.source) == (theirs, "entry_points")
    assert (other.library_path, other.source, other.priority) == (library, "manifests", 3)
    assert [(each.origin, each.reason) for each in found.rejections] == [
        (str(manifest), f"shadowed by {toy}")
    ]


def row(plugin: str) -> Artifact:
    members = wheels.contents(1000)
    host = HostTag.current()._replace(version=())
    pinned = wheels.pin(wheels.build(members), members, host=host)
    return pinned._replace(plugin=plugin, platform=plugin, package=plugin)


def test_a_standard_folder_comes_before_what_would_be_fetched(tmp_path, site, library):
    put(site, "m/pjrt/plugins/toy.toml", library, "registry = ['toy']")
    env = {"XDG_CONFIG_HOME": f"{site.folder}/m"}
    here = world(tmp_path, site, env=env, catalog=Catalog([], [row("toy")]))
    choice = choose(survey(here), Request.read("toy", {}))
    assert (choice.candidate.source, choice.candidate.library_path) == ("manifests", library)
    assert [each.reason for each in choice.rejections] == [f"shadowed by {choice.candidate}"]


def test_a_library_is_inspected_as_any(tmp_path, site):
    put(site, "m/toy.toml", site.write("toy.so", b"no library"))
    found = survey(world(tmp_path, env={"PJRT_PLUGIN_MANIFESTS": f"{site.folder}/m"}))
    assert found.candidates == ()
    assert "is not a shared library" in reasons(found)["toy"]


def test_a_library_named_by_its_path_has_its_manifest(tmp_path, site, library):
    put(site, "m/toy.toml", library, "[options.a]\ntype = 'bool'")
    env = {"PJRT_PLUGIN_MANIFESTS": f"{site.folder}/m", "PJRT_HUB_SELECT": "*"}
    found = only(survey(world(tmp_path, env=env), library))
    assert (found.name, found.source) == ("toy", "explicit")
    assert [each.name for each in found.manifest.options] == ["a"]


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({"PJRT_HUB_DISABLE": "t*,other"}, "PJRT_HUB_DISABLE names it"),
        ({"PJRT_HUB_SELECT": "another"}, "PJRT_HUB_SELECT does not name it"),
    ],
)
def test_what_a_variable_disables_is_disabled_wherever_it_was_found(
    tmp_path, site, library, env, reason
):
    site.plugin("toy-plugin", "toy1")
    site.vendor("toy-vendor", "jax_plugins.toy2", "pjrt_plugin_toy2.so")
    put(site, "m/toy3.toml", library, name="toy3")
    put(site, "m/pjrt/plugins/toy4.toml", library, name="toy4")
    env |= {"PJRT_HUB_PLUGIN_PATH": f"toy5={library}", "PJRT_PLUGIN_MANIFESTS": f"{site.folder}/m"}
    env |= {"HOME": "/nowhere", "XDG_CONFIG_HOME": f"{site.folder}/m"}
    here = world(tmp_path, site, env=env, catalog=Catalog([], [row("toy6")]))
    found = survey(here)
    assert found.candidates == ()
    assert reasons(found) == {f"toy{number}": reason for number in range(1, 7)}
    for number in range(1, 7):
        with pytest.raises(PluginNotFoundError, match=f"toy{number}: {reason} "):
            choose(found, Request.read(f"toy{number}", {}))
    enabled = here._replace(env={**env, "PJRT_HUB_DISABLE": "", "PJRT_HUB_SELECT": "*"})
    assert len(survey(enabled).candidates) == 6


def test_a_library_named_by_its_path_is_never_disabled(tmp_path, library):
    env = {"PJRT_HUB_DISABLE": "*"}
    assert only(survey(world(tmp_path, env=env), library)).library_path == library


def test_the_folders_of_windows(tmp_path, site):
    windows = HostTag("windows", "x86_64")
    for at, folder in enumerate(("a", "b", "c")):
        put(site, f"{folder}/pjrt/plugins/toy{at}.toml", site.write("toy.dll"), name=f"toy{at}")
    put(site, "etc/pjrt/plugins/toy9.toml", site.write("toy.dll"), name="toy9")
    env = {"APPDATA": f"{site.folder}/b", "PROGRAMDATA": f"{site.folder}/a"}
    env |= {"XDG_CONFIG_HOME": f"{site.folder}/c", "HOME": f"{site.folder}/c"}
    found = list(manifests.find(world(tmp_path, env=env, host=windows, root=site.folder)))
    assert [each.manifest.name for each in found if isinstance(each, Described)] == ["toy1", "toy0"]


def test_an_elevated_process_reads_only_the_systems_folder(tmp_path, site, library, monkeypatch):
    for name in ("PJRT_PLUGIN_MANIFESTS", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, "relative")
    monkeypatch.setenv("PJRT_HUB_DISABLE", "*")
    put(site, "etc/pjrt/plugins/toy.toml", library)
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    assert privilege.reason()
    here = world(tmp_path, env=process.environment(), root=site.folder)
    (found,) = manifests.find(here)
    assert isinstance(found, Described)
    assert (found.manifest.name, found.source) == ("toy", "manifests")


def test_a_file_that_goes_while_it_is_looked_at_is_a_reason(tmp_path, site, library, monkeypatch):
    manifest = put(site, "m/toy.toml", library)
    here = world(tmp_path, env={"PJRT_PLUGIN_MANIFESTS": str(manifest.parent)})
    library.unlink()
    monkeypatch.setattr(manifests, "isfile", lambda path: True)
    (found,) = manifests.find(here)
    assert isinstance(found, Rejection)
    assert found.reason == "cannot be read: No such file or directory"
    shutil.rmtree(manifest.parent)
    assert list(manifests.find(here)) == []


def test_a_refusal_has_a_hint(tmp_path, site, library):
    manifest = put(site, "m/toy.toml", library)
    here = world(tmp_path, env={"PJRT_PLUGIN_MANIFESTS": str(manifest.parent)})
    manifest.chmod(0o666)
    (found,) = manifests.find(here)
    assert isinstance(found, Rejection)
    assert found.hint == "give it to root or yourself, and `chmod go-w` it"
    manifest.chmod(0o644)
    manifest.write_text(HEAD)
    (found,) = manifests.find(here)
    assert isinstance(found, Rejection)
    assert found.hint == "correct that file; docs/manifest.md has its form"
