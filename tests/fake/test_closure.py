"""What a loaded plugin requires stays in the cache until its process ends."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
from stubbed import path, soon, stay

import pjrt_hub
from pjrt_hub.base import digest
from pjrt_hub.base.host import HostTag
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact, Member, Requirement
from pjrt_hub.finding.store.pins import Pins


def archive(folder: Path, package: str, member: str, content: bytes) -> dict[str, object]:
    """The columns of a zip with one member, which lies in the folder then."""
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


@pytest.fixture
def variables(stub, tmp_path: Path) -> dict[str, str]:
    """Name a place and a lock file of a stub that requires another archive."""
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    row = Artifact(
        **archive(mirror, "stub-plugin", "stub/stub.so", stub().read_bytes()),
        library="stub/stub.so",
        host=HostTag.current(),
        api_note="not loaded",
        requires=(Requirement(**archive(mirror, "dep", "dep/lib/dep.so", b"dep")),),
    )
    lock = tmp_path / "named.lock"
    Pins(lock, (), (), (row,)).write()
    return {"PJRT_HUB_LOCK": str(lock), "PJRT_HUB_MIRRORS": str(mirror), "PIP_NO_INDEX": "1"}


def work(ready: str, done: str) -> None:
    client = pjrt_hub.client("stub")
    assert Path(client.plugin.path).parents[1].joinpath("dep/lib/dep.so").read_bytes() == b"dep"
    stay(client)
    Path(ready).touch()
    soon(Path(done).exists)


def test_entries_stay_while_a_process_has_the_plugin_loaded(
    start, variables, environment, tmp_path: Path
) -> None:
    ready, done = tmp_path / "ready", tmp_path / "done"
    child = start(Path(path or "-"), work, ready, done, env=variables)
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
