"""`doctor` meets what a load would meet, and nothing else."""

from typing import Any

import pytest
import wheels

from pjrt_hub.base.host import HostTag
from pjrt_hub.door import doctor, preflight
from pjrt_hub.door.doctor import diagnose
from pjrt_hub.door.policy import FoundPolicy
from pjrt_hub.door.preflight import Contact
from pjrt_hub.errors import PjrtError
from pjrt_hub.finding.contract.manifest import default_manifest
from pjrt_hub.finding.discovery.installed import Installed
from pjrt_hub.finding.discovery.registry_rows import manifest_of
from pjrt_hub.finding.discovery.select import Choice
from pjrt_hub.finding.discovery.source import Candidate, World
from pjrt_hub.finding.store.catalog import Catalog, shipped_registry

MEMBERS = wheels.contents(50_000)
WHEEL = wheels.build(MEMBERS)
PIN = wheels.pin(WHEEL, MEMBERS)


def test_a_library_that_is_not_the_pinned_one_is_not_met(tmp_path, cache, monkeypatch):
    (tmp_path / PIN.file_name).write_bytes(WHEEL)
    library = cache.publish(PIN, tmp_path / PIN.file_name).library_path
    candidate = Candidate(manifest_of(PIN, ()), "cached", (), library_path=library, artifact=PIN)

    def meet(*args: Any) -> None:
        raise AssertionError("it was met")

    monkeypatch.setenv("PJRT_HUB_CACHE", str(cache.root))
    monkeypatch.setenv("PJRT_HUB_LOCK", "0")
    monkeypatch.setattr(doctor, "choose", lambda name: Choice(candidate, (), "a test"))
    for name in ("initialize", "problems", "first_contact"):
        monkeypatch.setattr(preflight, name, meet)
    with pytest.raises(AssertionError, match="it was met"):
        diagnose("toy")
    library.chmod(0o644)
    library.write_bytes(bytes(library.stat().st_size))
    found = diagnose("toy")
    assert not found.ok
    last = found.steps[-1]
    assert (last.what, last.ok, last.hint) == ("library", False, f"pjrt-hub fetch {candidate.name}")
    assert f"{library} was not what is pinned" in last.detail
    assert not library.exists()


@pytest.mark.parametrize(
    ("name", "pinned", "command"),
    [
        ("cuda13", True, "pjrt-hub fetch cuda13"),
        ("cuda13", False, "pip install 'pjrt-hub[cuda13]'"),
        ("gpu", False, "pip install 'pjrt-hub[cuda]'"),
    ],
)
def test_the_command_for_a_missing_compiler(tmp_path, name, pinned, command):
    rows = Catalog([shipped_registry()]).rows()
    row = next(each for each in rows if each.plugin == "cuda13" and each.requires)
    candidate = Candidate(default_manifest(name), "cached", (), artifact=row if pinned else None)
    world = World({}, HostTag.current(), Installed(()))
    policy = FoundPolicy(
        candidate, Contact(tmp_path / "plugin.so", candidate.manifest, world, {}, ""), ()
    )
    for said in ("No PTX compilation provider is available.", "libdevice not found at ./x.bc"):
        assert policy.compile_hint(PjrtError(said)).startswith(f"`{command}` brings ptxas")
    assert policy.compile_hint(PjrtError("out of memory")) == ""
