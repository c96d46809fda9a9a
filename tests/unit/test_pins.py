"""The lock file: its text, invalid files, which file is used, and what it allows to be loaded."""

import os
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock, call

import pytest
import wheels
from hypothesis import given
from hypothesis import strategies as st
from packaging.pylock import Pylock
from trees import Site, plugin_bytes, world

from pjrt_hub import errors
from pjrt_hub.base import digest
from pjrt_hub.base.host import HostTag
from pjrt_hub.door import privilege, process
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
    """A row whose library is the toy plugin of trees.py."""
    data = plugin_bytes()
    sha256 = wheels.hashlib.sha256(data).hexdigest()
    return PIN._replace(members=(Member(PIN.library, len(data), sha256),))


def refused(told: str, function: Callable[..., object], *arguments: object) -> str:
    """Check that a call raises an error with these words, and return its hint."""
    with pytest.raises(errors.LockFileError, match=told) as caught:
        function(*arguments)
    return caught.value.hint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path for a lock file."""
    return tmp_path / FILE_NAME


def test_what_is_written_is_read(path, tmp_path):
    pins = addressed(PIN, ARM, OTHER)._replace(path=path)
    mask = os.umask(0o022)
    try:
        pins.write()
    finally:
        os.umask(mask)
    assert read(path) == pins._replace(rows=(OTHER, ARM, PIN))
    assert read(path).text() == pins.text() == pins._replace(rows=pins.rows[::-1]).text()
    assert os.listdir(tmp_path) == [FILE_NAME]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644  # all users can read it
    # Several packages may build a plugin.
    other = PIN._replace(package="free-gpu", sha256="f" * 64)
    locking(path, PIN, other).write()
    assert read(path).rows == (other, PIN)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=4))
def test_any_request_survives(tmp_path_factory, requests):
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
def test_installers_find_a_wheel_once_and_for_its_machines(host, system, machine):
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


def test_what_an_installer_would_get_is_what_counts(path):
    """A row cannot name other bytes than the wheel entry that installers read."""
    path.write_text(TEXT.replace('plugin = "toy"\n', f'plugin = "toy"\nsha256 = "{"f" * 64}"\n'))
    assert read(path).rows == (PIN,)


def test_a_file_of_the_first_release_says_what_next(tmp_path):
    path = tmp_path / "pjrt-hub.lock"
    path.write_text('format = 1\nrequests = ["cpu"]\n')
    assert find({}, tmp_path) == path
    assert "`pjrt-hub lock`" in refused("has a form that nothing reads", read, path)
    (tmp_path / FILE_NAME).touch()
    assert find({}, tmp_path) == tmp_path / FILE_NAME


TEXT = addressed(PIN).text()
PACKAGE = TEXT[TEXT.index("[[packages]]") : TEXT.index("[[packages.t")]
WHEEL_NAME = f'name = "{PIN.file_name}", '
OTHER_PACKAGE = PACKAGE.replace(PIN.sha256, "f" * 64)
TWO_VERSIONS = locking(Path(), PIN, PIN._replace(version="2.0"))
MALFORMED = {
    "it is not TOML": TEXT + "<<<<<<< ours\n",
    "it is not TOML: 'utf-8'": TEXT + "# \udcff",
    "its lock-version is None, its format None": "requests = []\n",
    "its lock-version is '2.0', its format 1": TEXT.replace('"1.0"', '"2.0"', 1),
    "its format True": TEXT.replace("format = 1", "format = true"),
    "its format '1'": TEXT.replace("format = 1", "format = '1'"),
    "requests: found ": TEXT.replace("requests = [", "requests = [1, "),
    'hosts: found "linux", expected an array': TEXT.replace('["linux-x86_64"]', "'linux'"),
    "tool.pjrt-hub.hots: unknown key": TEXT + "hots = []\n",
    "it is not built as a lock file is": TEXT + "artifact = [1]\n",
    "artifact 1: the column 'plugin' is missing": TEXT.replace('plugin = "toy"\n', ""),
    "artifact 1: sha256 must be 64": TEXT.replace(PIN.sha256, "F" * 64),
    f"it has {PIN.file_name} twice": TEXT.replace("[tool.", f"{OTHER_PACKAGE}[tool."),
    "it has None twice": TEXT.replace("[tool.", f"{OTHER_PACKAGE}[tool.").replace(WHEEL_NAME, ""),
    "'toy' is locked twice: Toy.Plugin 1.0 and Toy.Plugin 2.0": TWO_VERSIONS.text(),
}


@pytest.mark.parametrize("told", MALFORMED)
def test_a_malformed_file_says_what_and_what_next(path, told):
    path.write_bytes(MALFORMED[told].encode("utf-8", "surrogateescape"))
    with pytest.raises(errors.LockFileError) as caught:
        read(path)
    assert caught.value.message.startswith(f"the lock file {path} is malformed: ")
    assert told in caught.value.message
    assert "version control" in caught.value.hint
    assert caught.value.path == str(path)


def test_a_newer_format_asks_for_a_newer_release(path):
    path.write_text(TEXT.replace("format = 1", "format = 2\nwhatever = { new = true }"))
    told = "has format 2, this pjrt-hub reads format 1"
    assert "pip install --upgrade pjrt-hub" in refused(told, read, path)


def test_a_file_that_cannot_be_read_or_written(path, tmp_path):
    assert "pjrt-hub lock --output" in refused("cannot be read: No such file", read, path)
    refused("cannot be read: Is a directory", read, tmp_path)
    absent = locking(tmp_path / "absent" / FILE_NAME, PIN)
    assert "--output" in refused("cannot be written: No such file", absent.write)
    path.touch()
    os.truncate(path, 17 << 20)
    refused("larger than", read, path)


def test_the_nearest_lock_upward_holds(tmp_path):
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
    (deep / FILE_NAME).mkdir()  # a folder with that name does not count
    assert find({}, deep) == near


def test_a_lock_that_others_may_write_is_refused_unless_it_is_named(path, tmp_path):
    path.touch()
    path.chmod(0o666)
    assert f"PJRT_HUB_LOCK={path}" in refused("can be written by everybody", find, {}, tmp_path)
    assert find({"PJRT_HUB_LOCK": str(path)}, tmp_path) == path
    path.chmod(0o664)  # on many systems each user has a group
    assert find({}, tmp_path) == path


by_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@by_root
def test_the_file_and_a_link_to_it_must_both_be_ours(path, tmp_path):
    path.touch()
    os.chown(path, 12345, 12345)
    refused("belongs to user 12345", find, {}, tmp_path)
    target = path.rename(tmp_path / "target")
    path.symlink_to(target)
    refused(r"lock file .* belongs to user 12345", find, {}, tmp_path)
    os.chown(target, 0, 0)
    assert find({}, tmp_path) == path
    os.chown(path, 12345, 12345, follow_symlinks=False)
    refused("is a link that belongs to user 12345", find, {}, tmp_path)


@by_root
@pytest.mark.parametrize("mode", [0o1777, 0o777])
@pytest.mark.parametrize("planted", ["file", "link"])
def test_what_another_user_left_in_a_shared_folder_is_passed_over(tmp_path, caplog, mode, planted):
    project = tmp_path / "shared" / "project"
    project.mkdir(parents=True)
    project.parent.chmod(mode)
    (tmp_path / FILE_NAME).touch()
    path = project.parent / FILE_NAME
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


def test_a_file_that_was_found_leaves_of_the_registry_what_it_has_too(tmp_path, monkeypatch):
    forged, other = PIN._replace(sha256="f" * 64), OTHER._replace(sha256="a" * 64)
    lying = other._replace(plugin="toy", library="elsewhere.so", urls=("https://e.example/x",))
    monkeypatch.setattr(process, "registry", lambda there: Catalog([], (PIN, other)))

    def fetched(*rows: Artifact, is_named: bool = False) -> tuple[Artifact, ...]:
        pins = locking(tmp_path / FILE_NAME, *rows)._replace(is_named=is_named)
        return tuple(process.catalog(Installed(()), pins).rows())

    assert fetched(PIN, forged) == (PIN,)
    assert fetched(PIN._replace(library="elsewhere.so")) == (PIN,)  # the registry's row is used
    assert fetched(forged) == fetched(lying) == fetched() == ()
    assert fetched(forged, is_named=True) == (forged,)
    assert set(process.catalog(Installed(()), None).rows()) == {PIN, other}


def test_the_variable_names_the_file_but_to_no_elevated_process(path, tmp_path, monkeypatch):
    locking(path, PIN).write()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PJRT_HUB_LOCK", raising=False)
    assert (process.pins().rows, process.pins().is_named) == ((PIN,), False)
    monkeypatch.setenv("PJRT_HUB_LOCK", "0")
    assert process.pins() is None
    monkeypatch.setenv("PJRT_HUB_LOCK", FILE_NAME)
    assert process.pins().is_named
    monkeypatch.setattr(privilege, "reason", lambda: "it is elevated")
    assert process.pins() is None
    monkeypatch.delenv("PJRT_HUB_LOCK")
    assert process.lock_path(os.environ) is None


def test_a_library_is_hashed_only_where_it_could_be_locked(tmp_path):
    library = tmp_path / "toy.so"
    library.write_bytes(MEMBERS[wheels.LIBRARY])
    pins = locking(tmp_path / FILE_NAME, PIN)
    sha256 = Mock(side_effect=digest.of_file)
    assert pins.refusal(library, sha256) == ""
    library.write_bytes(b"x" * 100)
    told = f"{pins.path} does not lock the bytes of {library}"
    assert pins.refusal(library, sha256) == told
    library.write_bytes(b"x" * 101)
    assert pins.refusal(library, sha256) == told
    assert sha256.mock_calls == [call(library), call(library)]
    library.unlink()
    assert pins.refusal(library, sha256).endswith("No such file or directory")


def test_only_what_is_locked_is_chosen(tmp_path):
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
    with pytest.raises(errors.PluginNotFoundError, match="does not lock the bytes of"):
        choose(survey(locked), Request.read("better", {}))
    assert choose(survey(locked._replace(pins=None))).candidate.library_path == better


@pytest.mark.parametrize("intruder_first", [True, False])
def test_a_lock_decides_between_two_that_claim_a_name(tmp_path, intruder_first):
    honest, intruder = Site(tmp_path / "honest"), Site(tmp_path / "intruder")
    library = honest.plugin("toy-plugin", "toy")
    other = intruder.plugin("free-toy", "toy", priority=900, version="6.6")
    other.write_bytes(other.read_bytes() + b"\0")
    sites = (intruder, honest) if intruder_first else (honest, intruder)
    locked = world(tmp_path, *sites, pins=locking(tmp_path / FILE_NAME, plugin_row()))
    assert choose(survey(locked), Request.read("toy", {})).candidate.library_path == library


def test_a_library_that_changes_after_it_was_allowed_is_refused(path, tmp_path):
    """A remembered hash only counts for an unchanged file."""
    library = Site(tmp_path / "mine").write("toy.so", plugin_bytes())
    locked = world(tmp_path, pins=locking(path, plugin_row()), cache=Cache(tmp_path / "cache"))
    (allowed,) = survey(locked, library).candidates
    library.write_bytes(plugin_bytes()[:-1] + b"\1")
    with pytest.raises(errors.PluginLoadError, match="does not lock"):
        require_locked(allowed, library, locked)
