"""No byte of a library runs before it was compared, and what was compared is what is loaded."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from stubbed import path, stay

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.base import digest
from pjrt_hub.base.host import HostTag
from pjrt_hub.door import preflight
from pjrt_hub.finding.store.catalog import Artifact, Member
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


@pytest.fixture
def met(tmp_path: Path) -> Path:
    """The file that the library makes where it is loaded, slowly."""
    return tmp_path / "met"


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """The file that the other library makes where one byte of it runs."""
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
    member = Member("library.so", library.stat().st_size, digest.of_file(library))
    host = HostTag.current()
    row = Artifact(
        plugin="stub",
        platform="stub",
        package="stub",
        version="1.0",
        file_name="stub-1.0.tar.gz",
        size=9,
        sha256="a" * 64,
        members=(member,),
        library="library.so",
        host=host,
        license="MIT",
        api_note="not loaded",
    )
    pins = Pins(tmp_path / "named.lock", (), (), (row,))
    pins.write()
    return {"PJRT_HUB_LOCK": str(pins.path)}


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
    """`open_by("load")` opens the locked library that way: the status and the last words."""

    def open_by(
        way: str, meanwhile: Callable[[], None] = lambda: None, **env: str
    ) -> tuple[int, str]:
        env = {**locked, "PJRT_HUB_PLUGIN_PATH": f"stub={library}", **env}
        child = start(library, open_it, way, env=env)
        meanwhile()
        stderr = child.communicate(timeout=60)[1]
        return child.returncode, stderr

    return open_by


def wait_for(path: Path) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.parametrize("way", ["load", "client", "topology"])  # a name would fetch the locked one
def test_another_library_than_the_locked_one_never_runs(
    open_by, library: Path, other: Path, ran: Path, met: Path, way: str
) -> None:
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
def test_what_is_put_there_during_first_contact_never_runs(
    open_by, library: Path, other: Path, ran: Path, met: Path, swap: Swap, way: str, lock: str
) -> None:
    def meanwhile() -> None:
        wait_for(met)  # the child has it loaded
        swap(other, library)

    status, words = open_by(way, meanwhile, **({"PJRT_HUB_LOCK": "0"} if lock == "0" else {}))
    assert status == 1
    assert f"{library} was changed or removed while it was to be loaded" in words
    assert not ran.exists()


@pytest.mark.parametrize("swap", [rename, write, link], ids=lambda swap: swap.__name__)
def test_the_child_meets_no_other_file_either(
    library: Path, other: Path, ran: Path, swap: Swap, environment
) -> None:
    seen = digest.identity(library)
    swap(other, library)
    with pytest.raises(errors.PluginLoadError, match="was changed or removed"):
        preflight.first_contact(library, (), environment, identity=seen)
    assert not ran.exists()
    assert preflight.first_contact(library, (), environment)["api_version"] == "0.117"
    assert ran.exists()


def test_the_children_that_ask_for_options_meet_no_other_file(
    library: Path, other: Path, ran: Path, environment
) -> None:
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
    """`load` makes the plugins; there is no second way, which would have to verify as well."""
    child = start(library, make)
    stderr = child.communicate(timeout=60)[1]
    assert child.returncode == 1
    assert "TypeError: a Plugin is made of a library that was loaded, not of '/" in stderr
    assert stderr.endswith("hint: pjrt_hub.load(path) verifies and loads one\n")
    assert not met.exists()
