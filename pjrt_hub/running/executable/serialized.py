"""Serialized executables: a plugin's bytes behind a header that says where they run.

Plugins check little of what they deserialize, so the header is compared before they see a byte. It
also has the code's signature, which plugins take long to tell. Must not load anything.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from pjrt_hub.errors import FileFormatError, IncompatiblePluginError
from pjrt_hub.running.capi import wire
from pjrt_hub.running.capi.handle import ClientHandle, compiler_platform
from pjrt_hub.running.capi.status import answer_or_none
from pjrt_hub.running.program.signature import Signature

#: The magic number. After it come the sha256 of the rest, the header's length in four
#: little-endian bytes, the header as JSON, and the plugin's bytes.
MAGIC = b"\x93pjrt-hub executable 2\n"
_DIGEST_NBYTES = 32
_LENGTH_NBYTES = 4
#: The fields of CpuTopologyProto for the machine's processor: one string for each of its features,
#: or in newer plugins, one message of the target, the processor and its features.
_CPU_TOPOLOGY_MACHINE_ATTRIBUTES, _CPU_TOPOLOGY_MACHINE = 4, 5
#: Fields of PjRtTopologyDescriptionProto, in which newer plugins wrap it, and of its Any.
_TOPOLOGY_PLATFORM_SPECIFIC, _ANY_VALUE = 9, 2
_HINT = "compile the program again here, or load it with the plugin that it was compiled with"


class Guards(NamedTuple):
    """What a serialized executable needs to run: the same as it was compiled with.

    An empty guard is not compared: the compiler did not know it, or it does not matter.
    """

    platform: str
    platform_version: str
    api_version: str
    plugin_sha256: str  # The digest of the plugin's library.
    machine: str = ""  # The sha256 of the processor's features; code for others ends the process.

    @classmethod
    def of(cls, client: ClientHandle) -> Guards:
        """Return the guards of executables that run on `client`, which is asked only once."""
        if client._guards is None:
            client._guards = cls(
                client.platform_name,
                client.platform_version,
                str(client.api.version),
                client.api.sha256,
                _machine(client),
            )
        guards: Guards = client._guards
        return guards

    def seal(self, code: bytes, signature: Signature | None = None) -> bytes:
        """Put the header before a plugin's bytes; without a signature the plugin is asked later."""
        fields = {**self._asdict(), "signature": signature and signature.to_lists()}
        header = json.dumps(fields).encode()
        sealed = len(header).to_bytes(_LENGTH_NBYTES, "little") + header + code
        return MAGIC + _sha256(sealed) + sealed

    def open(self, blob: bytes) -> Serialized:
        """Take a serialized executable apart, if it is whole and runs here."""
        found = parse(blob)
        for name, need, have in found.guards.differences(self):
            raise IncompatiblePluginError(
                f"the executable was compiled for the {_SAY[name]} {need!r}, here is {have!r}",
                need=need,
                have=have,
                hint=_HINT,
            )
        return found

    def differences(self, here: Guards) -> list[tuple[str, str, str]]:
        """Return (name, needed value, value here) of each guard that does not agree."""
        pairs = ((name, need, getattr(here, name)) for name, need in self._asdict().items())
        return [(name, need, have) for name, need, have in pairs if need and need != have]


_SAY = {
    "platform": "platform",
    "platform_version": "platform version",
    "api_version": "PJRT API",
    "plugin_sha256": "plugin with sha256",
    "machine": "processor features with sha256",
}


class Serialized(NamedTuple):
    """A serialized executable: where it runs, the plugin's bytes, and a signature if it has one."""

    guards: Guards
    code: bytes
    signature: Signature | None


def parse(blob: bytes) -> Serialized:
    """Take a serialized executable apart; FileFormatError: the bytes are not one, or damaged."""
    if not blob.startswith(MAGIC):
        raise _damage(f"they begin {blob[:8].hex(' ')!r}" if blob else "they are empty")
    sealed = memoryview(blob)[len(MAGIC) + _DIGEST_NBYTES :]
    expected = blob[len(MAGIC) : len(MAGIC) + _DIGEST_NBYTES]
    actual = _sha256(sealed)
    if actual != expected:
        raise _damage(f"they have sha256 {actual.hex()}, written is {expected.hex()}")
    end = _LENGTH_NBYTES + int.from_bytes(sealed[:_LENGTH_NBYTES], "little")
    try:
        fields = json.loads(bytes(sealed[_LENGTH_NBYTES:end]))
        told = fields.pop("signature")
        signature = None if told is None else Signature.of_lists(told)
        guards = Guards(**fields)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as exc:
        raise _damage("their header cannot be read") from exc
    if not all(isinstance(value, str) for value in fields.values()):
        raise _damage("their header cannot be read")
    return Serialized(guards, bytes(sealed[end:]), signature)


def _damage(what: str) -> FileFormatError:
    return FileFormatError(
        f"the bytes are not a serialized executable of pjrt-hub, or damaged: {what}",
        path="the serialized executable",
        hint="give what LoadedExecutable.serialize() gave, all of it",
    )


def topology(client: ClientHandle) -> bytes:
    """Return the topology of a client as its plugin serializes it; b"" if it does not."""

    def ask() -> bytes:
        address = client._call("PJRT_Client_TopologyDescription", client=client.address)
        return client.api.call("PJRT_TopologyDescription_Serialize", topology=address)

    with client._in_call():
        return answer_or_none(ask) or b""


def _machine(client: ClientHandle) -> str:
    if compiler_platform(client) != "cpu":
        return ""
    told = topology(client)
    try:
        found = wire.messages(memoryview(told), _TOPOLOGY_PLATFORM_SPECIFIC)
        within = [each for whole in found for each in wire.messages(whole, _ANY_VALUE)]
        own = within[0] if within else memoryview(told)
        numbers = (_CPU_TOPOLOGY_MACHINE_ATTRIBUTES, _CPU_TOPOLOGY_MACHINE)
        machine = sorted(map(bytes, wire.messages(own, *numbers)))
    except ValueError:  # The plugin calls itself cpu, but writes no such message.
        machine = []
    # If newer plugins keep the features elsewhere, the whole topology with its devices is compared.
    return _sha256(b"\0".join(machine or [told])).hex() if told else ""


def _sha256(data: bytes | memoryview) -> bytes:
    import hashlib

    return hashlib.sha256(data).digest()
