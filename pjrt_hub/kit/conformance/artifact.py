"""The forms in which checks send programs: most as portable artifacts, a + b in other forms, too.

Owns the form of artifacts.gz, which tools/artifacts.py writes: a line of JSON, then all code.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from pjrt_hub.errors import FileFormatError
from pjrt_hub.running.program import hlo
from pjrt_hub.running.program.signature import Slot

Version = tuple[int, int, int]
Read = TypeVar("Read")

#: A program is sent in one of these forms; reports use these words for a form that is refused.
ARTIFACT, BYTECODE, TEXT = "portable artifacts", "plain bytecode", "text"

PATH = Path(__file__).with_name("artifacts.gz")
FORM = 1
_MAX_NBYTES = 1 << 26  # No file of this package unpacks to more bytes.

#: From this version on, StableHLO promises that older artifacts stay readable.
_STABLE = (1, 0, 0)

#: This is a + b of two f32[4] in plain MLIR bytecode, whose form StableHLO does not keep stable.
_ADD_BYTECODE = (
    "TUzvUg1NTElSMjMuMC4wZ2l0AAEfBwEFCQkBAw8DBQcTBQMXAxkHBwEHBwsLAQcTGwcCIR8NAwUNGwMRBQUFAQEDAQ"
    "sETQUBUAEBBwQ9AwEFA1ABAwcEKQMHCwUBAQAHBgEDAQUBAwUEAQMFBgMBBQEAbQ8LCQ8PFQsRYnVpbHRpbgBmdW5j"
    "AHN0YWJsZWhsbwBtb2R1bGUAcmV0dXJuAGFkZABtYWluAAgXBQUBAQ0BAwEBBQE="
)


class PortableArtifact(NamedTuple):
    """A program as StableHLO's serializer writes it."""

    since: Version  # The first version with this code; in later ones, only the version differs.
    code: bytes  # The program as version `since` writes it.

    def at(self, version: Version) -> bytes:
        """Return the program for a version of StableHLO from `since` on."""
        return self.code.replace(_producer(self.since), _producer(version), 1)


class Archive(NamedTuple):
    """The artifacts of many programs."""

    newest: Version  # The artifacts are what StableHLO's serializer writes up to this version.
    programs: Mapping[str, tuple[PortableArtifact, ...]]  # Artifacts by `key`, the oldest first.


def of(text: str, current: Version | None = None) -> bytes | None:
    """Return the portable artifact of the program with exactly this text, or None.

    `current` is the newest version that its reader knows. By default the oldest artifact from 1.0
    on is returned, which more readers know than any other.
    """
    known = archive()
    artifacts = known.programs.get(key(text), ())
    if not artifacts:
        return None
    version = min(current or max(_STABLE, artifacts[0].since), known.newest)
    fitting = [each for each in artifacts if each.since <= version]
    return fitting[-1].at(version) if fitting else None


def artifact_for(text: str, version: Version) -> bytes:
    """Return a program's portable artifact for any version, even one that does not exist yet."""
    artifacts = archive().programs[key(text)]
    fitting = [each for each in artifacts if each.since <= version] or artifacts[:1]
    return fitting[-1].at(version)


def add_bytecode() -> bytes:
    """Return `programs.ADD` in MLIR's bytecode."""
    return base64.b64decode(_ADD_BYTECODE)


def add_hlo() -> bytes:
    """Return `programs.ADD` as an HloModuleProto."""
    shape = Slot.of("f32", (4,)).serialize()
    return hlo.module(
        "add",
        [
            hlo.Instruction("a", "parameter", shape),
            hlo.Instruction("b", "parameter", shape),
            hlo.Instruction("sum", "add", shape, operands=(0, 1)),
        ],
    )


def key(text: str) -> str:
    """Return the key of a program in an archive."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pack(newest: Version, programs: Mapping[str, Iterable[PortableArtifact]]) -> bytes:
    """Write an archive of artifacts, given by the programs' texts."""
    rows = {key(text): list(programs[text]) for text in programs}
    sizes = {name: [[each.since, len(each.code)] for each in row] for name, row in rows.items()}
    head = json.dumps({"form": FORM, "newest": newest, "programs": sizes}, separators=(",", ":"))
    code = [each.code for row in rows.values() for each in row]
    return gzip.compress(b"".join([head.encode(), b"\n", *code]), mtime=0)


@cache
def archive(path: Path = PATH) -> Archive:
    """Read an archive, by default the one that this package ships, or raise FileFormatError."""
    return read(path, _archive)


def read(path: Path, parse: Callable[[bytes], Read]) -> Read:
    """Parse the data in a gzip file that this package ships, or raise FileFormatError."""
    try:
        with gzip.open(path) as file:
            data = file.read(_MAX_NBYTES + 1)
        if len(data) > _MAX_NBYTES:
            raise ValueError(f"it unpacks to more than {_MAX_NBYTES} bytes")
        return parse(data)
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError) as exc:
        raise FileFormatError(
            f"{path} is not of this version: {exc}", path=path, hint="install pjrt-hub again"
        ) from exc


def _archive(data: bytes) -> Archive:
    first, _, code = data.partition(b"\n")
    head = json.loads(first)
    if head["form"] != FORM:
        raise ValueError(f"its form is {head['form']!r}")
    programs, begin = {}, 0
    for name, row in head["programs"].items():
        artifacts = list[PortableArtifact]()
        for (major, minor, patch), size in row:
            artifacts.append(PortableArtifact((major, minor, patch), code[begin : begin + size]))
            begin += size
        programs[name] = tuple(artifacts)
    if begin != len(code):
        raise ValueError(f"{len(code)} bytes of code, which should be {begin}")
    major, minor, patch = head["newest"]
    return Archive((major, minor, patch), programs)


def _producer(version: Version) -> bytes:
    return b"StableHLO_v%d.%d.%d\0" % version
