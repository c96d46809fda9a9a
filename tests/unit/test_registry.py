"""A signed registry, from its keys to a plugin that is fetched: who is trusted, and for what."""

from __future__ import annotations

import base64
import json
import logging
import os
import runpy
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import wheels
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fetching import Phases
from loopback import Answer, Loopback, Request

from pjrt_hub import registries
from pjrt_hub.base import progress
from pjrt_hub.base.host import HostTag
from pjrt_hub.cli.__main__ import run
from pjrt_hub.door import client, process
from pjrt_hub.door.lock import lock
from pjrt_hub.errors import (
    CacheError,
    ManifestError,
    OfflineError,
    PluginNotFoundError,
    RegistryError,
)
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.catalog import Artifact, read_rows, write_rows
from pjrt_hub.finding.store.registry.remote import FRESH_SECONDS, Reading, Remote, Trust

MEMBERS = wheels.contents(5000)
WHEEL = wheels.build(MEMBERS)


def row(**changed: object) -> Artifact:
    """A row that runs here."""
    return wheels.pin(WHEEL, MEMBERS, host=HostTag.current(), **changed)


@dataclass
class Place:
    """A registry that is served, and its user."""

    folder: Path
    server: Loopback

    @property
    def served(self) -> Path:
        return self.folder / "served"

    @property
    def url(self) -> str:
        return self.server.url("/r")

    def rows(self, *rows: Artifact) -> str:
        path = self.folder / "rows.toml"
        path.write_text(write_rows(rows))
        return str(path)

    def publish(self, *rows: Artifact, days: int = 14) -> None:
        if rows:
            registries.add(self.served, self.rows(*rows))
        registries.publish(self.served, [self.folder / "keys"], days={"timestamp": days})

    def asked(self) -> list[str]:
        """What was asked for since the last call."""
        paths = [request.path for request in self.server.requests]
        self.server.requests.clear()
        return paths


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with Loopback() as server:
        place = Place(tmp_path, server)
        registries.init(place.served, tmp_path / "keys")
        place.publish(row())

        class Files(dict):  # type: ignore[type-arg]
            def get(self, path: str, default: object = None) -> object:
                def answer(request: Request) -> Answer:
                    file = place.served / path.removeprefix("/r/")
                    if path == f"/files/{row().file_name}":
                        return Answer(WHEEL)
                    return Answer(file.read_bytes()) if file.is_file() else Answer(status="404 No")

                return answer

        server.routes = Files()
        for name in ("PJRT_HUB_LOCK", "PJRT_HUB_REGISTRY_ROOT", "PJRT_HUB_PLATFORMS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setenv("PJRT_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("PJRT_HUB_MIRRORS", server.url("/files"))
        monkeypatch.setenv("PJRT_HUB_REGISTRY", place.url)
        monkeypatch.chdir(tmp_path)
        process.warn.cache_clear()
        yield place


@pytest.fixture
def trusted(place: Place) -> Place:
    registries.trust(place.url, place.served / "root.json")
    return place


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Sets the clock of clients forward."""
    now = time.time() + seconds
    monkeypatch.setattr(Remote.__init__, "__kwdefaults__", {"now": lambda: now})


DAY = 24 * 3600


# The user


def test_a_plugin_of_a_trusted_registry_is_fetched_and_then_used_without_the_network(trusted):
    path = client.fetch("toy")
    assert path.read_bytes() == MEMBERS[wheels.LIBRARY]
    asked = trusted.asked()
    assert asked[0] == "/r/metadata/2.root.json"
    assert asked[-1] == f"/files/{row().file_name}"
    assert client.fetch("toy") == path
    assert trusted.asked() == []
    assert client.fetch("toy", offline=True) == path


def test_a_warm_hit_asks_nobody_however_old_the_reading(trusted, monkeypatch):
    client.fetch("toy")
    trusted.asked()
    later(monkeypatch, 10 * DAY)
    client.fetch("toy")
    assert trusted.asked() == []


def test_an_old_reading_is_repeated_before_something_is_fetched(trusted, monkeypatch):
    registries.refresh()
    trusted.publish(row(version="2.0", file_name="toy_plugin-2.0-py3-none-any.whl"))
    trusted.asked()
    assert client.choose("toy").candidate.version == "1.0"
    assert trusted.asked() == []
    later(monkeypatch, FRESH_SECONDS + 1)
    assert client.choose("toy", offline=True).candidate.version == "1.0"
    assert trusted.asked() == []
    assert client.choose("toy").candidate.version == "2.0"
    assert "/r/metadata/timestamp.json" in trusted.asked()


def test_who_waits_for_the_registry_sees_it(trusted, monkeypatch):
    heard: list[tuple[str, Phases]] = []

    def listen(label: str) -> Phases:
        heard.append((label, Phases()))
        return heard[-1][1]

    monkeypatch.setattr(progress, "choose_progress", listen)
    client.fetch("toy")
    assert [(label, steps.phases[0], steps.finished) for label, steps in heard] == [
        ("registry", "looking", 1),
        ("Toy.Plugin", "looking", 1),
    ]


def test_unknown_keys_are_told_with_the_command(place):
    with pytest.raises(RegistryError, match="its root keys are not known") as caught:
        client.fetch("toy")
    assert caught.value.fault == "untrusted"
    assert f"pjrt-hub registry trust {place.url} --root" in caught.value.hint
    assert place.asked() == []


def test_a_root_of_the_environment_counts(place, monkeypatch):
    monkeypatch.setenv("PJRT_HUB_REGISTRY_ROOT", str(place.served / "root.json"))
    assert client.fetch("toy").exists()


@pytest.mark.parametrize("what", ["writable", "missing", "large", "malformed"])
def test_a_root_that_cannot_be_trusted(place, monkeypatch, what):
    path = place.folder / "mine.json"
    path.write_bytes((place.served / "root.json").read_bytes())
    if what == "writable":
        path.chmod(0o666)
    elif what == "missing":
        path.unlink()
    else:
        path.write_bytes(b"{" * (600_000 if what == "large" else 10))
    monkeypatch.setenv("PJRT_HUB_REGISTRY_ROOT", str(path))
    with pytest.raises(RegistryError) as caught:
        client.fetch("toy")
    assert caught.value.fault == ("malformed" if what == "malformed" else "untrusted")


def test_what_is_trusted_is_for_its_user_alone(trusted):
    (path,) = (trusted.folder / "config").rglob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["url"] == trusted.url
    path.chmod(0o602)
    with pytest.raises(RegistryError, match="others may have written"):
        client.fetch("toy")


def test_trust_wants_a_root_signed_by_itself(place):
    path = place.folder / "other.json"
    path.write_bytes((place.served / "metadata" / "timestamp.json").read_bytes())
    with pytest.raises(RegistryError, match="not the root metadata"):
        registries.trust(place.url, path)
    with pytest.raises(RegistryError, match=r"plain http to example\.org is refused"):
        registries.trust("http://example.org/r", place.served / "root.json")


# When it cannot be read


READ = """
import os, sys
from pjrt_hub.door import process
print(*(row.plugin for row in process.registry(os.environ).rows()))
for name in ("http", "httpx", "urllib.request", "pjrt_hub.finding.store.transfer.transport"):
    assert name not in sys.modules, name
"""


def test_what_was_read_of_a_registry_is_had_without_the_modules_of_the_network(trusted):
    registries.refresh()
    command = [sys.executable, "-c", READ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "toy" in done.stdout.split()


def test_an_unreachable_registry_keeps_what_is_cached_and_refuses_what_is_new(trusted, monkeypatch):
    new = {"plugin": "new", "platform": "new", "package": "new", "file_name": "new-1.whl"}
    other = wheels.build(MEMBERS, stored=True)
    trusted.publish(wheels.pin(other, MEMBERS, host=HostTag.current(), **new))
    client.fetch("toy")
    later(monkeypatch, FRESH_SECONDS + 1)
    monkeypatch.setattr(trusted.server, "routes", {})
    assert client.fetch("toy").exists()
    with pytest.raises(RegistryError) as caught:
        client.fetch("new")
    assert caught.value.fault == "unreachable"


def test_an_unreachable_registry_is_asked_once_for_a_lock_file(trusted, monkeypatch, capsys):
    client.fetch("toy")
    later(monkeypatch, FRESH_SECONDS + 1)
    monkeypatch.setattr(trusted.server, "routes", {})
    locked = lock("toy")
    assert [each.plugin for each in locked.pins.rows] == ["toy"]
    assert capsys.readouterr().err.count("is not used") == 1


def test_an_expired_registry_keeps_what_is_cached_with_a_warning(trusted, monkeypatch, caplog):
    client.fetch("toy")
    later(monkeypatch, 15 * DAY)
    with caplog.at_level(logging.WARNING, logger="pjrt_hub"):
        assert client.fetch("toy").exists()
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert trusted.url in caplog.text
    assert "has expired" in caplog.text
    monkeypatch.setattr(trusted.server, "routes", {})
    with pytest.raises(RegistryError):
        client.fetch("not_there")


def test_offline_nothing_is_asked(trusted):
    with pytest.raises((PluginNotFoundError, OfflineError)):
        client.fetch("toy", offline=True)
    assert trusted.asked() == []


def test_without_the_package_the_next_step_is_told(trusted, monkeypatch):
    monkeypatch.delattr("pjrt_hub.finding.store.registry.reader", raising=False)
    monkeypatch.setitem(sys.modules, "pjrt_hub.finding.store.registry.reader", None)
    with pytest.raises(RegistryError, match="not used") as caught:
        registries.refresh()
    assert caught.value.fault == "packages"
    assert "pjrt-hub[registry]" in caught.value.hint


def test_without_the_package_none_is_made_and_the_next_step_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pjrt_hub.finding.store.registry.publisher", None)
    with pytest.raises(RegistryError, match="are not installed") as caught:
        registries.init(tmp_path / "r", tmp_path / "keys")
    assert caught.value.fault == "packages"
    assert "pjrt-hub[registry]" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_reading_is_read_anew(trusted):
    registries.refresh()
    (path,) = trusted.folder.rglob("reading.json")
    for text in ("", "[", "{}", '{"rows": [{}], "checked": 1, "expires": 2}', "[" * 100_000):
        path.write_text(text)
        assert process.remote(os.environ).last_reading() is None
    assert registries.refresh()[1].rows == (row(),)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no modes")
def test_a_reading_that_others_could_have_written_is_not_used(trusted):
    registries.refresh()
    folder = process.remote(os.environ).folder
    folder.chmod(0o777)
    with pytest.raises(CacheError, match="not safe to use"):
        client.choose("toy")
    with pytest.raises(CacheError, match="not safe to use"):
        registries.refresh()


def test_a_clock_that_was_set_back_makes_no_reading_fresh():
    elsewhere = Remote(Trust("https://example.org", b""), Path("/nowhere"), now=lambda: 1000.0)
    for checked, fresh in ((990.0, True), (1010.0, False), (1000.0 - FRESH_SECONDS, False)):
        assert elsewhere.is_fresh(Reading((), checked, 2000.0)) == fresh
    assert not elsewhere.is_fresh(Reading((), 990.0, 1000.0))
    assert not elsewhere.is_fresh(None)


# Whose name it is


def test_a_shipped_name_stays_with_the_shipped_registry(trusted):
    trusted.publish(row(plugin="mine", platform="cuda", file_name="mine-1.0-py3-none-any.whl"))
    with pytest.raises(RegistryError) as caught:
        registries.refresh()
    assert caught.value.fault == "names"
    assert "'cuda'" in caught.value.message
    assert "the shipped one by jax-cuda" in caught.value.message
    assert trusted.url in caught.value.message
    assert "--platform cuda" in caught.value.hint
    assert process.remote(os.environ).last_reading() is None


def test_a_name_that_the_user_gave_away_belongs_to_the_other_registry(trusted):
    trusted.publish(row(plugin="mine", platform="cuda", file_name="mine-1.0-py3-none-any.whl"))
    registries.trust(trusted.url, trusted.served / "root.json", platforms=["cuda"])
    registries.refresh()
    rows = process.registry(os.environ).rows()
    assert {each.package for each in rows if each.platform == "cuda"} == {"Toy.Plugin"}
    assert "cpu" in {each.plugin for each in rows}


# The publisher


def test_keys_are_for_their_owner_alone(place):
    keys = sorted((place.folder / "keys").glob("*.pem"))
    roles = [path.name.partition("-")[0] for path in keys]
    assert roles == ["root", "root", "snapshot", "targets", "timestamp"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    keys[0].chmod(0o640)
    with pytest.raises(RegistryError, match="others may read it"):
        place.publish()
    keys[0].chmod(0o600)
    os.truncate(keys[0], 1 << 42)  # a sparse file, which nothing could hold
    with pytest.raises(RegistryError, match="it cannot be read: larger than 67,108,864 bytes"):
        place.publish()


def test_a_root_that_is_too_large_is_not_read(place, tmp_path):
    root = tmp_path / "root.json"
    with root.open("wb") as file:
        file.truncate(1 << 42)  # a sparse file, which nothing could hold
    with pytest.raises(RegistryError, match="cannot be read: larger than 512,000 bytes"):
        registries.trust("https://example.org/r", root)


def test_encrypted_keys_need_their_passphrase(tmp_path):
    keys, folder = tmp_path / "keys", tmp_path / "r"
    registries.init(folder, keys, passphrase=b"secret")
    assert all(b"ENCRYPTED" in path.read_bytes() for path in keys.glob("*.pem"))
    for wrong in (None, b"other"):
        with pytest.raises(RegistryError, match="cannot be used"):
            registries.publish(folder, [keys], passphrase=wrong)
    assert registries.publish(folder, [keys], passphrase=b"secret").rows == 0


def test_too_few_keys_sign_nothing(place):
    (target,) = (place.folder / "keys").glob("targets-*.pem")
    target.unlink()
    before = (place.served / "metadata" / "timestamp.json").read_bytes()
    with pytest.raises(RegistryError, match="1 of these keys must sign the targets") as caught:
        place.publish()
    assert caught.value.fault == "keys"
    assert (place.served / "metadata" / "timestamp.json").read_bytes() == before


def test_publishing_needs_no_root_key(place):
    for path in (place.folder / "keys").glob("root-*.pem"):
        path.unlink()
    place.publish(row(version="2.0", file_name="toy_plugin-2.0-py3-none-any.whl"))
    with pytest.raises(RegistryError, match="too few of the root's keys"):
        registries.rotate(place.served, "targets", [place.folder / "keys"])


def test_a_second_registry_is_not_made_over_the_first(place):
    with pytest.raises(RegistryError, match="there is a registry already"):
        registries.init(place.served, place.folder / "others")


@pytest.mark.parametrize("name", ["cuad", "cudaa", "rocrn", "t0y"])
def test_a_look_alike_is_not_added(place, name):
    new = row(plugin=name, platform=name, package="other", file_name="other-1.0-py3-none-any.whl")
    with pytest.raises(ManifestError, match="could be mistaken for"):
        registries.add(place.served, place.rows(new))
    assert len(read_rows(place.served / "registry.toml")) == 1
    assert registries.add(place.served, place.rows(new), allow_look_alike=True) == (new,)


def test_several_packages_may_build_a_plugin_of_this_registry(place):
    new = row(package="other", file_name="other-1.0-py3-none-any.whl")
    assert registries.add(place.served, place.rows(new)) == (new,)


def test_no_other_package_builds_a_shipped_plugin(place):
    new = row(plugin="cpu", platform="cpu", package="other", file_name="other-1.0-py3-none-any.whl")
    builders = "fastatomstruct-xla-cpu and lammps-jax-pjrt-cpu and xla-cpu-pjrt"
    with pytest.raises(ManifestError, match=f"'cpu', which {builders} build already"):
        registries.add(place.served, place.rows(new))


def test_rows_say_where_files_are_but_not_on_the_publishers_machine(place):
    new = row(urls=("file:///home/me/toy.whl", "https://example.org/toy.whl"))
    (added,) = registries.add(place.served, place.rows(new), at="https://example.com/files/")
    assert added.urls == (
        f"https://example.com/files/{new.file_name}",
        "https://example.org/toy.whl",
    )


def test_the_commands_from_keys_to_rows(tmp_path, monkeypatch, capsys):
    folder, keys = str(tmp_path / "r"), str(tmp_path / "k")
    rows = tmp_path / "rows.toml"
    rows.write_text(write_rows([row()]))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for command in (
        ["init", folder, "--keys", keys],
        ["add", folder, str(rows)],
        ["publish", folder, "--keys", keys, "--expires-days", "3"],
        ["rotate", folder, "root", "--keys", keys, "--threshold", "2"],
        ["trust", "https://example.org/r", "--root", f"{folder}/root.json"],
    ):
        assert run(["registry", *command]) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert "1 rows signed" in told
    assert "trusted: root 2, 2 of these keys" in told
    assert run(["registry", "init", folder, "--keys", keys]) == 4
    assert "there is a registry already" in capsys.readouterr().err


def test_a_file_is_written_in_one_step(tmp_path):
    path = tmp_path / "kept"
    disk.replace(path, b"one")
    disk.replace(path, b"two", 0o600)
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        disk.replace(tmp_path / "folder", b"three")
    assert sorted(os.listdir(tmp_path)) == ["folder", "kept"]


# Attestations


def test_an_attestation_tells_who_published_a_wheel(monkeypatch):
    tool = Path(__file__).parents[2] / "tools" / "registry.py"
    if not tool.exists():
        pytest.skip("not in a checkout")
    monkeypatch.setattr(sys, "path", list(sys.path))
    read = runpy.run_path(str(tool))["provenance"]
    said = provenance(["aa" * 32])
    assert read(json.dumps(said).encode(), "aa" * 32) == (
        "GitHub someone/toy release.yml",
        "https://token.example.org",
    )
    with pytest.raises(SystemExit, match="not about the file"):
        read(json.dumps(said).encode(), "bb" * 32)
    for broken in (b"", b"[]", b"{}", b'{"attestation_bundles": [{"publisher": 1}]}'):
        with pytest.raises(SystemExit, match="malformed"):
            read(broken, "aa" * 32)


def provenance(digests: list[str]) -> dict[str, object]:
    """What an index serves beside a wheel, with a certificate of our own."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "toy")])
    issuer = b"https://token.example.org"
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.UnrecognizedExtension(
                x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8"),
                bytes((12, len(issuer))) + issuer,
            ),
            critical=False,
        )
        .sign(key, None)
        .public_bytes(serialization.Encoding.DER)
    )
    subjects = [{"name": "toy", "digest": {"sha256": each}} for each in digests]
    statement = base64.b64encode(json.dumps({"subject": subjects}).encode()).decode()
    attestation = {
        "envelope": {"statement": statement},
        "verification_material": {"certificate": base64.b64encode(certificate).decode()},
    }
    publisher = {"kind": "GitHub", "repository": "someone/toy", "workflow": "release.yml"}
    return {"attestation_bundles": [{"publisher": publisher, "attestations": [attestation]}]}
