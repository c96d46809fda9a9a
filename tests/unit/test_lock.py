"""What `pjrt_hub.lock` writes: rows of a registry, and releases that it does not know."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
import wheels
from fetching import Interrupting, Phases
from loopback import Answer, Loopback
from packaging.version import Version
from trees import plugin_bytes

from pjrt_hub.base import progress
from pjrt_hub.base.host import HostTag
from pjrt_hub.cli.status import NOT_CHOSEN, status_of
from pjrt_hub.door import lock
from pjrt_hub.errors import (
    ArchiveError,
    DigestMismatchError,
    DownloadError,
    LockFileError,
    PluginNotFoundError,
)
from pjrt_hub.finding.store import pins
from pjrt_hub.finding.store.catalog import Artifact, Catalog
from pjrt_hub.finding.store.transfer import installers

HERE = HostTag.current()
ARM = HostTag.parse("linux-aarch64-glibc2.17")
MEMBERS = wheels.contents(100)
FIRST = wheels.pin(wheels.build(MEMBERS), MEMBERS)._replace(package="toy-plugin")
OTHER = FIRST._replace(plugin="alt", platform="alt", package="alt-plugin")


def row(version: str, **changed: object) -> Artifact:
    sha256 = hashlib.sha256(f"{version}{changed}".encode()).hexdigest()
    return FIRST._replace(version=version, sha256=sha256, **changed)


def wheel(version: str = "9.9", name: str = "toy_plugin", more: str = "") -> tuple[str, bytes]:
    """A wheel with the smallest plugin, for this machine; RECORD and all."""
    import base64

    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n"
    members = {
        "toy/lib/toy.so": plugin_bytes() + more.encode(),
        f"{name}-{version}.dist-info/METADATA": metadata.encode(),
        f"{name}-{version}.dist-info/WHEEL": tags.encode(),
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b'=').decode()},"
        f"{len(body)}\n"
        for path, body in members.items()
    )
    info = f"{name}-{version}.dist-info/RECORD"
    members[info] = f"{record}{info},,\n".encode()
    return f"{name}-{version}-py3-none-manylinux_2_17_{HERE.arch}.whl", wheels.build(members)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A project of its own, and an environment without an index."""
    for name in [name for name in os.environ if name.startswith(("PJRT_", "PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "UV_NO_CONFIG": "1",
        "PJRT_HUB_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    # pip takes a second to say that it has no index.
    monkeypatch.setattr(installers, "read_sources", installers.read_mirror_sources)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch):
    """Make the registry hold these rows."""

    def hold(*rows: Artifact) -> None:
        monkeypatch.setattr(lock, "registry", lambda there: Catalog([], rows))

    return hold


@pytest.fixture
def index(server: Loopback, monkeypatch: pytest.MonkeyPatch):
    """An index with one wheel of the toy plugin, and what it says of its digest."""

    def serve(name: str, body: bytes, sha256: str = "") -> str:
        server.file(f"/files/{name}", body)
        told = sha256 or hashlib.sha256(body).hexdigest()
        page = f'<a href="/files/{name}#sha256={told}">{name}</a>'.encode()
        kind = {"Content-Type": "text/html"}
        server.script("/simple/toy-plugin/", Answer(page, headers=kind))
        monkeypatch.setenv("PJRT_HUB_MIRRORS", server.url("/simple"))
        return told

    return serve


class Asked(list[str]):
    """Answers that it trusts what it is shown, and keeps it."""

    def __init__(self, answer: bool = True) -> None:
        self.answer = answer

    def __call__(self, text: str) -> bool:
        self.append(text)
        return self.answer


def locked(path: Path | None = None) -> dict[tuple[str, str], str]:
    read = pins.read(path or Path("pylock.pjrt.toml"))
    return {(each.plugin, each.host.arch): each.version for each in read.rows}


def test_the_newest_row_of_each_kind_of_machine(registry, here: Path):
    registry(row("1.0"), row("2.0"), row("10.0", host=ARM), row("3.0", host=ARM), OTHER)
    answer = lock.lock("toy")
    assert answer.pins.path == here / "pylock.pjrt.toml"
    assert locked() == {("toy", "x86_64"): "2.0", ("toy", "aarch64"): "10.0"}
    assert lock.lock().changes == ()
    assert lock.lock("toy", check=True).changes == ()


def test_without_a_request_all_of_the_registry(registry):
    registry(row("1.0"), OTHER)
    lock.lock()
    assert set(locked()) == {("toy", "x86_64"), ("alt", "x86_64")}


def test_hosts(registry):
    registry(
        row("1.0"), row("1.0", host=ARM), row("2.0", host=HostTag.parse("linux-x86_64-glibc2.40"))
    )
    lock.lock("toy", hosts=["linux-x86_64-glibc2.28"])
    assert locked() == {("toy", "x86_64"): "1.0"}
    lock.lock("toy", hosts=["linux-arm64"])
    assert locked() == {("toy", "aarch64"): "1.0"}
    with pytest.raises(LockFileError, match="no build for the hosts that were named"):
        lock.lock("toy", hosts=["macos-aarch64"])
    with pytest.raises(LockFileError, match="is not a host tag"):
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
    # A release that is named stands before what the platform's name would bring.
    lock.lock("toy", "toy-plugin==1.0", upgrade=True)
    assert locked() == {("toy", "x86_64"): "1.0"}


def test_a_release_of_the_index_is_shown_then_recorded(registry, index, server: Loopback):
    registry(row("1.0"))
    sha256 = index(*wheel())
    asked = Asked()
    lock.lock("toy-plugin==9.9", trust=asked)
    (told,) = asked
    for part in ("in no registry", "toy-plugin 9.9", sha256, "toy/lib/toy.so: sha256 "):
        assert part in told
    (found,) = pins.read(Path("pylock.pjrt.toml")).rows
    assert (found.plugin, found.platform, found.sha256) == ("toy", "toy", sha256)
    assert (found.library, found.host.arch) == ("toy/lib/toy.so", HERE.arch)
    assert [member.path for member in found.members] == ["toy/lib/toy.so"]
    assert found.urls == ()  # it is looked for where packages are
    # It has no table behind GetPjrtApi, which the note says; that is for loading to refuse.
    assert found.api_note.startswith("not loaded: ")
    before = len(server.requests)
    assert lock.lock(check=True, trust=None).changes == ()
    assert len(server.requests) == before


def test_addresses_for_installers_hold_no_secret(
    registry, server: Loopback, monkeypatch: pytest.MonkeyPatch
):
    """The index's login is left out, because installers ask for it themselves."""
    name, body = wheel()
    pinned = row("9.9")._replace(file_name=name, sha256=hashlib.sha256(body).hexdigest())
    registry(pinned)

    def found(link: str) -> tuple[dict[str, str], tuple[str, ...]]:
        page = Answer(
            f'<a href="{link}">{name}</a>'.encode(), headers={"Content-Type": "text/html"}
        )
        server.script("/simple/toy-plugin/", page)
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


def test_addresses_that_are_missing_come_with_the_next_lock(registry, index):
    name, body = wheel()
    registry(row("9.9")._replace(file_name=name, sha256=hashlib.sha256(body).hexdigest()))
    assert lock.lock("toy").pins.left_out == ("toy",)
    index(name, body)
    assert lock.lock(check=True).changes == ()  # which asks nobody
    assert lock.lock().changes == ("it lacks addresses for pip and uv",)
    assert pins.read(Path("pylock.pjrt.toml")).left_out == ()
    assert lock.lock().changes == ()


INSTALLERS = {
    "pip": ("26.1", "install", "--no-deps", "--target", "site", "-r"),
    "uv": ("0.9", "pip", "sync", "--target", "site"),
}


@pytest.mark.slow
@pytest.mark.parametrize("installer", INSTALLERS)
def test_installers_get_the_locked_bytes_or_nothing(registry, index, here: Path, installer: str):
    oldest, *arguments = INSTALLERS[installer]
    if not find_spec(installer) or Version(version(installer)) < Version(oldest):
        pytest.skip(f"{installer} {oldest} is not installed")
    command = [sys.executable, "-m", installer, *arguments, "pylock.pjrt.toml"]
    name, body = wheel()
    registry(row("1.0"))
    index(name, body)
    lock.lock("toy-plugin==9.9", trust=Asked())
    env = {**os.environ, "PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"}
    subprocess.run(command, env=env, timeout=100, check=True)
    assert (here / "site/toy/lib/toy.so").read_bytes() == plugin_bytes()
    shutil.rmtree("site")
    index(name, wheel(more="1")[1])
    done = subprocess.run(command, env=env, timeout=100, capture_output=True, text=True)
    assert done.returncode != 0
    assert re.search("hash|size mismatch", done.stderr, re.IGNORECASE)
    assert not (here / "site/toy/lib/toy.so").exists()


def test_an_index_cannot_take_a_name_over_from_an_earlier_one(
    registry, index, server: Loopback, monkeypatch: pytest.MonkeyPatch
):
    registry(row("1.0"))
    sha256 = index(*wheel("2.0"))
    with Loopback() as other:
        name, body = wheel("99.0")
        page = f'<a href="/{name}">{name}</a>'.encode()
        other.script("/simple/toy-plugin/", Answer(page, headers={"Content-Type": "text/html"}))
        other.file(f"/{name}", body)
        both = f"{server.url('/simple')},{other.url('/simple')}"
        monkeypatch.setenv("PJRT_HUB_MIRRORS", both)
        with pytest.raises(DownloadError, match=r"no wheel of toy-plugin 99\.0"):
            lock.lock("toy-plugin==99.0", trust=Asked())
        lock.lock("toy-plugin==2.0", trust=Asked())
        assert [each.sha256 for each in pins.read(Path("pylock.pjrt.toml")).rows] == [sha256]
        assert other.requests == []


def test_one_wheel_of_those_for_each_python(
    registry, server: Loopback, monkeypatch: pytest.MonkeyPatch
):
    registry(row("1.0"))
    name, body = wheel()
    ours = f"cp{sys.version_info.major}{sys.version_info.minor}"
    names = [name.replace("py3-none", f"{each}-{each}") for each in ("cp39", ours, "cp399")]
    page = "".join(f'<a href="/{each}">{each}</a>' for each in names)
    kind = {"Content-Type": "text/html"}
    server.script("/simple/toy-plugin/", Answer(page.encode(), headers=kind))
    for each in names:
        server.file(f"/{each}", body)
    monkeypatch.setenv("PJRT_HUB_MIRRORS", server.url("/simple"))
    lock.lock("toy-plugin==9.9", trust=Asked())
    (found,) = pins.read(Path("pylock.pjrt.toml")).rows
    assert found.file_name == names[1]
    with pytest.raises(LockFileError, match="no wheel for the hosts that were named"):
        lock.lock("toy-plugin==9.9", hosts=["linux-riscv64"], trust=Asked())


@pytest.mark.parametrize("trust", [None, Asked(False)])
def test_nothing_is_trusted_silently(registry, index, trust):
    registry(row("1.0"))
    index(*wheel())
    with pytest.raises(LockFileError, match="nobody has said that it is to be trusted"):
        lock.lock("toy-plugin==9.9", trust=trust)
    assert not Path("pylock.pjrt.toml").exists()


def test_an_index_that_contradicts_its_file(registry, index):
    registry(row("1.0"))
    index(*wheel(), "0" * 64)
    with pytest.raises(DigestMismatchError, match="its index says 0000"):
        lock.lock("toy-plugin==9.9", trust=Asked())


def test_a_file_that_changes_after_it_was_locked_is_not_taken(registry, index, tmp_path: Path):
    from pjrt_hub.finding.store.cache.cache import Cache
    from pjrt_hub.finding.store.transfer.fetch import obtain

    registry(row("1.0"))
    name, body = wheel()
    index(name, body)
    lock.lock("toy-plugin==9.9", trust=Asked())
    (pinned,) = pins.read(Path("pylock.pjrt.toml")).rows
    altered = bytearray(body)
    altered[100] ^= 1
    index(name, bytes(altered))
    with pytest.raises(DigestMismatchError):
        obtain(pinned, Cache(tmp_path / "cache"), env=os.environ)
    assert Cache(tmp_path / "cache").entries() == ()


def test_who_waits_sees_what_is_done(registry, index, monkeypatch: pytest.MonkeyPatch):
    heard: dict[str, Phases] = {}
    monkeypatch.setattr(
        progress, "choose_progress", lambda label: heard.setdefault(label, Phases())
    )
    registry(row("1.0"))
    index(*wheel())
    lock.lock("toy-plugin==9.9", trust=Asked())
    assert {label: (steps.phases, steps.finished) for label, steps in heard.items()} == {
        "toy-plugin==9.9": (["looking"], 1),
        wheel()[0]: (["looking", "fetching", "checking", "done"], 1),
        "pylock.pjrt.toml": (["looking", "done"], 1),
    }


def test_ctrl_c_says_that_nothing_is_kept(registry, server, monkeypatch: pytest.MonkeyPatch):
    registry(OTHER)
    name, body = wheel(name="newcomer")
    server.file(f"/get/{name}", body)
    monkeypatch.setattr(progress, "choose_progress", lambda label: Interrupting("checking"))
    with pytest.raises(KeyboardInterrupt) as caught:
        lock.lock(server.url(f"/get/{name}"), trust=Asked())
    assert caught.value.__notes__ == [
        f"interrupted: nothing of {name} is kept; run it again to start over"
    ]
    assert not Path("pylock.pjrt.toml").exists()


def test_an_address(registry, server: Loopback):
    registry(OTHER)
    name, body = wheel(name="newcomer")
    server.file(f"/get/{name}", body)
    url = server.url(f"/get/{name}")
    lock.lock(url, trust=Asked())
    (found,) = pins.read(Path("pylock.pjrt.toml")).rows
    assert (found.plugin, found.package, found.version) == ("toy", "newcomer", "9.9")
    assert found.urls == (url,)


@pytest.mark.parametrize(
    "url",
    ["https://me:SECRET@host/x.whl", "https://host/x.whl?token=SECRET", "https://SECRET@h/x.so"],
)
def test_a_secret_is_not_written_down(registry, url: str):
    registry(OTHER)
    with pytest.raises(LockFileError, match="would be written into the lock file") as caught:
        lock.lock(url, trust=Asked())
    assert "SECRET" not in str(caught.value)
    assert not Path("pylock.pjrt.toml").exists()


def test_an_address_that_gives_nothing(registry, server: Loopback):
    registry(OTHER)
    server.script("/gone.whl", Answer(b"", "404 Not Found"))
    with pytest.raises(DownloadError, match="404 Not Found"):
        lock.lock(server.url("/gone.whl"), trust=Asked())
    with pytest.raises(DownloadError, match=r"plain http to example\.org is refused"):
        lock.lock("http://example.org/x.whl", trust=Asked())
    with pytest.raises(DownloadError, match="cannot be read: No such file"):
        lock.lock("./absent.whl", trust=Asked())
    server.file("/page.whl", b"<html>log in</html>")
    with pytest.raises(DownloadError, match="a page and no archive"):
        lock.lock(server.url("/page.whl"), trust=Asked())


def test_archives_that_are_no_plugin(registry, here: Path):
    registry(OTHER)
    (here / "no.so").write_bytes(b"\x7fELF")
    with pytest.raises(ArchiveError, match="no ELF libraries that export GetPjrtApi"):
        lock.lock("./no.so", trust=Asked())
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
def test_names_that_are_taken_or_look_like_one(registry, here: Path, name: str, told: str):
    registry(OTHER)
    (here / "mine.so").write_bytes(plugin_bytes())
    with pytest.raises(LockFileError, match=told):
        lock.lock(f"{name}=mine.so", trust=Asked())
    if "mistaken" in told:
        lock.lock(f"{name}=mine.so", trust=Asked(), allow_look_alike=True)
        assert set(locked()) == {(name, HERE.arch)}


def test_a_path_means_the_same_in_every_folder(
    registry, here: Path, monkeypatch: pytest.MonkeyPatch
):
    registry(OTHER)
    (here / "mine.so").write_bytes(plugin_bytes())
    pinned = lock.lock("mine=mine.so", trust=Asked()).pins
    assert pinned.requests == (f"mine={here}/mine.so",)
    (here / "deep").mkdir()
    monkeypatch.chdir(here / "deep")
    assert lock.lock(check=True).changes == ()


def test_two_requests_for_one_plugin(registry, here: Path):
    registry(OTHER)
    (here / "one.so").write_bytes(plugin_bytes())
    (here / "two.so").write_bytes(plugin_bytes() + b"\0")
    with pytest.raises(LockFileError, match="are both the plugin 'mine'"):
        lock.lock("mine=one.so", "mine=two.so", trust=Asked())


def test_an_unknown_package_is_not_looked_for(registry, server: Loopback, index):
    registry(OTHER)
    index(*wheel())
    with pytest.raises(PluginNotFoundError, match="the registry has no package 'toy-plugin'"):
        lock.lock("toy-plugin==9.9", trust=Asked())
    assert server.requests == []


@pytest.mark.parametrize(
    ("request_", "hint"),
    [
        ("nosuch", "ask for PACKAGE==VERSION, or for an archive by its path or address"),
        ("alt-plugni", "did you mean 'alt-plugin'?"),
        ("\u0430lt", "did you mean 'alt'?"),
        ("alt-plugni==1.0", "did you mean 'alt-plugin'?"),
    ],
)
def test_a_name_that_no_row_has(registry, here: Path, request_: str, hint: str):
    registry(OTHER)
    with pytest.raises(PluginNotFoundError) as caught:
        lock.lock(request_, trust=Asked())
    assert caught.value.hint == hint
    assert str(caught.value).isascii()  # a look-alike letter is shown as what it is
    assert status_of(caught.value) == NOT_CHOSEN
    assert not (here / "pylock.pjrt.toml").exists()
