"""What `pjrt_hub.lock` writes: rows of the registry, and releases that the registry lacks."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest
import wheels
from fetching import Interrupting, Phases
from loopback import Answer, Loopback
from packaging.version import Version
from trees import plugin_bytes

from pjrt_hub import errors
from pjrt_hub.base import progress
from pjrt_hub.base.host import HostTag
from pjrt_hub.cli.status import NOT_CHOSEN, status_of
from pjrt_hub.door import lock
from pjrt_hub.finding.store import pins
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact, Catalog
from pjrt_hub.finding.store.transfer.fetch import obtain

HERE = HostTag.current()
ARM = HostTag.parse("linux-aarch64-glibc2.17")
MEMBERS = wheels.contents(100)
FIRST = wheels.pin(wheels.build(MEMBERS), MEMBERS)._replace(package="toy-plugin")
OTHER = FIRST._replace(plugin="alt", platform="alt", package="alt-plugin")


def row(version: str, **changed: object) -> Artifact:
    sha256 = hashlib.sha256(f"{version}{changed}".encode()).hexdigest()
    return FIRST._replace(version=version, sha256=sha256, **changed)


def wheel(version: str = "9.9", name: str = "toy_plugin", more: str = "") -> tuple[str, bytes]:
    """The name and the bytes of a wheel with a minimal plugin for this machine."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n"
    members = {
        "toy/lib/toy.so": plugin_bytes() + more.encode(),
        f"{name}-{version}.dist-info/METADATA": metadata.encode(),
        f"{name}-{version}.dist-info/WHEEL": tags.encode(),
    }
    return f"{name}-{version}-py3-none-manylinux_2_17_{HERE.arch}.whl", wheels.build(members)


def page(*links: str) -> Answer:
    """An index's project page, whose links end with the names of files."""
    names = [re.split("[?#]", link)[0].rpartition("/")[2] for link in links]
    anchors = [f'<a href="{link}">{name}</a>' for link, name in zip(links, names, strict=True)]
    return Answer("".join(anchors).encode(), headers={"Content-Type": "text/html"})


def rows() -> tuple[Artifact, ...]:
    """The rows in the lock file."""
    return pins.read(Path("pylock.pjrt.toml")).rows


def locked() -> dict[tuple[str, str], str]:
    return {(each.plugin, each.host.arch): each.version for each in rows()}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, alone: pytest.MonkeyPatch):
    """A new project, in an environment without an index."""
    project = tmp_path / "project"
    project.mkdir()
    alone.chdir(project)
    return project


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch):
    """Put rows into the registry, which otherwise has one row of another plugin."""

    def hold(*rows: Artifact) -> None:
        monkeypatch.setattr(lock, "registry", lambda there: Catalog([], rows))

    hold(OTHER)
    return hold


@pytest.fixture
def index(registry, server: Loopback, monkeypatch: pytest.MonkeyPatch):
    """An index with one wheel of the toy plugin; the registry has another release of it."""
    registry(row("1.0"))

    def serve(name: str, body: bytes, sha256: str = "") -> str:
        server.file(f"/files/{name}", body)
        told = sha256 or hashlib.sha256(body).hexdigest()
        server.script("/simple/toy-plugin/", page(f"/files/{name}#sha256={told}"))
        monkeypatch.setenv("PJRT_HUB_MIRRORS", server.url("/simple"))
        return told

    return serve


def yes(text: str) -> bool:
    """A confirmation that always trusts what it is shown."""
    return True


def test_the_newest_row_of_each_kind_of_machine(registry, here):
    registry(row("1.0"), row("2.0"), row("10.0", host=ARM), row("3.0", host=ARM), OTHER)
    answer = lock.lock("toy")
    assert answer.pins.path == here / "pylock.pjrt.toml"
    assert locked() == {("toy", "x86_64"): "2.0", ("toy", "aarch64"): "10.0"}
    assert lock.lock().changes == ()
    assert lock.lock("toy", check=True).changes == ()
    everything = lock.lock(output=Path("pylock.all.toml")).pins
    assert {each.plugin for each in everything.rows} == {"toy", "alt"}


def test_hosts(registry):
    newer = HostTag.parse("linux-x86_64-glibc2.40")
    registry(row("1.0"), row("1.0", host=ARM), row("2.0", host=newer))
    lock.lock("toy", hosts=["linux-x86_64-glibc2.28"])
    assert locked() == {("toy", "x86_64"): "1.0"}
    lock.lock("toy", hosts=["linux-arm64"])
    assert locked() == {("toy", "aarch64"): "1.0"}
    with pytest.raises(errors.LockFileError, match="no build for the hosts that were named"):
        lock.lock("toy", hosts=["macos-aarch64"])
    with pytest.raises(errors.LockFileError, match="is not a host tag"):
        lock.lock("toy", hosts=["linux"])


def test_what_is_locked_stays_until_it_is_upgraded(registry):
    registry(row("1.0"))
    lock.lock("toy")
    registry(row("1.0"), row("2.0"))
    assert lock.lock().changes == ()
    (change,) = lock.lock(upgrade=True, check=True).changes
    assert change.startswith("toy for linux-x86_64: toy-plugin 1.0 sha256 ")
    assert locked() == {("toy", "x86_64"): "1.0"}
    lock.lock(upgrade=True)
    assert locked() == {("toy", "x86_64"): "2.0"}
    lock.lock("toy-plugin==1.0")
    assert locked() == {("toy", "x86_64"): "1.0"}
    # A release that is named wins over the newest one, which the name "toy" would choose.
    lock.lock("toy", "toy-plugin==1.0", upgrade=True)
    assert locked() == {("toy", "x86_64"): "1.0"}


def test_a_release_of_the_index_is_shown_then_recorded(index, server):
    sha256 = index(*wheel())
    trust = Mock(return_value=True)
    lock.lock("toy-plugin==9.9", trust=trust)
    [(told,)] = (call.args for call in trust.mock_calls)
    for part in ("in no registry", "toy-plugin 9.9", sha256, "toy/lib/toy.so: sha256 "):
        assert part in told
    (found,) = rows()
    assert (found.plugin, found.platform, found.sha256) == ("toy", "toy", sha256)
    assert (found.library, found.host.arch) == ("toy/lib/toy.so", HERE.arch)
    assert [member.path for member in found.members] == ["toy/lib/toy.so"]
    assert found.urls == ()  # the index is searched for it at a fetch
    # The note says that GetPjrtApi gives no table; only loading refuses such a library.
    assert found.api_note.startswith("not loaded: ")
    before = len(server.requests)
    assert lock.lock(check=True, trust=None).changes == ()
    assert len(server.requests) == before


def test_addresses_for_installers_hold_no_secret(registry, server, monkeypatch):
    """The index's login is left out, because installers get it themselves."""
    name, body = wheel()
    pinned = row("9.9")._replace(file_name=name, sha256=hashlib.sha256(body).hexdigest())
    registry(pinned)

    def found(link: str) -> tuple[dict[str, str], tuple[str, ...]]:
        server.script("/simple/toy-plugin/", page(link))
        file = lock.lock("toy", output=Path("pylock.new.toml")).pins
        assert pins.read(file.path).rows == (pinned,)
        text = file.path.read_text()
        assert "SECRET" not in text
        file.path.unlink()
        return dict(file.addresses), file.left_out

    monkeypatch.setenv("PJRT_HUB_MIRRORS", server.url("/simple").replace("//", "//me:SECRET@"))
    there = {pinned.sha256: server.url(f"/f/{name}")}
    assert found(f"/f/{name}") == found(f"/f/{name}#sha256={pinned.sha256}") == (there, ())
    assert found(f"/f/{name}?token=SECRET") == ({}, ("toy",))
    assert found(f"/f/{name}#sha256={'0' * 64}") == ({}, ("toy",))


def test_a_folder_of_this_machine_is_no_address_for_installers(registry, tmp_path, monkeypatch):
    name, body = wheel()
    registry(row("9.9")._replace(file_name=name, sha256=hashlib.sha256(body).hexdigest()))
    (tmp_path / name).write_bytes(body)
    monkeypatch.setenv("PJRT_HUB_MIRRORS", str(tmp_path))
    assert lock.lock("toy").pins.left_out == ("toy",)


def test_addresses_that_are_missing_come_with_the_next_lock(registry, index):
    name, body = wheel()
    registry(row("9.9")._replace(file_name=name, sha256=hashlib.sha256(body).hexdigest()))
    assert lock.lock("toy").pins.left_out == ("toy",)
    index(name, body)
    assert lock.lock(check=True).changes == ()  # a check does not ask the index
    assert lock.lock().changes == ("it lacks addresses for pip and uv",)
    assert pins.read(Path("pylock.pjrt.toml")).left_out == ()
    assert lock.lock().changes == ()


INSTALLERS = {
    "pip": ("26.1", "install", "--no-deps", "--target", "site", "-r"),
    "uv": ("0.9", "pip", "sync", "--target", "site"),
}


@pytest.mark.slow
@pytest.mark.parametrize("installer", INSTALLERS)
def test_installers_get_the_locked_bytes_or_nothing(index, here, installer):
    oldest, *arguments = INSTALLERS[installer]
    if not find_spec(installer) or Version(version(installer)) < Version(oldest):
        pytest.skip(f"{installer} {oldest} is not installed")
    command = [sys.executable, "-m", installer, *arguments, "pylock.pjrt.toml"]
    name, body = wheel()
    index(name, body)
    lock.lock("toy-plugin==9.9", trust=yes)
    env = {**os.environ, "PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"}
    subprocess.run(command, env=env, timeout=100, check=True)
    assert (here / "site/toy/lib/toy.so").read_bytes() == plugin_bytes()
    shutil.rmtree("site")
    index(name, wheel(more="1")[1])
    done = subprocess.run(command, env=env, timeout=100, capture_output=True, text=True)
    assert done.returncode != 0
    assert re.search("hash|size mismatch", done.stderr, re.IGNORECASE)
    assert not (here / "site/toy/lib/toy.so").exists()


def test_an_index_cannot_take_a_name_over_from_an_earlier_one(index, server, monkeypatch):
    sha256 = index(*wheel("2.0"))
    with Loopback() as other:
        name, body = wheel("99.0")
        other.script("/simple/toy-plugin/", page(f"/{name}"))
        other.file(f"/{name}", body)
        monkeypatch.setenv("PJRT_HUB_MIRRORS", f"{server.url('/simple')},{other.url('/simple')}")
        with pytest.raises(errors.DownloadError, match=r"no wheel of toy-plugin 99\.0"):
            lock.lock("toy-plugin==99.0", trust=yes)
        lock.lock("toy-plugin==2.0", trust=yes)
        assert [each.sha256 for each in rows()] == [sha256]
        assert other.requests == []


def test_one_wheel_of_those_for_each_python(registry, server, monkeypatch):
    registry(row("1.0"))
    name, body = wheel()
    ours = f"cp{sys.version_info.major}{sys.version_info.minor}"
    names = [name.replace("py3-none", f"{each}-{each}") for each in ("cp39", ours, "cp399")]
    server.script("/simple/toy-plugin/", page(*(f"/{each}" for each in names)))
    for each in names:
        server.file(f"/{each}", body)
    monkeypatch.setenv("PJRT_HUB_MIRRORS", server.url("/simple"))
    lock.lock("toy-plugin==9.9", trust=yes)
    (found,) = rows()
    assert found.file_name == names[1]
    with pytest.raises(errors.LockFileError, match="no wheel for the hosts that were named"):
        lock.lock("toy-plugin==9.9", hosts=["linux-riscv64"], trust=yes)


@pytest.mark.parametrize(
    ("sha256", "trust", "error", "told"),
    [
        ("", None, errors.LockFileError, "nobody has said that it is to be trusted"),
        ("", lambda text: False, errors.LockFileError, "nobody has said that it is to be trusted"),
        ("0" * 64, yes, errors.DigestMismatchError, "its index says 0000"),
    ],
)
def test_nothing_is_trusted_silently(index, sha256, trust, error, told):
    index(*wheel(), sha256)
    with pytest.raises(error, match=told):
        lock.lock("toy-plugin==9.9", trust=trust)
    assert not Path("pylock.pjrt.toml").exists()


def test_a_file_that_changes_after_it_was_locked_is_not_taken(index, tmp_path):
    name, body = wheel()
    index(name, body)
    lock.lock("toy-plugin==9.9", trust=yes)
    (pinned,) = rows()
    index(name, bytes(each ^ (at == 100) for at, each in enumerate(body)))
    with pytest.raises(errors.DigestMismatchError):
        obtain(pinned, Cache(tmp_path / "cache"), env=os.environ)
    assert Cache(tmp_path / "cache").entries() == ()


def test_who_waits_sees_what_is_done(index, monkeypatch):
    heard: dict[str, Phases] = {}
    monkeypatch.setattr(
        progress, "choose_progress", lambda label: heard.setdefault(label, Phases())
    )
    index(*wheel())
    lock.lock("toy-plugin==9.9", trust=yes)
    assert {label: (steps.phases, steps.finished) for label, steps in heard.items()} == {
        "toy-plugin==9.9": (["looking"], 1),
        wheel()[0]: (["looking", "fetching", "checking", "done"], 1),
        "pylock.pjrt.toml": (["looking", "done"], 1),
    }


def test_an_address_is_locked_or_after_ctrl_c_nothing_of_it(server, monkeypatch):
    name, body = wheel(name="newcomer")
    server.file(f"/get/{name}", body)
    url = server.url(f"/get/{name}")
    with monkeypatch.context() as pressed:
        pressed.setattr(progress, "choose_progress", lambda label: Interrupting("checking"))
        with pytest.raises(KeyboardInterrupt) as caught:
            lock.lock(url, trust=yes)
    nothing = f"interrupted: nothing of {name} is kept; run it again to start over"
    assert caught.value.__notes__ == [nothing]
    assert not Path("pylock.pjrt.toml").exists()
    lock.lock(url, trust=yes)
    (found,) = rows()
    assert (found.plugin, found.package, found.version) == ("toy", "newcomer", "9.9")
    assert found.urls == (url,)


WRITTEN = "would be written into the lock file"


@pytest.mark.parametrize(
    ("request_", "error", "told"),
    [
        ("https://me:SECRET@host/x.whl", errors.LockFileError, WRITTEN),
        ("https://host/x.whl?token=SECRET", errors.LockFileError, WRITTEN),
        ("https://SECRET@h/x.so", errors.LockFileError, WRITTEN),
        ("{server}/gone.whl", errors.DownloadError, "404 Not Found"),
        ("{server}/page.whl", errors.DownloadError, "a page and no archive"),
        ("http://example.org/x.whl", errors.DownloadError, "plain http to example.org is refused"),
        ("./absent.whl", errors.DownloadError, "cannot be read: No such file"),
        ("./no.so", errors.ArchiveError, "no ELF libraries that export GetPjrtApi"),
    ],
)
def test_an_archive_that_cannot_be_locked_is_told(server, here, request_, error, told):
    server.file("/page.whl", b"<html>log in</html>")
    (here / "no.so").write_bytes(b"\x7fELF")
    with pytest.raises(error, match=told) as caught:
        lock.lock(request_.format(server=server.url()), trust=yes)
    assert "SECRET" not in str(caught.value)
    assert not (here / "pylock.pjrt.toml").exists()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("alt", "a name that the registry gives to alt-plugin"),
        ("a1t", "could be mistaken for 'alt' of alt-plugin"),
        ("atl", "could be mistaken for 'alt'"),
        ("alts", "could be mistaken for 'alt'"),
    ],
)
def test_names_that_are_taken_or_look_like_one(here, name, told):
    (here / "mine.so").write_bytes(plugin_bytes())
    with pytest.raises(errors.LockFileError, match=told):
        lock.lock(f"{name}=mine.so", trust=yes)
    if "mistaken" in told:
        lock.lock(f"{name}=mine.so", trust=yes, allow_look_alike=True)
        assert set(locked()) == {(name, HERE.arch)}


def test_a_path_means_the_same_in_every_folder(here, monkeypatch):
    (here / "mine.so").write_bytes(plugin_bytes())
    pinned = lock.lock("mine=mine.so", trust=yes).pins
    assert pinned.requests == (f"mine={here}/mine.so",)
    (here / "deep").mkdir()
    monkeypatch.chdir(here / "deep")
    assert lock.lock(check=True).changes == ()


def test_two_requests_for_one_plugin(here):
    (here / "one.so").write_bytes(plugin_bytes())
    (here / "two.so").write_bytes(plugin_bytes() + b"\0")
    with pytest.raises(errors.LockFileError, match="are both the plugin 'mine'"):
        lock.lock("mine=one.so", "mine=two.so", trust=yes)


@pytest.mark.parametrize(
    ("request_", "hint"),
    [
        ("nosuch", "ask for PACKAGE==VERSION, or for an archive by its path or address"),
        ("toy-plugin==9.9", "did you mean 'alt-plugin'?"),
        ("alt-plugni", "did you mean 'alt-plugin'?"),
        ("\u0430lt", "did you mean 'alt'?"),
        ("alt-plugni==1.0", "did you mean 'alt-plugin'?"),
    ],
)
def test_a_name_that_no_row_has_is_not_looked_for(registry, index, server, here, request_, hint):
    index(*wheel())
    registry(OTHER)
    with pytest.raises(errors.PluginNotFoundError) as caught:
        lock.lock(request_, trust=yes)
    assert caught.value.hint == hint
    assert ("the registry has no package" in str(caught.value)) == ("==" in request_)
    assert str(caught.value).isascii()  # a look-alike letter is escaped
    assert status_of(caught.value) == NOT_CHOSEN
    assert not (here / "pylock.pjrt.toml").exists()
    assert server.requests == []
