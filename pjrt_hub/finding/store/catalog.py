"""The registry's rows, each a pinned binary.

Owns `Artifact`, `Requirement`, `Catalog` and the row schema that registry/README.md describes, and
who owns the name of a plugin. Reads data only: no network, no cache, no native library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pjrt_hub.base import digest
from pjrt_hub.base.abi import DECLARED, ApiVersion, compatible
from pjrt_hub.base.fork import cached_property
from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import LockFileError, ManifestError
from pjrt_hub.finding.contract.names import canonical, is_name
from pjrt_hub.finding.contract.table import parse, write


class Member(NamedTuple):
    """A file inside an archive."""

    path: str  # The path inside the archive.
    size: int  # The size in bytes.
    sha256: str  # 64 lowercase hexadecimal digits.
    executable: bool = False  # Whether it is a program, such as a plugin's assembler.

    def as_row(self) -> dict[str, Any]:
        """Return the table that `_member` reads."""
        row: dict[str, Any] = {"path": self.path, "size": self.size, "sha256": self.sha256}
        return row | ({"executable": True} if self.executable else {})


class Requirement(NamedTuple):
    """A pinned archive that a plugin requires at run time, such as that of cuDNN.

    Most fields are as in `Artifact`; `plugin` and `platform` are those of the requiring plugin.
    """

    plugin: str
    platform: str
    package: str
    version: str
    file_name: str
    size: int
    sha256: str
    members: tuple[Member, ...]
    license: str
    library: str = ""  # It is empty, because no file is loaded as a plugin.
    urls: tuple[str, ...] = ()
    specifier: str = ""  # Installed versions that serve, too (">=9.12,<10"); empty for any.
    compiles: bool = False  # Whether compiling for absent hardware needs it, too.

    @property
    def nbytes(self) -> int:
        """The size of the members on disk, in bytes."""
        return sum(member.size for member in self.members)

    def as_row(self) -> dict[str, Any]:
        """Return the row for `from_row`, in the schema's order, without empty columns."""
        return _as_row(self, _REQUIREMENT)

    @classmethod
    def from_row(cls, row: Mapping[str, Any], where: str) -> Requirement:
        """Read one row, as `Artifact.from_row` does."""
        return cls(**_read(row, _REQUIREMENT, cls._field_defaults, where))


class Artifact(NamedTuple):
    """The row of a plugin: its pinned archive, what is loaded from it, and what that requires."""

    plugin: str  # The family of builds to which it belongs, such as "cuda13".
    platform: str  # The platform that selects that plugin, such as "cuda".
    package: str  # The distribution's name.
    version: str
    file_name: str  # A wheel, a .zip, a .tar.gz, or a .so, which is the library itself.
    size: int  # The archive's size in bytes.
    sha256: str  # The archive's digest: 64 lowercase hexadecimal digits.
    members: tuple[Member, ...]  # All files that are taken from the archive.
    license: str  # The distribution's licence.
    host: HostTag  # The oldest machine that the library runs on.
    library: str  # The library's path among the members.
    urls: tuple[str, ...] = ()  # Addresses of the archive besides the user's package index.
    requires: tuple[Requirement, ...] = ()  # What the library looks for at run time.
    api_version: ApiVersion | None = None  # Measured by loading the library, or None.
    api_note: str = ""  # Why `api_version` is None.
    stablehlo: str = ""  # The newest StableHLO version that the plugin reads.
    publisher: str = ""  # The builder that the index's attestation named when the row was made.
    issuer: str = ""  # The issuer that vouched for the publisher's identity.
    attestation: str = ""  # The sha256 of the attestation's file.
    attestation_note: str = ""  # How far the attestation was verified.

    @property
    def archives(self) -> tuple[Archive, ...]:
        """The plugin's archive, then those that it requires."""
        return (self, *self.requires)

    @property
    def nbytes(self) -> int:
        """The size of the members on disk, in bytes."""
        return sum(member.size for member in self.members)

    @property
    def kind(self) -> tuple[str, str, str]:
        """The kind of machine that it is for: the system, the architecture, the C library."""
        return self.host.os, self.host.arch, self.host.libc

    def as_row(self) -> dict[str, Any]:
        """Return the row for `from_row`, in the schema's order, without empty columns."""
        return _as_row(self, _PLUGIN)

    def runs(self, host: HostTag) -> str:
        """Return why this cannot run on `host` or with this pjrt-hub, or an empty string."""
        reason = host.runs(self.host)
        if not reason and self.api_version is not None:
            verdict = compatible(DECLARED, self.api_version)
            reason = "" if verdict.ok else verdict.reason
        return reason

    @classmethod
    def from_row(cls, row: Mapping[str, Any], where: str) -> Artifact:
        """Read one row, as TOML or JSON gives it.

        A column that is missing, unknown or malformed raises ManifestError, which says `where`: the
        file and the row.
        """
        values = _read(row, _PLUGIN, cls._field_defaults, where)
        if values["library"] not in (member.path for member in values["members"]):
            raise ManifestError(f"{where}: library {row['library']!r} is not one of the members")
        whole = Member(row["file_name"], row["size"], row["sha256"])
        if row["file_name"].endswith(".so") and values["members"] != (whole,):
            raise ManifestError(f"{where}: a bare library has one member, which is the file itself")
        try:
            host = HostTag.parse(row["host"])
            api = ApiVersion.parse(row["api_version"]) if "api_version" in row else None
        except ValueError as exc:
            raise ManifestError(f"{where}: {exc}") from None
        if api is None and not row.get("api_note"):
            raise ManifestError(f"{where}: a row without api_version needs an api_note")
        names = {"plugin": row["plugin"], "platform": row["platform"]}
        requires = tuple(
            Requirement.from_row({**names, **item}, f"{where}, requirement {i}")
            for i, item in enumerate(row.get("requires", ()), 1)
        )
        return cls(**{**values, "host": host, "api_version": api, "requires": requires})


#: A pinned archive: that of a plugin, or one that a plugin requires.
Archive = Artifact | Requirement


def _as_row(archive: Archive, columns: Iterable[str]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column in columns:
        value = getattr(archive, column)
        if column == "members":
            value = [member.as_row() for member in value]
        elif column == "requires":
            # The enclosing row holds the names of the plugin and the platform.
            value = [_as_row(each, _REQUIREMENT[2:]) for each in value]
        elif column == "urls":
            value = list(value)
        elif column in ("host", "api_version") and value is not None:
            value = str(value)
        if value:
            row[column] = value
    return row


class RegistryPackage(NamedTuple):
    """An installed package whose rows count like the shipped ones."""

    name: str  # The distribution and its version.
    module: str  # The module that its entry point names.
    files: tuple[Path, ...]  # The files that hold its rows.


class Flaw(NamedTuple):
    """A reason why rows of packages do not count, and the next step as a hint."""

    origin: str  # The packages, each with its version.
    reason: str
    hint: str


class Catalog:
    """The rows of the registry and of packages, read on first use.

    A package owns the plugins of its rows: the shipped rows of these do not count, and if two
    packages have rows of one plugin, neither's count. Versions of different owners are never
    compared, so nobody takes over a plugin by a higher version.

    A missing directory holds no rows; `rows` were read elsewhere, such as those of a lock file.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        rows: Iterable[Artifact] = (),
        packages: Callable[[], Iterable[RegistryPackage]] = tuple,
    ) -> None:
        self.directories = tuple(directories)
        self._given = tuple(rows)
        self._packages = packages

    @cached_property
    def _contents(self) -> tuple[tuple[Artifact, ...], dict[str, str], tuple[Flaw, ...]]:
        rows = list(self._given)
        for directory in self.directories:
            for path in sorted(directory.glob("*.toml")):
                rows += read_rows(path)
        return _add_packages(rows, self._packages())

    def rows(self) -> tuple[Artifact, ...]:
        """Return every row, in the order of the files, those of packages last.

        A malformed file of a directory raises ManifestError.
        """
        return self._contents[0]

    def owner(self, row: Artifact) -> str:
        """Return the package that owns a row, with its version, or "the registry"."""
        return self._contents[1].get(row.plugin, "the registry")

    @property
    def flaws(self) -> tuple[Flaw, ...]:
        """The rows of packages that do not count."""
        return self._contents[2]

    def only(self, rows: Iterable[Artifact]) -> Catalog:
        """Return a catalog of some of the rows, with their owners and all flaws."""
        chosen = Catalog([])
        chosen._contents = (tuple(rows), *self._contents[1:])
        return chosen


def rows_called(word: str, rows: Iterable[Artifact]) -> list[Artifact]:
    """Return the rows of a plugin or a platform, else those of a package or "package:plugin"."""
    rows = list(rows)
    if named := [row for row in rows if word in (row.plugin, row.platform)]:
        return named
    package, colon, plugin = word.rpartition(":")
    package = canonical(package if colon else word)
    return [
        row
        for row in rows
        if canonical(row.package) == package and (not colon or row.plugin == plugin)
    ]


def newest_builds(rows: Iterable[Artifact]) -> list[Artifact]:
    """Return the newest row of each package that builds a plugin, the newest PJRT API first.

    Releases of one package are compared by version, builds of several packages by the API alone.
    The rows are of one plugin, for machines of one kind.
    """
    newest: dict[str, Artifact] = {}
    for row in sorted(rows, key=lambda row: (release(row.version), str(row.host))):
        newest[canonical(row.package)] = row
    unknown = ApiVersion(0, 0)
    return sorted(newest.values(), key=lambda row: row.api_version or unknown, reverse=True)


def newest_for_each_kind(rows: Iterable[Artifact]) -> list[Artifact]:
    """Return each plugin's newest build with a compatible API, for each kind of machine."""
    grouped: dict[tuple[str, ...], list[Artifact]] = {}
    for row in rows:
        if not row.runs(row.host):  # On its own host, only the API version can rule a row out.
            grouped.setdefault((row.plugin, *row.kind), []).append(row)
    return [newest_builds(group)[0] for group in grouped.values()]


def read_rows(path: Path) -> tuple[Artifact, ...]:
    """Read one file of rows; raise ManifestError if it is unreadable, or a row is malformed."""
    return tuple(Artifact.from_row(table, where) for where, table in _tables(path))


def _tables(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the tables of a file of rows, each with the name of its place."""
    try:
        data = parse(digest.content(path))
    except (OSError, ValueError) as exc:
        raise ManifestError(f"cannot read the registry file {path}: {exc}") from None
    if "lock-version" in data:
        from pjrt_hub.finding.store import pylock

        try:
            rows, *_ = pylock.read(path, data)
        except LockFileError as exc:
            raise ManifestError(exc.message, hint=exc.hint) from None
    else:
        rows = data.pop("artifact", [])
        if data or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ManifestError(
                f"{path}: a registry file holds [[artifact]] tables, or a lock file"
            )
    return [(f"{path}, row {i}", row) for i, row in enumerate(rows, 1)]


def _add_packages(
    shipped: list[Artifact], packages: Iterable[RegistryPackage]
) -> tuple[tuple[Artifact, ...], dict[str, str], tuple[Flaw, ...]]:
    """Put rows of packages in the place of shipped ones; return them, their owners and the flaws.

    A malformed row claims its plugin, too, so that no other row takes its place unnoticed.
    """
    claims: dict[str, dict[str, list[Artifact]]] = {}
    flaws: list[Flaw] = []
    for package in packages:
        for plugin, row in _rows_of(package, flaws):
            mine = claims.setdefault(plugin, {}).setdefault(package.name, [])
            mine += [row] if row and row not in mine else []
    rows = [row for row in shipped if row.plugin not in claims]
    owners = {}
    for plugin, claimants in claims.items():
        if len(claimants) == 1:
            [(owners[plugin], mine)] = claimants.items()
            rows += mine
            continue
        *_, last = names = sorted(claimants)
        reason = f"{' and '.join(names)} have rows of the plugin {plugin!r}, so none of them counts"
        hint = f"uninstall all but one of them, as by `pip uninstall {last.partition(' ')[0]}`"
        flaws.append(Flaw(", ".join(names), reason, hint))
    return tuple(rows), owners, tuple(flaws)


def _rows_of(package: RegistryPackage, flaws: list[Flaw]) -> Iterator[tuple[str, Artifact | None]]:
    """Yield the plugin of each row of a package, and the row, or None for a malformed one."""
    hint = f"tell its makers, or `pip uninstall {package.name.partition(' ')[0]}`"
    if not package.files:
        reason = f"the package {package.module} has no file of rows (*.toml)"
        flaws.append(Flaw(package.name, reason, hint))
    for path in package.files:
        try:
            tables = _tables(path)
        except ManifestError as exc:
            flaws.append(Flaw(package.name, exc.message, hint))
            continue
        for where, table in tables:
            try:
                row = Artifact.from_row(table, where)
            except ManifestError as exc:
                flaws.append(Flaw(package.name, exc.message, hint))
                if isinstance(plugin := table.get("plugin"), str):
                    yield plugin, None
            else:
                yield row.plugin, row


def write_rows(rows: Iterable[Artifact]) -> str:
    """Format `[[artifact]]` tables for `read_rows`, in the order of `rows`."""
    return write({"artifact": [row.as_row() for row in rows]}).removeprefix("\n")


def shipped_registry() -> Path:
    """Find the registry that came with this package: installed, or the checkout's."""
    package = Path(__file__).resolve().parents[2]
    installed = package / "registry"
    return installed if installed.is_dir() else package.parent / "registry"


#: The columns of a plugin's row, in the order in which it is written.
_PLUGIN = (
    *("plugin", "platform", "package", "version", "file_name", "size", "sha256", "library", "host"),
    *("api_version", "api_note", "stablehlo", "license", "urls", "publisher", "issuer"),
    *("attestation", "attestation_note", "members", "requires"),
)
#: The columns of a requirement. The first two occur only if its row is not inside another row.
_REQUIREMENT = (
    *("plugin", "platform", "package", "specifier", "version", "compiles", "file_name", "size"),
    *("sha256", "license", "urls", "members"),
)
#: The types of the columns that do not hold a string.
_TYPES = {"size": int, "urls": list, "members": list, "requires": list, "compiles": bool}
_KIND_NAMES = {str: "a string", int: "an integer", list: "a list", bool: "true or false"}
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_FILE_NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]*\.(whl|zip|tar\.gz|so)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: The form of nearly all versions; importing the parser of the others takes 13 ms.
_PLAIN_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,9}")
_PLAIN_CLAUSE = re.compile(rf"(>=|<=|==|<|>){_PLAIN_VERSION.pattern}")


def release(version: str) -> tuple[int, ...]:
    """Return the numbers by which a version is compared with others; () if it is malformed."""
    if _PLAIN_VERSION.fullmatch(version):
        return tuple(map(int, version.split(".")))
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version).release
    except InvalidVersion:
        return ()


def _read(
    row: Mapping[str, Any], columns: Collection[str], optional: Collection[str], where: str
) -> dict[str, Any]:
    """Check what rows of all kinds have in common, and return the values for the record."""
    for column in columns:
        kind = _TYPES.get(column, str)
        if column not in row:
            if column not in optional:
                raise ManifestError(f"{where}: the column {column!r} is missing")
        elif type(row[column]) is not kind:
            raise ManifestError(
                f"{where}: {column} must be {_KIND_NAMES[kind]}, found {row[column]!r}"
            )
    if unknown := sorted(set(row) - set(columns)):
        raise ManifestError(
            f"{where}: unknown column {unknown[0]!r}",
            hint="the columns are described in registry/README.md",
        )
    for column in ("plugin", "platform"):
        if not is_name(row[column]):
            raise ManifestError(
                f"{where}: {column} must be 1 to 32 of a-z, 0-9 and _, found {row[column]!r}"
            )
    if not _FILE_NAME.fullmatch(row["file_name"]):
        name = row["file_name"]
        raise ManifestError(f"{where}: {name!r} is not the name of a .whl, .zip, .tar.gz or .so")
    if not _PACKAGE.fullmatch(row["package"]):
        raise ManifestError(f"{where}: {row['package']!r} is not the name of a package")
    if not release(row["version"]):
        raise ManifestError(
            f"{where}: version must be one of a distribution, such as 1.2.0, found "
            f"{row['version']!r}"
        )
    if not _is_specifier(row.get("specifier", "")):
        raise ManifestError(
            f"{where}: specifier must be one of versions, such as >=9.12,<10, found "
            f"{row['specifier']!r}"
        )
    if not all(isinstance(url, str) for url in row.get("urls", ())):
        raise ManifestError(f"{where}: urls must be strings, found {row['urls']!r}")
    if not all(isinstance(item, dict) for item in row.get("requires", ())):
        raise ManifestError(f"{where}: requires must be tables, found {row['requires']!r}")
    _check_pin(row, where)
    numbered = enumerate(row["members"], 1)
    members = tuple(_member(item, f"{where}, member {i}") for i, item in numbered)
    return {**row, "members": members, "urls": tuple(row.get("urls", ()))}


def _is_specifier(text: str) -> bool:
    """Check whether a specifier can be compared with versions."""
    if not text or all(_PLAIN_CLAUSE.fullmatch(clause) for clause in text.split(",")):
        return True
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True


def _check_pin(row: Mapping[str, Any], where: str) -> None:
    size, sha256 = row.get("size"), row.get("sha256")
    if type(size) is not int or size <= 0:
        raise ManifestError(f"{where}: size must be a positive integer, found {size!r}")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ManifestError(
            f"{where}: sha256 must be 64 lowercase hexadecimal digits, found {sha256!r}"
        )


def _member(item: Any, where: str) -> Member:
    columns = {"path", "size", "sha256"}
    if not isinstance(item, dict) or set(item) - {"executable"} != columns:
        raise ManifestError(f"{where}: needs path, size and sha256, found {item!r}")
    path, executable = item["path"], item.get("executable", False)
    if not isinstance(executable, bool):
        raise ManifestError(f"{where}: executable must be true or false, found {executable!r}")
    # The path becomes a file below the cache, so no part of it may point elsewhere.
    if (
        not isinstance(path, str)
        or {"", ".", ".."} & set(path.split("/"))
        or any(char in path for char in "\\\0:")
    ):
        raise ManifestError(f"{where}: {path!r} is not a plain relative path")
    _check_pin(item, where)
    return Member(path, item["size"], item["sha256"], executable)
