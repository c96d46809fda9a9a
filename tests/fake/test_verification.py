"""No byte of a library runs before it was verified, and exactly the verified file is loaded.

What a loaded plugin requires stays in the cache until its process ends.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from stubbed import path, soon, stay

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.base import digest
from pjrt_hub.base.host import HostTag
from pjrt_hub.door import preflight
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact, Member, Requirement
from pjrt_hub.finding.store.pins import Pins
from pjrt_hub.kit.conformance import check, create_options
from pjrt_hub.kit.conformance.suite import Suite
from pjrt_hub.kit.conformance.verdict import Verdict

Swap = Callable[[Path, Path], None]


def rename(new: Path, library: Path) -> None:
    aside = library.with_name("aside.so")
    shutil.copy(new, aside)
    aside.replace(library)


def write(new: Path, library: Path) -> None:
    library.unlink()
    shutil.copy(new, library)


def link(new: Path, library: Path) -> None:
    library.unlink()
    library.symlink_to(new)


def archive(folder: Path, package: str, member: str, content: bytes) -> dict[str, object]:
    """Write a zip with one member into the folder; give the columns of its row."""
    file = folder / f"{package}.zip"
    with zipfile.ZipFile(file, "w") as out:
        out.writestr(member, content)
    return {
        "plugin": "stub",
        "platform": "stub",
        "package": package,
        "version": "1.0",
        "file_name": file.name,
        "size": file.stat().st_size,
        "sha256": digest.of_file(file),
        "members": (Member(member, len(content), hashlib.sha256(content).hexdigest()),),
        "license": "MIT",
    }


def lock(folder: Path, library: str, columns: dict[str, object], **more: object) -> dict[str, str]:
    """Write a lock file with a row for this machine; give the variable that names it."""
    host = HostTag.current()
    row = Artifact(**columns, library=library, host=host, api_note="not loaded", **more)
    Pins(folder / "named.lock", (), (), (row,)).write()
    return {"PJRT_HUB_LOCK": str(folder / "named.lock")}


@pytest.fixture
def met(tmp_path: Path) -> Path:
    """The file that the library makes as it is loaded, which takes a second."""
    return tmp_path / "met"


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """The file that the other library makes as soon as its code runs."""
    return tmp_path / "ran"


@pytest.fixture
def library(stub, tmp_path: Path, met: Path) -> Path:
    made = stub(f'ON_LOAD=fclose(fopen("{met}", "w")), usleep(1000000)', "_DEFAULT_SOURCE")
    return shutil.copy(made, tmp_path / "library.so")


@pytest.fixture
def other(stub, ran: Path) -> Path:
    return stub(f'ON_LOAD=fclose(fopen("{ran}", "w"))')


@pytest.fixture
def locked(library: Path, tmp_path: Path) -> dict[str, str]:
    """The variable that names a lock file with the library."""
    own = archive(tmp_path, "stub", library.name, library.read_bytes())
    return lock(tmp_path, library.name, own)


WAYS = {
    "load": lambda: pjrt_hub.load(path),
    "client": lambda: pjrt_hub.client(path),
    "topology": lambda: pjrt_hub.topology(path),
    "named": lambda: pjrt_hub.client("stub"),
}


def open_it(way):
    stay(WAYS[way]())


@pytest.fixture
def open_by(start, library: Path, locked: dict[str, str]) -> Callable[..., tuple[int, str]]:
    """`open_by("load")` opens the locked library that way; it gives the status and stderr."""

    def open_by(
        way: str, meanwhile: Callable[[], None] = lambda: None, **env: str
    ) -> tuple[int, str]:
        env = {**locked, "PJRT_HUB_PLUGIN_PATH": f"stub={library}", **env}
        child = start(library, open_it, way, env=env)
        meanwhile()
        stderr = child.communicate(timeout=60)[1]
        return child.returncode, stderr

    return open_by


@pytest.mark.parametrize("way", ["load", "client", "topology"])  # a name would fetch the locked one
def test_another_library_than_the_locked_one_never_runs(open_by, library, other, ran, met, way):
    rename(other, library)
    status, words = open_by(way)
    assert status == 1
    assert "does not lock the bytes of" in words
    assert not ran.exists()
    assert not met.exists()


@pytest.mark.parametrize("swap", [rename, write, link], ids=lambda swap: swap.__name__)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lock", ["named", "0"])
@pytest.mark.slow
@pytest.mark.night
def test_what_is_put_there_during_first_contact_never_runs(
    open_by, library: Path, other: Path, ran: Path, met: Path, swap: Swap, way: str, lock: str
) -> None:
    def meanwhile() -> None:
        soon(met.exists)  # the child has loaded it
        swap(other, library)

    status, words = open_by(way, meanwhile, **({"PJRT_HUB_LOCK": "0"} if lock == "0" else {}))
    assert status == 1
    assert f"{library} was changed or removed while it was to be loaded" in words
    assert not ran.exists()


@pytest.mark.parametrize("swap", [rename, write, link], ids=lambda swap: swap.__name__)
def test_the_child_meets_no_other_file_either(library, other, ran, swap, environment):
    seen = digest.identity(library)
    swap(other, library)
    with pytest.raises(errors.PluginLoadError, match="was changed or removed"):
        preflight.first_contact(library, (), environment, identity=seen)
    assert not ran.exists()
    assert preflight.first_contact(library, (), environment)["api_version"] == "0.117"
    assert ran.exists()


def test_the_children_that_ask_for_options_meet_no_other_file(library, other, ran, environment):
    seen = digest.identity(library)
    rename(other, library)
    with pytest.raises(errors.PluginLoadError, match="was changed or removed"):
        create_options.find(library, ["name"], environment, identity=seen)
    assert not ran.exists()


@pytest.mark.slow
def test_the_processes_that_check_a_plugin_meet_no_other_file(
    library: Path, other: Path, ran: Path, environment, monkeypatch
) -> None:
    monkeypatch.setenv("PJRT_HUB_LOCK", "0")
    suite = Suite(str(library))
    rename(other, library)
    results = list(suite.results(check.select(["plugin", "client"])))
    assert "was changed or removed" in results[0].text
    assert {each.verdict for each in results} <= {Verdict.FAIL, Verdict.SKIP}
    assert not ran.exists()


def make():
    pjrt_hub.Plugin(path)


def test_the_class_itself_opens_no_file(start, library: Path, met: Path) -> None:
    """Only `load` makes plugins: a second way would have to verify libraries as well."""
    child = start(library, make)
    stderr = child.communicate(timeout=60)[1]
    assert child.returncode == 1
    assert "TypeError: a Plugin is made of a library that was loaded, not of '/" in stderr
    assert stderr.endswith("hint: pjrt_hub.load(path) verifies and loads one\n")
    assert not met.exists()


@pytest.fixture
def requiring(stub, tmp_path: Path) -> dict[str, str]:
    """The variables that name a mirror and a lock file of a stub that requires another archive."""
    own = archive(tmp_path, "stub-plugin", "stub/stub.so", stub().read_bytes())
    needed = Requirement(**archive(tmp_path, "dep", "dep/lib/dep.so", b"dep"))
    named = lock(tmp_path, "stub/stub.so", own, requires=(needed,))
    return {**named, "PJRT_HUB_MIRRORS": str(tmp_path), "PIP_NO_INDEX": "1"}


def work(ready: str, done: str) -> None:
    client = pjrt_hub.client("stub")
    assert Path(client.plugin.path).parents[1].joinpath("dep/lib/dep.so").read_bytes() == b"dep"
    stay(client)
    Path(ready).touch()
    soon(Path(done).exists)


def test_entries_stay_while_a_process_has_the_plugin_loaded(
    start, requiring, environment, tmp_path: Path
) -> None:
    ready, done = tmp_path / "ready", tmp_path / "done"
    child = start(Path(path or "-"), work, ready, done, env=requiring)
    soon(lambda: ready.exists() or child.poll() is not None)
    cache = Cache(Path(environment["PJRT_HUB_CACHE"]))
    removal = cache.clear()
    kept = {entry.artifact.package for entry in cache.entries()}
    done.touch()
    stderr = child.communicate(timeout=60)[1]
    assert child.returncode == 0, stderr
    assert "Traceback" not in stderr
    assert kept == {"stub-plugin", "dep"}
    assert len(removal.kept) == 2
    cache.clear()
    assert cache.entries() == ()
