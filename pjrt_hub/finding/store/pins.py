"""A project's lock file, `pjrt-hub.lock`: what it may fetch and load.

Owns the file's format, where it is looked for, and whether a library is one that it names. The
locks that make processes take turns are `lock.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pjrt_hub.base import digest
from pjrt_hub.base.frozen import field, frozen, replace
from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import LockFileError, ManifestError
from pjrt_hub.finding.contract.names import canonical
from pjrt_hub.finding.contract.table import parse
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.catalog import FORMAT, Artifact, as_toml, write_rows

FILE_NAME = "pjrt-hub.lock"
VARIABLE = "PJRT_HUB_LOCK"
_MAX_NBYTES = 16 << 20
_HEAD = """\
# The plugins that this project fetches and loads, byte for byte; nothing else is. Commit this file.
# Written by `{command}`. To compare: `pjrt-hub lock --check`.

format = {format}
requests = [{requests}]
hosts = [{hosts}]

"""


@frozen
class Pins:
    """The contents of a lock file.

    Attributes:
        path: the file.
        requests: what was to be locked: platforms, plugins, packages, addresses; () for all.
        hosts: the machines that it is for, such as "linux-x86_64"; () for all.
        rows: what may be fetched and loaded.
        is_named: whether the user named the file; whoever wrote one that was only found may
            narrow what the registry pins, and not add to it.
    """

    __module__ = "pjrt_hub"
    path: Path
    requests: tuple[str, ...]
    hosts: tuple[str, ...]
    rows: tuple[Artifact, ...]
    is_named: bool = field(default=False, compare=False)

    def among(self, rows: Iterable[Artifact]) -> list[Artifact]:
        """Return the registry's rows whose archives the file pins for the same plugin.

        Each requires no more than in the file, and all that it requires there.

        Args:
            rows: of the registry.
        """
        locked = {
            (row.plugin, row.sha256): {each.sha256 for each in row.requires} for row in self.rows
        }
        found = []
        for row in rows:
            wanted = locked.get((row.plugin, row.sha256))
            if wanted is not None and wanted <= {each.sha256 for each in row.requires}:
                kept = tuple(each for each in row.requires if each.sha256 in wanted)
                found.append(replace(row, requires=kept))
        return found

    def refusal(self, library_path: Path, sha256: Callable[[Path], str]) -> str:
        """Return why a library may not be loaded, or an empty string.

        Args:
            library_path: the library.
            sha256: hashes a file; it is asked only where the size is that of a locked member.
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
        import shlex

        hosts = (word for host in self.hosts for word in ("--host", host))
        command = shlex.join(["pjrt-hub", "lock", *self.requests, *hosts])
        head = _HEAD.format(
            # TOML wants no control characters in a comment.
            command="".join(char if char.isprintable() else "?" for char in command),
            format=FORMAT,
            requests=", ".join(map(as_toml, self.requests)),
            hosts=", ".join(map(as_toml, self.hosts)),
        )
        return head + write_rows(sorted(self.rows, key=_place))

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


def find(env: Mapping[str, str], folder: Path | None) -> Path | None:
    """Find the lock file that holds here.

    Args:
        env: `PJRT_HUB_LOCK` names a file; "0" says that none holds.
        folder: where the search upward begins; None for no search.

    Raises:
        LockFileError: one lies above that another user may have written.
    """
    if named := env.get(VARIABLE):
        return None if named == "0" else Path(named).expanduser().absolute()
    for each in (folder, *folder.parents) if folder else ():
        if (path := disk.find(each, FILE_NAME)) is not None:
            _require_ours(path)
            return path
    return None


def read(path: Path, *, is_named: bool = False) -> Pins:
    """Read a lock file.

    Args:
        path: of the file.
        is_named: whether the user named it.

    Raises:
        LockFileError: it cannot be read, is malformed, or of a newer format.
    """
    try:
        data = parse(digest.content(path, _MAX_NBYTES))
    except OSError as exc:
        raise LockFileError(
            f"the lock file {path} cannot be read: {exc.strerror}",
            path=path,
            hint=f"write it with `pjrt-hub lock --output {path}`, or unset {VARIABLE}",
        ) from None
    except ValueError as exc:
        raise _format_error(path, f"it is not TOML: {exc}") from None
    form = data.pop("format", None)
    if type(form) is int and form > FORMAT:
        raise LockFileError(
            f"the lock file {path} has format {form}, this pjrt-hub reads format {FORMAT}",
            path=path,
            hint="install a newer pjrt-hub: `pip install --upgrade pjrt-hub`",
        )
    if form != FORMAT or isinstance(form, bool):
        raise _format_error(path, f"its format is {form!r}, and not {FORMAT}")
    requests, hosts = (_texts(path, data, key) for key in ("requests", "hosts"))
    rows = data.pop("artifact", [])
    if data:
        raise _format_error(path, f"it has an unknown key {min(data)!r}")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _format_error(path, "artifact is not an array of tables")
    read_rows = tuple(_row(path, *each) for each in enumerate(rows, 1))
    pins = Pins(path, requests, hosts, read_rows, is_named)
    _require_one_each(pins)
    return pins


def _row(path: Path, number: int, row: dict[str, Any]) -> Artifact:
    try:
        return Artifact.from_row(row, f"artifact {number}")
    except ManifestError as exc:
        raise _format_error(path, exc.message) from None


def _texts(path: Path, data: dict[str, Any], key: str) -> tuple[str, ...]:
    value = data.pop(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _format_error(path, f"{key} is not an array of strings")
    return tuple(value)


def _require_one_each(pins: Pins) -> None:
    """Check that each build of a plugin is one release for each kind of machine."""
    seen: dict[object, Artifact] = {}
    for row in pins.rows:
        first = seen.setdefault(build(row), row)
        if first is not row:
            raise _format_error(
                pins.path,
                f"the plugin {row.plugin!r} is locked twice: {first.package} "
                f"{first.version} and {row.package} {row.version}",
            )


def build(row: Artifact) -> tuple[str, ...]:
    """Return which build of which plugin a row is, for which kind of machine."""
    return row.plugin, canonical(row.package), *row.kind


def serves(row: Artifact, hosts: Sequence[HostTag]) -> bool:
    """Check whether a row is for one of some machines; an unnamed libc matches any."""
    return any(
        not host.runs(row.host) if host.libc else (host.os, host.arch) == row.kind[:2]
        for host in hosts
    )


def _place(row: Artifact) -> tuple[str, ...]:
    return row.platform, row.plugin, *row.kind, row.package


def _require_ours(path: Path) -> None:
    """Check who can write the file: a lock that holds here decides what this user loads."""
    if what := disk.suspicion(path):
        raise LockFileError(
            f"the lock file {path} {what}, so others could choose what this user loads",
            path=path,
            hint=f"`chmod o-w` or `chown` it, or say that it is meant: {VARIABLE}={path}; "
            f"{VARIABLE}=0 goes without a lock",
        )


def _format_error(path: Path, what: str) -> LockFileError:
    return LockFileError(
        f"the lock file {path} is malformed: {what}",
        path=path,
        hint="restore it from version control, or delete it and run `pjrt-hub lock` again",
    )
