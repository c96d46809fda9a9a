"""`doctor` meets what a load would meet, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import wheels

from pjrt_hub.door import doctor, preflight
from pjrt_hub.door.doctor import diagnose
from pjrt_hub.finding.discovery.registry_rows import manifest_of
from pjrt_hub.finding.discovery.select import Choice
from pjrt_hub.finding.discovery.source import Candidate
from pjrt_hub.finding.store.cache.cache import Cache

MEMBERS = wheels.contents(50_000)
WHEEL = wheels.build(MEMBERS)
PIN = wheels.pin(WHEEL, MEMBERS)


def test_a_library_that_is_not_the_pinned_one_is_not_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / PIN.file_name
    archive.write_bytes(WHEEL)
    cache = Cache(tmp_path / "cache")
    library = cache.publish(PIN, archive).library_path
    candidate = Candidate(
        manifest_of(PIN, ()), "cached", ("the cache",), library_path=library, artifact=PIN
    )

    def choose(name: object) -> Choice:
        return Choice(candidate, (), "a test")

    def meet(*args: Any) -> None:
        raise AssertionError("it was met")

    monkeypatch.setenv("PJRT_HUB_CACHE", str(cache.root))
    monkeypatch.setenv("PJRT_HUB_LOCK", "0")
    monkeypatch.setattr(doctor, "choose", choose)
    for name in ("initialize", "problems", "first_contact"):
        monkeypatch.setattr(preflight, name, meet)
    with pytest.raises(AssertionError, match="it was met"):
        diagnose("toy")
    library.chmod(0o644)
    library.write_bytes(bytes(library.stat().st_size))
    found = diagnose("toy")
    assert not found.ok
    last = found.steps[-1]
    assert (last.what, last.ok) == ("library", False)
    assert f"{library} was not what is pinned" in last.detail
    assert last.hint == f"pjrt-hub fetch {candidate.name}"
    assert not library.exists()
