"""States of a signed registry that must not be believed, and those that must: each named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import wheels
from loopback import Answer, Loopback
from publisher import Publisher
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import DelegatedRole, Delegations, MetaFile, TargetFile

from pjrt_hub.errors import RegistryError
from pjrt_hub.finding.store.registry.reader import TARGET

MEMBERS = wheels.contents(1000)
ROW = wheels.pin(wheels.build(MEMBERS), MEMBERS)
NEXT = wheels.pin(
    wheels.build(MEMBERS, stored=True),
    MEMBERS,
    version="2.0",
    file_name="toy_plugin-2.0-py3-none-manylinux_2_17_x86_64.whl",
)
TAKEN = wheels.pin(wheels.build(MEMBERS), MEMBERS, platform="cpu")
OWNER = wheels.pin(wheels.build(MEMBERS), MEMBERS, plugin="cpu", platform="cpu", package="owner")
NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=50)
#: Of the tests that have begun; the last one takes the summary.
TALLIES: list[Callable[[str], None]] = []
COUNTS: dict[str, int] = {"refused": 0, "believed": 0, "healed": 0}


def stranger() -> CryptoSigner:
    return CryptoSigner.generate_ed25519()


# What is old


def timestamp_rollback(p: Publisher) -> None:
    back = p.kept("timestamp.json")
    p.publish()
    p.refresh()
    back()


def snapshot_rollback(p: Publisher) -> None:
    p.publish()
    p.refresh()
    p.name_snapshot(MetaFile(1))


def targets_rollback(p: Publisher) -> None:
    p.publish()
    p.refresh()
    p.name_targets(MetaFile(1))


def targets_left_out(p: Publisher) -> None:
    p.refresh()

    def without(signed: Any) -> None:
        signed.version, signed.meta = 2, {"other.json": MetaFile(1)}

    p.name_snapshot(p.forge("1.snapshot.json", without, to="2.snapshot.json"))


def root_rollback(p: Publisher) -> None:
    p.copy("1.root.json", "2.root.json")


def root_from_the_future(p: Publisher) -> None:
    p.forge("1.root.json", lambda root: setattr(root, "version", 3), to="2.root.json")


def expired(role: str) -> Callable[[Publisher], None]:
    def state(p: Publisher) -> None:
        if role == "root":
            root = {"version": 2, "expires": LONG_AGO}

            def old(signed: Any) -> None:
                for name, value in root.items():
                    setattr(signed, name, value)

            p.forge("1.root.json", old, to="2.root.json")
            return
        days = {"targets": 90, "snapshot": 90, "timestamp": 90, role: 7}
        p.publish(now=LONG_AGO.replace(microsecond=0), **days)

    return state


# What does not belong together


def mixed(role: str) -> Callable[[Publisher], None]:
    def state(p: Publisher) -> None:
        p.publish()
        p.copy(f"1.{role}.json", f"2.{role}.json")

    return state


def mixed_without_digests(role: str) -> Callable[[Publisher], None]:
    def state(p: Publisher) -> None:
        p.publish()
        p.copy(f"2.{role}.json", f"3.{role}.json")
        (p.name_snapshot if role == "snapshot" else p.name_targets)(MetaFile(3))

    return state


def as_another_role(p: Publisher) -> None:
    p.copy("1.snapshot.json", "timestamp.json")


# Who signed


def signed_by(role: str, signers: Callable[[Publisher], list[CryptoSigner]]) -> Any:
    def state(p: Publisher) -> None:
        p.publish()
        meta = p.forge(p.newest(role), signers=signers(p))
        if role == "snapshot":
            p.name_snapshot(meta)
        elif role == "targets":
            p.name_targets(meta)

    return state


def too_few(p: Publisher) -> None:
    """Two keys of the targets are wanted, and one signed."""
    p.repository().rotate("targets", p.keys, threshold=1)
    signer = p.keys.create("targets")

    def two(root: Any) -> None:
        root.version += 1
        root.add_key(signer.public_key, "targets")
        root.roles["targets"].threshold = 2

    p.forge("2.root.json", two, to="3.root.json")


def twice_by_one(p: Publisher) -> None:
    too_few(p)
    one = p.signers("targets")[0]
    meta = p.forge("2.targets.json", signers=[one])
    file = json.loads(p.path("2.targets.json").read_text())
    file["signatures"] *= 2
    p.path("2.targets.json").write_text(json.dumps(file))
    p.name_targets(meta)


def seized(p: Publisher, signers: list[CryptoSigner]) -> None:
    thief = stranger()

    def theirs(root: Any) -> None:
        root.version = 2
        for keyid in list(root.roles["root"].keyids):
            root.revoke_key(keyid, "root")
        root.add_key(thief.public_key, "root")

    p.forge("1.root.json", theirs, signers=[*signers, thief], to="2.root.json")


def root_seized(p: Publisher) -> None:
    seized(p, [])


def root_not_signed_by_itself(p: Publisher) -> None:
    old = p.signers("root")
    seized(p, old)
    file = json.loads(p.path("2.root.json").read_text())
    ours = {signer.public_key.keyid for signer in old}
    file["signatures"] = [each for each in file["signatures"] if each["keyid"] in ours]
    p.path("2.root.json").write_text(json.dumps(file))


def no_signature(p: Publisher) -> None:
    p.forge("timestamp.json", signers=[])


def altered(p: Publisher) -> None:
    file = json.loads(p.path("timestamp.json").read_text())
    file["signed"]["version"] += 1
    p.path("timestamp.json").write_text(json.dumps(file))


# What a server sends


def answer(path: Callable[[Publisher], str], answer: Answer) -> Callable[[Publisher], None]:
    def state(p: Publisher) -> None:
        p.publish()
        p.overrides[path(p)] = answer

    return state


def metadata(name: str) -> Callable[[Publisher], str]:
    return lambda p: f"metadata/{name}"


def rows_file(p: Publisher) -> str:
    (path,) = (p.folder / "targets").glob("*.toml")
    return f"targets/{path.name}"


def truncated(path: Callable[[Publisher], str]) -> Callable[[Publisher], None]:
    def state(p: Publisher) -> None:
        p.publish()
        body = (p.folder / path(p)).read_bytes()
        p.overrides[path(p)] = Answer(body[: len(body) // 2])

    return state


def broken_off(p: Publisher) -> None:
    body = p.path("timestamp.json").read_bytes()
    p.overrides["metadata/timestamp.json"] = Answer(body, cut=10)


def another_byte(p: Publisher) -> None:
    body = bytearray((p.folder / rows_file(p)).read_bytes())
    body[-5] ^= 1
    p.overrides[rows_file(p)] = Answer(bytes(body))


# What is signed, and makes no sense


def targets_with(change: Callable[[Any], object]) -> Callable[[Publisher], None]:
    def state(p: Publisher) -> None:
        def changed(signed: Any) -> None:
            signed.version = 2
            change(signed)

        p.name_targets(p.forge("1.targets.json", changed, to="2.targets.json"))

    return state


def only_by_a_delegate(name: str) -> Callable[[Publisher], None]:
    def change(signed: Any) -> None:
        key = stranger().public_key
        role = DelegatedRole(name, [key.keyid], 1, False, paths=["*"])
        signed.targets = {}
        signed.delegations = Delegations({key.keyid: key}, {name: role})

    return targets_with(change)


def file_elsewhere(signed: Any) -> None:
    signed.targets = {f"../../../{TARGET}": TargetFile.from_data(TARGET, b"x", ["sha256"])}


def huge(signed: Any) -> None:
    signed.targets[TARGET].length = 1 << 40


def draft(text: str) -> Callable[[Publisher], None]:
    def state(p: Publisher) -> None:
        content = text.encode()
        target = TargetFile.from_data(TARGET, content, ["sha256"])
        (p.folder / "targets" / f"{target.hashes['sha256']}.{TARGET}").write_bytes(content)
        targets_with(lambda signed: signed.targets.update({TARGET: target}))(p)

    return state


def other_specification(p: Publisher) -> None:
    p.forge("timestamp.json", lambda signed: setattr(signed, "spec_version", "2.0.0"))


def takes_a_name(p: Publisher) -> None:
    p.publish([TAKEN])


@dataclass(frozen=True)
class Fault:
    """What a state is called when it is refused, and how it comes about."""

    fault: str
    make: Callable[[Publisher], None]


TIMESTAMP = metadata("timestamp.json")
FAULTS = {
    "timestamp rolled back": Fault("rollback", timestamp_rollback),
    "snapshot rolled back": Fault("rollback", snapshot_rollback),
    "targets rolled back": Fault("rollback", targets_rollback),
    "targets left out of the snapshot": Fault("malformed", targets_left_out),
    "root rolled back": Fault("rollback", root_rollback),
    "root from the future": Fault("mix-and-match", root_from_the_future),
    "root expired": Fault("expired", expired("root")),
    "timestamp expired": Fault("expired", expired("timestamp")),
    "snapshot expired": Fault("expired", expired("snapshot")),
    "targets expired": Fault("expired", expired("targets")),
    "snapshot of another state": Fault("mix-and-match", mixed("snapshot")),
    "targets of another state": Fault("mix-and-match", mixed("targets")),
    "snapshot of another version": Fault("mix-and-match", mixed_without_digests("snapshot")),
    "targets of another version": Fault("mix-and-match", mixed_without_digests("targets")),
    "snapshot as timestamp": Fault("malformed", as_another_role),
    "timestamp by a stranger": Fault("signature", signed_by("timestamp", lambda p: [stranger()])),
    "snapshot by a stranger": Fault("signature", signed_by("snapshot", lambda p: [stranger()])),
    "targets by a stranger": Fault("signature", signed_by("targets", lambda p: [stranger()])),
    "targets by the key of the timestamp": Fault(
        "signature", signed_by("targets", lambda p: p.signers("timestamp"))
    ),
    "one of two signatures": Fault("signature", too_few),
    "twice the same signature": Fault("malformed", twice_by_one),
    "no signature": Fault("signature", no_signature),
    "altered after it was signed": Fault("signature", altered),
    "root keys replaced by a stranger": Fault("signature", root_seized),
    "new root not signed by its own keys": Fault("signature", root_not_signed_by_itself),
    "endless timestamp": Fault("endless", answer(TIMESTAMP, Answer(bytes(1 << 20), bare=True))),
    "endless root": Fault(
        "endless", answer(metadata("2.root.json"), Answer(bytes(1 << 20), bare=True))
    ),
    "endless snapshot": Fault(
        "endless", answer(metadata("2.snapshot.json"), Answer(bytes(1 << 20), bare=True))
    ),
    "endless rows": Fault("endless", answer(rows_file, Answer(bytes(1 << 20), bare=True))),
    "a signed length beyond all bounds": Fault("endless", targets_with(huge)),
    "timestamp cut": Fault("malformed", truncated(TIMESTAMP)),
    "snapshot cut": Fault("digest", truncated(metadata("2.snapshot.json"))),
    "rows cut": Fault("digest", truncated(rows_file)),
    "rows with another byte": Fault("digest", another_byte),
    "connection broken off": Fault("unreachable", broken_off),
    "no timestamp": Fault("unreachable", answer(TIMESTAMP, Answer(b"", "404 Not Found"))),
    "server out of order": Fault("unreachable", answer(TIMESTAMP, Answer(b"", "500 Oh"))),
    "no rows": Fault("unreachable", answer(rows_file, Answer(b"", "404 Not Found"))),
    "led away to plain http": Fault(
        "unreachable",
        answer(TIMESTAMP, Answer(b"", "302 Found", {"Location": "http://example.org/t.json"})),
    ),
    "a page of a proxy": Fault("malformed", answer(TIMESTAMP, Answer(b"<html>log in</html>"))),
    "nested beyond reason": Fault("malformed", answer(TIMESTAMP, Answer(b"[" * 16000))),
    "a role that climbs out of its folder": Fault("malformed", only_by_a_delegate("../../escape")),
    "a role with an absolute path": Fault("malformed", only_by_a_delegate("/etc/escape")),
    "rows signed by a delegate": Fault("malformed", only_by_a_delegate("delegate")),
    "a file that climbs out of its folder": Fault("malformed", targets_with(file_elsewhere)),
    "a specification of the future": Fault("malformed", other_specification),
    "rows that are no TOML": Fault("malformed", draft("[[artifact")),
    "rows with an unknown column": Fault("malformed", draft('[[artifact]]\nname = "x"\n')),
    "rows that take a shipped name": Fault("names", takes_a_name),
}


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    with Loopback() as server:
        yield Publisher(server, tmp_path, [ROW])


@pytest.fixture(scope="module", autouse=True)
def counted() -> Iterator[None]:
    yield
    text = "signed registries: {refused} states refused, {believed} that should be believed are, "
    TALLIES[-1](text.format(**COUNTS) + f"{COUNTS['healed']} healed by the next state")


@pytest.fixture(autouse=True)
def told(tally: Callable[[str], None]) -> None:
    TALLIES.append(tally)


def outside(folder: Path) -> set[Path]:
    """What lies beside the folders that publisher and client use."""
    return {path for path in folder.iterdir() if path.name not in ("served", "keys", "cache")}


@pytest.mark.parametrize("name", FAULTS)
def test_a_state_that_must_not_be_believed(publisher: Publisher, tmp_path: Path, name: str) -> None:
    fault = FAULTS[name]
    first = publisher.refresh()
    assert first.rows == (ROW,)
    fault.make(publisher)
    with pytest.raises(RegistryError) as caught:
        publisher.refresh(shipped=(OWNER,))
    assert caught.value.fault == fault.fault, caught.value
    assert publisher.url in str(caught.value)
    assert caught.value.hint
    # What was known before still is: the pins of what the cache holds.
    kept = publisher.remote.last_reading()
    assert kept is not None
    assert kept.rows == (ROW,)
    assert outside(tmp_path) == set()
    COUNTS["refused"] += 1


NEW_CLIENT = (
    "root expired", "timestamp expired", "targets of another state", "targets by a stranger",
    "one of two signatures", "altered after it was signed", "endless rows", "rows cut",
    "rows that take a shipped name",
)  # fmt: skip


@pytest.mark.parametrize("name", NEW_CLIENT)
def test_a_client_that_knows_nothing_believes_nothing(publisher: Publisher, name: str) -> None:
    FAULTS[name].make(publisher)
    with pytest.raises(RegistryError) as caught:
        publisher.refresh(shipped=(OWNER,))
    assert caught.value.fault == FAULTS[name].fault, caught.value
    assert publisher.remote.last_reading() is None


# What must be believed


def another_row(p: Publisher) -> None:
    p.publish([NEXT])


def rotated(role: str) -> Callable[[Publisher], None]:
    def state(p: Publisher) -> None:
        p.repository().rotate(role, p.keys)
        another_row(p)

    return state


def rotated_often(p: Publisher) -> None:
    for _ in range(3):
        p.repository().rotate("root", p.keys)
    another_row(p)


def fast_forward(p: Publisher) -> None:
    """A thief of the timestamp's key made clients see a version that no other can follow."""
    p.forge("timestamp.json", lambda signed: setattr(signed, "version", 1 << 40))
    p.refresh()
    p.path("timestamp.json").unlink()
    rotated("timestamp")(p)


def threshold_raised(p: Publisher) -> None:
    p.repository().rotate("root", p.keys, threshold=2)
    another_row(p)


def one_spare_key_lost(p: Publisher) -> None:
    lost = p.signers("root")[0].public_key.keyid
    del p.keys.signers[lost]
    p.repository().rotate("root", p.keys, revoked=[lost])
    another_row(p)


def read_from_a_mirror(p: Publisher) -> None:
    another_row(p)
    body = p.path("timestamp.json").read_bytes()
    here = p.url + "/moved.json"
    p.overrides["moved.json"] = Answer(body)
    p.overrides["metadata/timestamp.json"] = Answer(b"", "302 Found", {"Location": here})


BELIEVED = {
    "another row": another_row,
    "root keys rotated": rotated("root"),
    "root keys rotated three times": rotated_often,
    "targets key rotated": rotated("targets"),
    "snapshot key rotated": rotated("snapshot"),
    "timestamp key rotated": rotated("timestamp"),
    "timestamp key rotated after a fast forward": fast_forward,
    "more root signatures wanted": threshold_raised,
    "a lost root key replaced by the spare one": one_spare_key_lost,
    "timestamp moved": read_from_a_mirror,
}


@pytest.mark.parametrize("name", BELIEVED)
def test_a_state_that_must_be_believed(publisher: Publisher, name: str) -> None:
    publisher.refresh()
    BELIEVED[name](publisher)
    assert publisher.refresh().rows == (ROW, NEXT)
    COUNTS["believed"] += 1


@pytest.mark.parametrize("name", ["timestamp expired", "endless timestamp", "rows cut", "no rows"])
def test_the_next_honest_state_heals(publisher: Publisher, name: str) -> None:
    publisher.refresh()
    FAULTS[name].make(publisher)
    with pytest.raises(RegistryError):
        publisher.refresh()
    publisher.overrides.clear()
    publisher.publish([NEXT])
    assert publisher.refresh().rows == (ROW, NEXT)
    COUNTS["healed"] += 1


def test_a_frozen_registry_expires(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same files for ever: believed until their time is over, by the client's clock."""
    first = publisher.refresh()
    assert not publisher.remote.has_expired(first)
    later = NOW + timedelta(days=15)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return later

    class Module:
        datetime = Clock
        timezone = __import__("datetime").timezone

    monkeypatch.setattr("tuf.ngclient._internal.trusted_metadata_set.datetime", Module)
    frozen = publisher.client(publisher.folder.parent / "cache", now=later.timestamp)
    publisher.remote = frozen
    assert frozen.has_expired(first)
    with pytest.raises(RegistryError) as caught:
        publisher.refresh()
    assert caught.value.fault == "expired"
    assert frozen.last_reading() == first
