"""The lock file: its text, what is no lock file, which one holds, and what it lets be loaded."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest
import wheels
from hypothesis import given
from hypothesis import strategies as st
from packaging.pylock import Pylock
from trees import Site, plugin_bytes, world

from pjrt_hub.base import digest
from pjrt_hub.base.host import HostTag
from pjrt_hub.door import privilege, process
from pjrt_hub.errors import (
    AmbiguousPluginError,
    LockFileError,
    PluginLoadError,
    PluginNotFoundError,
)
from pjrt_hub.finding.discovery.installed import Installed
from pjrt_hub.finding.discovery.select import Request, choose
from pjrt_hub.finding.discovery.survey import require_locked, survey
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact, Catalog, Member
from pjrt_hub.finding.store.pins import FILE_NAME, Pins, find, read

MEMBERS = wheels.contents(100)
PIN = wheels.pin(wheels.build(MEMBERS), MEMBERS)
ARM = PIN._replace(host=HostTag.parse("linux-aarch64-glibc2.17"), version="2.0")
OTHER = PIN._replace(plugin="alt", package="other")


def locking(path: Path, *rows: Artifact) -> Pins:
    return Pins(path, ("toy", "name with 'quotes'\n"), ("linux-x86_64",), rows)


def plugin_row() -> Artifact:
    """A row whose library is the toy plugin of the trees."""
    data = plugin_bytes()
    sha256 = wheels.hashlib.sha256(data).hexdigest()
    return PIN._replace(members=(Member(PIN.library, len(data), sha256),))


def test_what_is_written_is_read(tmp_path: Path):
    pins = addressed(PIN, ARM, OTHER)._replace(path=tmp_path / FILE_NAME)
    pins.write()
    assert read(pins.path) == pins._replace(rows=(OTHER, ARM, PIN))
    assert read(pins.path).text() == pins.text()
    assert os.listdir(tmp_path) == [FILE_NAME]


def test_the_text_is_stable(tmp_path: Path):
    text = locking(tmp_path, PIN, ARM).text()
    assert text == locking(tmp_path, ARM, PIN).text()
    assert text.index("linux-aarch64-glibc2.17") < text.index("linux-x86_64-glibc2.17")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=4))
def test_any_request_survives(tmp_path_factory: pytest.TempPathFactory, requests: list[str]):
    path = tmp_path_factory.mktemp("lock") / FILE_NAME
    Pins(path, tuple(requests), (), (PIN,)).write()
    assert read(path).requests == tuple(requests)


URL = "https://index.example/toy_plugin-1.0-py3-none-manylinux_2_17_x86_64.whl"


def addressed(*rows: Artifact) -> Pins:
    return locking(Path(FILE_NAME), *rows)._replace(addresses={PIN.sha256: URL})


@pytest.mark.parametrize(
    ("host", "system", "machine"),
    [
        ("linux-aarch64-glibc2.17", "linux", "aarch64"),
        ("macos-aarch64-14.0", "darwin", "arm64"),
        ("windows-x86_64", "win32", "AMD64"),
    ],
)
def test_installers_find_a_wheel_once_and_for_its_machines(host: str, system: str, machine: str):
    row = PIN._replace(host=HostTag.parse(host))
    odd = ("bare.so", "toy-1.whl", "other-1.0-py3-none-any.whl")
    others = [PIN._replace(plugin=f"odd{i}", file_name=name) for i, name in enumerate(odd)]
    pins = addressed(row, row._replace(plugin="alt"), *others)
    lock = Pylock.from_dict(tomllib.loads(pins.text()))
    [package] = lock.packages
    marker = f'sys_platform == "{system}" and platform_machine == "{machine}"'
    assert (package.name, str(package.marker)) == ("toy-plugin", marker)
    assert [str(each) for each in lock.environments or ()] == [marker]
    [wheel] = package.wheels or ()
    assert (wheel.name, wheel.url, wheel.size) == (PIN.file_name, URL, PIN.size)
    assert wheel.hashes == {"sha256": PIN.sha256}
    assert pins.left_out == ("odd0", "odd1", "odd2")


def test_what_an_installer_would_get_is_what_counts(tmp_path: Path):
    """A row cannot name other bytes than the wheel that stands above it."""
    path = tmp_path / FILE_NAME
    path.write_text(TEXT.replace('plugin = "toy"\n', f'plugin = "toy"\nsha256 = "{"f" * 64}"\n'))
    assert read(path).rows == (PIN,)


def test_a_file_of_the_first_release_says_what_next(tmp_path: Path):
    path = tmp_path / "pjrt-hub.lock"
    path.write_text('format = 1\nrequests = ["cpu"]\n')
    assert find({}, tmp_path) == path
    with pytest.raises(LockFileError, match="has a form that nothing reads") as caught:
        read(path)
    assert "`pjrt-hub lock`" in caught.value.hint
    (tmp_path / FILE_NAME).touch()
    assert find({}, tmp_path) == tmp_path / FILE_NAME


TEXT = addressed(PIN).text()
MALFORMED = {
    "it is not TOML": TEXT + "<<<<<<< ours\n",
    "it is not TOML: 'utf-8'": TEXT + "# \udcff",
    "its lock-version is None, its format None": "requests = []\n",
    "its lock-version is '2.0', its format 1": TEXT.replace('"1.0"', '"2.0"', 1),
    "its format True": TEXT.replace("format = 1", "format = true"),
    "its format '1'": TEXT.replace("format = 1", "format = '1'"),
    "requests: found ": TEXT.replace("requests = [", "requests = [1, "),
    "hosts: found 'linux', expected an array": TEXT.replace('["linux-x86_64"]', "'linux'"),
    "tool.pjrt-hub.hots: unknown key": TEXT + "hots = []\n",
    "it is not built as a lock file is": TEXT + "artifact = [1]\n",
    "artifact 1: the column 'plugin' is missing": TEXT.replace('plugin = "toy"\n', ""),
    "artifact 1: sha256 must be 64": TEXT.replace(PIN.sha256, "F" * 64),
    "it has toy_plugin-1.0-py3-none-manylinux_2_17_x86_64.whl twice": TEXT.replace(
        "[tool.", f"{TEXT[TEXT.index('[[packages]]') : TEXT.index('[[packages.t')]}[tool."
    ).replace(PIN.sha256, "f" * 64, 1),
    "'toy' is locked twice: Toy.Plugin 1.0 and Toy.Plugin 2.0": locking(
        Path(), PIN, PIN._replace(version="2.0")
    ).text(),
}


def test_several_packages_may_build_a_plugin(tmp_path: Path):
    other = PIN._replace(package="free-gpu", sha256="f" * 64)
    locking(tmp_path / FILE_NAME, PIN, other).write()
    assert read(tmp_path / FILE_NAME).rows == (other, PIN)


@pytest.mark.parametrize("told", MALFORMED)
def test_a_malformed_file_says_what_and_what_next(tmp_path: Path, told: str):
    path = tmp_path / FILE_NAME
    path.write_bytes(MALFORMED[told].encode("utf-8", "surrogateescape"))
    with pytest.raises(LockFileError) as caught:
        read(path)
    assert caught.value.message.startswith(f"the lock file {path} is malformed: ")
    assert told in caught.value.message
    assert "version control" in caught.value.hint
    assert caught.value.path == str(path)


def test_a_newer_format_asks_for_a_newer_release(tmp_path: Path):
    path = tmp_path / FILE_NAME
    path.write_text(TEXT.replace("format = 1", "format = 2\nwhatever = { new = true }"))
    with pytest.raises(LockFileError, match="has format 2, this pjrt-hub reads format 1") as caught:
        read(path)
    assert "pip install --upgrade pjrt-hub" in caught.value.hint


def test_a_file_that_cannot_be_read_or_written(tmp_path: Path):
    with pytest.raises(LockFileError, match="cannot be read: No such file") as caught:
        read(tmp_path / "absent.lock")
    assert "pjrt-hub lock --output" in caught.value.hint
    with pytest.raises(LockFileError, match="cannot be read: Is a directory"):
        read(tmp_path)
    with pytest.raises(LockFileError, match="cannot be written: No such file") as caught:
        locking(tmp_path / "absent" / FILE_NAME, PIN).write()
    assert "--output" in caught.value.hint
    huge = tmp_path / "huge.lock"
    with huge.open("wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(LockFileError, match="larger than"):
        read(huge)


def test_the_nearest_lock_upward_holds(tmp_path: Path):
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    assert find({}, deep) is None
    above, near = tmp_path / FILE_NAME, tmp_path / "a" / FILE_NAME
    above.touch()
    assert find({}, deep) == above
    near.touch()
    assert find({}, deep) == near
    assert find({}, None) is None
    assert find({"PJRT_HUB_LOCK": "0"}, deep) is None
    assert find({"PJRT_HUB_LOCK": ""}, deep) == near
    assert find({"PJRT_HUB_LOCK": str(above)}, deep) == above
    assert find({"PJRT_HUB_LOCK": str(above)}, None) == above
    (deep / FILE_NAME).mkdir()  # a folder of that name is no lock
    assert find({}, deep) == near


def test_a_lock_that_others_may_write_is_refused_unless_it_is_named(tmp_path: Path):
    path = tmp_path / FILE_NAME
    path.touch()
    path.chmod(0o666)
    with pytest.raises(LockFileError, match="can be written by everybody") as caught:
        find({}, tmp_path)
    assert f"PJRT_HUB_LOCK={path}" in caught.value.hint
    assert find({"PJRT_HUB_LOCK": str(path)}, tmp_path) == path
    path.chmod(0o664)  # a group of one's own is what many systems give
    assert find({}, tmp_path) == path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_lock_of_another_user_is_refused(tmp_path: Path):
    path = tmp_path / FILE_NAME
    path.touch()
    os.chown(path, 12345, 12345)
    with pytest.raises(LockFileError, match="belongs to user 12345"):
        find({}, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_link_and_the_file_must_both_be_ours(tmp_path: Path):
    target, path = tmp_path / "target", tmp_path / FILE_NAME
    target.touch()
    path.symlink_to(target)
    assert find({}, tmp_path) == path
    os.chown(path, 12345, 12345, follow_symlinks=False)
    with pytest.raises(LockFileError, match="is a link that belongs to user 12345"):
        find({}, tmp_path)
    os.chown(path, 0, 0, follow_symlinks=False)
    os.chown(target, 12345, 12345)
    with pytest.raises(LockFileError, match=r"lock file .* belongs to user 12345"):
        find({}, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("mode", [0o1777, 0o777])
@pytest.mark.parametrize("planted", ["file", "link"])
def test_what_another_user_left_in_a_shared_folder_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, planted: str
):
    shared = tmp_path / "shared"
    project = shared / "project"
    project.mkdir(parents=True)
    shared.chmod(mode)
    (tmp_path / FILE_NAME).touch()
    path = shared / FILE_NAME
    if planted == "link":
        path.symlink_to(tmp_path / FILE_NAME)
    else:
        path.write_text("not a lock file")
    os.chown(path, 12345, 12345, follow_symlinks=False)
    assert find({}, project) == tmp_path / FILE_NAME
    assert f"passed over {path}: it " in caplog.text
    assert "belongs to user 12345" in caplog.text
    os.chown(path, 0, 0, follow_symlinks=False)
    assert find({}, project) == path


def test_a_file_that_was_found_leaves_of_the_registry_what_it_has_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    forged, other = PIN._replace(sha256="f" * 64), OTHER._replace(sha256="a" * 64)
    lying = other._replace(plugin="toy", library="elsewhere.so", urls=("https://e.example/x",))
    monkeypatch.setattr(process, "registry", lambda there: Catalog([], (PIN, other)))

    def fetched(*rows: Artifact, is_named: bool = False) -> tuple[Artifact, ...]:
        pins = locking(tmp_path / FILE_NAME, *rows)._replace(is_named=is_named)
        return tuple(process.catalog(Installed(()), pins).rows())

    assert fetched(PIN, forged) == (PIN,)
    assert fetched(PIN._replace(library="elsewhere.so")) == (PIN,)  # the registry's own row
    assert fetched(forged) == fetched(lying) == fetched() == ()
    assert fetched(forged, is_named=True) == (forged,)
    assert set(process.catalog(Installed(()), None).rows()) == {PIN, other}


def test_the_variable_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    locking(tmp_path / FILE_NAME, PIN).write()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PJRT_HUB_LOCK", raising=False)
    found = process.pins()
    assert found is not None
    assert (found.rows, found.is_named) == ((PIN,), False)
    monkeypatch.setenv("PJRT_HUB_LOCK", FILE_NAME)
    named = process.pins()
    assert named is not None
    assert named.is_named
    monkeypatch.setenv("PJRT_HUB_LOCK", "0")
    assert process.pins() is None


def test_what_a_found_file_adds_is_told_with_the_way_to_name_it(tmp_path: Path):
    pins = locking(tmp_path / FILE_NAME, PIN)
    with pytest.raises(PluginNotFoundError, match="the registry does not pin what") as caught:
        choose(survey(world(tmp_path, catalog=Catalog([], ()), pins=pins)), Request.read("toy", {}))
    assert f"PJRT_HUB_LOCK={pins.path}" in str(caught.value)


def test_a_process_with_more_rights_than_its_caller_looks_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / FILE_NAME).write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PJRT_HUB_LOCK", raising=False)
    assert process.lock_path(os.environ) == tmp_path / FILE_NAME
    monkeypatch.setattr(privilege, "reason", lambda: "it is elevated")
    assert process.lock_path(os.environ) is None
    monkeypatch.setenv("PJRT_HUB_LOCK", str(tmp_path / FILE_NAME))
    assert process.pins() is None


def test_a_library_is_hashed_only_where_it_could_be_locked(tmp_path: Path):
    library = tmp_path / "toy.so"
    library.write_bytes(MEMBERS[wheels.LIBRARY])
    pins = locking(tmp_path / FILE_NAME, PIN)
    hashed: list[Path] = []

    def sha256(path: Path) -> str:
        hashed.append(path)
        return digest.of_file(path)

    assert pins.refusal(library, sha256) == ""
    library.write_bytes(b"x" * 100)
    told = f"{pins.path} does not lock the bytes of {library}"
    assert pins.refusal(library, sha256) == told
    library.write_bytes(b"x" * 101)
    assert pins.refusal(library, sha256) == told
    assert hashed == [library, library]
    library.unlink()
    assert pins.refusal(library, sha256).endswith("No such file or directory")


def test_only_what_is_locked_is_chosen(tmp_path: Path):
    site = Site(tmp_path / "site")
    library = site.plugin("toy-plugin", "toy", priority=100)
    better = site.plugin("better-plugin", "better", priority=900)
    better.write_bytes(better.read_bytes() + b"\0")
    pins = locking(tmp_path / FILE_NAME, plugin_row())
    locked = world(tmp_path, site, catalog=Catalog([], pins.rows), pins=pins)
    choice = choose(survey(locked))
    assert choice.candidate.library_path == library
    (told,) = (each for each in choice.rejections if each.name == "better")
    assert told.reason == f"{pins.path} does not lock the bytes of {better}"
    assert "`pjrt-hub lock better-plugin==1.0`" in told.hint
    with pytest.raises(PluginNotFoundError, match="does not lock the bytes of"):
        choose(survey(locked), Request.read("better", {}))
    assert choose(survey(locked._replace(pins=None))).candidate.library_path == better


def test_what_is_not_locked_is_not_fetched_and_says_so(tmp_path: Path):
    site = Site(tmp_path / "site")
    site.plugin("toy-plugin", "alt", more='registry = ["alt"]').unlink()
    pins = locking(tmp_path / FILE_NAME, PIN)
    locked = world(tmp_path, site, catalog=Catalog([], pins.rows), pins=pins)
    with pytest.raises(PluginNotFoundError, match=f"{FILE_NAME} does not hold it") as caught:
        choose(survey(locked), Request.read("alt", {}))
    assert "`pjrt-hub lock toy name with" in str(caught.value)
    assert choose(survey(locked), Request.read("toy", {})).candidate.artifact == PIN


@pytest.mark.parametrize("intruder_first", [True, False])
def test_a_lock_decides_between_two_that_claim_a_name(tmp_path: Path, intruder_first: bool):
    honest, intruder = Site(tmp_path / "honest"), Site(tmp_path / "intruder")
    library = honest.plugin("toy-plugin", "toy")
    other = intruder.plugin("free-toy", "toy", priority=900, version="6.6")
    other.write_bytes(other.read_bytes() + b"\0")
    sites = (intruder, honest) if intruder_first else (honest, intruder)
    free = world(tmp_path, *sites)
    with pytest.raises(AmbiguousPluginError) as caught:
        choose(survey(free), Request.read("toy", {}))
    for part in ("toy-plugin 1.0", str(library), "free-toy 6.6", str(other)):
        assert part in str(caught.value)
    locked = free._replace(pins=locking(tmp_path / FILE_NAME, plugin_row()))
    assert choose(survey(locked), Request.read("toy", {})).candidate.library_path == library


def test_a_variable_or_a_path_is_no_way_around(tmp_path: Path):
    library = Site(tmp_path / "mine").write("toy.so", plugin_bytes() + b"\0")
    pins = locking(tmp_path / FILE_NAME, plugin_row())
    env = {"PJRT_HUB_PLUGIN_PATH": f"toy={library}"}
    locked = world(tmp_path, env=env, pins=pins, cache=Cache(tmp_path / "cache"))
    found = survey(locked)
    assert found.candidates == ()
    assert [each.reason for each in found.rejections if each.origin != "the lock file"] == [
        f"{pins.path} does not lock the bytes of {library}"
    ]
    with pytest.raises(PluginLoadError, match="does not lock") as caught:
        survey(locked, library)
    assert f"`pjrt-hub lock {library}`" in caught.value.hint
    library.write_bytes(plugin_bytes())
    (allowed,) = survey(locked, library).candidates
    # The memory of what was hashed goes by the file's identity, so a change is seen.
    library.write_bytes(plugin_bytes()[:-1] + b"\1")
    with pytest.raises(PluginLoadError, match="does not lock"):
        require_locked(allowed, library, locked)


def test_a_written_lock_can_be_read_by_a_team(tmp_path: Path):
    pins = locking(tmp_path / FILE_NAME, PIN)
    mask = os.umask(0o022)
    try:
        pins.write()
    finally:
        os.umask(mask)
    assert stat.S_IMODE(pins.path.stat().st_mode) == 0o644
