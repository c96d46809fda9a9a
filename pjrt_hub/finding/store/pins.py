"""A project's lock file, `pylock.pjrt.toml`: what the project may fetch and load.

Owns where the file is looked for, and whether a library is one that it names; `pylock.py` has its
format. The locks that make processes take turns are `lock.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pjrt_hub.base import digest
from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import LockFileError, ManifestError
from pjrt_hub.finding.contract.names import canonical
from pjrt_hub.finding.contract.table import Table, parse, write
from pjrt_hub.finding.store import disk, pylock
from pjrt_hub.finding.store.catalog import Artifact

FILE_NAME = "pylock.pjrt.toml"
#: The name of lock files before they had the form of PEP 751; the old form is no longer read.
_OLD_NAME = "pjrt-hub.lock"
VARIABLE = "PJRT_HUB_LOCK"
_MAX_NBYTES = 16 << 20
_HEAD = """\
# The plugins that this project fetches and loads, byte for byte; nothing else is. Commit this file.
# `pjrt-hub lock` writes it again, and `pjrt-hub lock --check` compares.

"""


class Pins(NamedTuple):
    """The contents of a lock file.

    Attributes:
        path: the file.
        requests: what was to be locked: platforms, plugins, packages, addresses; () for all.
        hosts: the machines that it is for, such as "linux-x86_64"; () for all.
        rows: what may be fetched and loaded.
        addresses: where pip and uv get each wheel, by its sha256; pjrt-hub searches this user's
            package indexes instead, which may differ from those of the file's author.
        is_named: whether the user named the file; a file that was only found may narrow what
            the registry pins, and not add to it.
    """

    path: Path
    requests: tuple[str, ...]
    hosts: tuple[str, ...]
    rows: tuple[Artifact, ...]
    addresses: Mapping[str, str] = MappingProxyType({})
    is_named: bool = False

    def among(self, rows: Iterable[Artifact]) -> list[Artifact]:
        """Return the registry's rows whose archives the file pins for the same plugin.

        Each requires exactly what it requires in the file.

        Args:
            rows: the rows of the registry.
        """
        locked = {
            (row.plugin, row.sha256): {each.sha256 for each in row.requires} for row in self.rows
        }
        found = []
        for row in rows:
            wanted = locked.get((row.plugin, row.sha256))
            if wanted is not None and wanted <= {each.sha256 for each in row.requires}:
                kept = tuple(each for each in row.requires if each.sha256 in wanted)
                found.append(row._replace(requires=kept))
        return found

    def refusal(self, library_path: Path, sha256: Callable[[Path], str]) -> str:
        """Return why a library may not be loaded, or an empty string.

        Args:
            library_path: the library.
            sha256: a function that hashes a file; called only if the size is a locked member's.
        """
        sizes = {member.size for row in self.rows for member in row.members}
        known = {member.sha256 for row in self.rows for member in row.members}
        try:
            if library_path.stat().st_size in sizes and sha256(library_path) in known:
                return ""
        except OSError as exc:
            return f"{library_path} cannot be compared with {self.path}: {exc.strerror}"
        return f"{self.path} does not lock the bytes of {library_path}"

    def text(self) -> str:
        """Return the file's text; the same pins give the same bytes."""
        return _HEAD + write(self._tables())

    @property
    def left_out(self) -> tuple[str, ...]:
        """The plugins that pip and uv leave out, as an archive is no wheel or has no address."""
        return tuple(
            {row["plugin"]: None for row in self._tables()["tool"]["pjrt-hub"]["artifact"]}
        )

    def _tables(self) -> dict[str, Any]:
        rows = [row.as_row() for row in sorted(self.rows, key=build)]
        own = {"requests": list(self.requests), "hosts": list(self.hosts)}
        return pylock.arrange(rows, self.addresses, own)

    def write(self) -> None:
        """Write the file in one step, so that nobody reads half of it.

        Raises:
            LockFileError: it cannot be written.
        """
        try:
            disk.replace(self.path, self.text().encode())
        except OSError as exc:
            raise LockFileError(
                f"{self.path} cannot be written: {exc.strerror}",
                path=self.path,
                hint="name another file by --output, and by PJRT_HUB_LOCK where it is to hold",
            ) from None


Pins.__module__ = "pjrt_hub"  # The body of a NamedTuple cannot set this.


def find(env: Mapping[str, str], folder: Path | None) -> Path | None:
    """Find the lock file that is in force.

    `PJRT_HUB_LOCK` names it, or is "0" if there is to be none; else it is the nearest one from
    `folder` upward. If another user may have written that one, it raises LockFileError.
    """
    if named := env.get(VARIABLE):
        return None if named == "0" else Path(named).expanduser().absolute()
    for each in (folder, *folder.parents) if folder else ():
        path = disk.find(each, FILE_NAME) or disk.find(each, _OLD_NAME)
        if path is not None:
            # The file decides what this user loads, so nobody else may have written it.
            if what := disk.suspicion(path):
                raise LockFileError(
                    f"the lock file {path} {what}, so others could choose what this user loads",
                    path=path,
                    hint=f"`chmod o-w` or `chown` it, or say that it is meant: {VARIABLE}={path}; "
                    f"{VARIABLE}=0 goes without a lock",
                )
            return path
    return None


def read(path: Path, *, is_named: bool = False) -> Pins:
    """Read a lock file; raise LockFileError if unreadable, malformed, or of another format."""
    try:
        data = parse(digest.content(path, _MAX_NBYTES))
    except OSError as exc:
        raise LockFileError(
            f"the lock file {path} cannot be read: {exc.strerror}",
            path=path,
            hint=f"write it with `pjrt-hub lock --output {path}`, or unset {VARIABLE}",
        ) from None
    except ValueError as exc:
        raise pylock.malformed(path, f"it is not TOML: {exc}") from None
    rows, addresses, own = pylock.read(path, data)
    words = Table(own, Path(path.name), "tool.pjrt-hub")
    try:
        found = tuple(Artifact.from_row(row, f"artifact {i}") for i, row in enumerate(rows, 1))
        requests, hosts = words.texts("requests"), words.texts("hosts")
        words.finish()
    except ManifestError as exc:
        raise pylock.malformed(path, f"{exc.message}") from None
    seen: dict[object, Artifact] = {}
    for row in found:  # A build of a plugin has only one release for each kind of machine.
        first = seen.setdefault(build(row), row)
        if first is not row:
            raise pylock.malformed(
                path,
                f"the plugin {row.plugin!r} is locked twice: {first.package} "
                f"{first.version} and {row.package} {row.version}",
            )
    return Pins(path, requests, hosts, found, addresses, is_named)


def build(row: Artifact) -> tuple[str, ...]:
    """Return what identifies a build: a row's plugin, its package, and its kind of machine."""
    return row.plugin, canonical(row.package), *row.kind


def serves(row: Artifact, hosts: Sequence[HostTag]) -> bool:
    """Check whether a row is for one of some machines; an unnamed libc matches any."""
    return any(
        not host.runs(row.host) if host.libc else (host.os, host.arch) == row.kind[:2]
        for host in hosts
    )
