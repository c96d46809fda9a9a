"""Lock files that Python's installers read (PEP 751), and where each part of a row stands in them.

Each archive is the wheel of a package, with an address. A plugin's row stands in the table of its
package, without the sizes and hashes that its wheels have. A row with an archive that is no wheel,
or has no address, stands whole in our own table, and installers pass it over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import LockFileError
from pjrt_hub.finding.contract.names import canonical

#: The version of this package's tables; a change that an older pjrt-hub would misread raises it.
FORMAT = 1
_OURS = "pjrt-hub"
_HEAD = {"lock-version": "1.0", "created-by": _OURS}
#: The names of systems and machines in environment markers, where those of `HostTag` differ.
_MACHINES = {
    "macos-aarch64": ("darwin", "arm64"),
    "macos-x86_64": ("darwin", "x86_64"),
    "windows-aarch64": ("win32", "ARM64"),
    "windows-x86_64": ("win32", "AMD64"),
}
_Table = Mapping[str, Any]


def arrange(rows: Iterable[_Table], addresses: Mapping[str, str], own: _Table) -> dict[str, Any]:
    """Return the tables of a lock file, for `read`.

    `addresses` say where to get wheels whose rows have no address, by their sha256; `own` holds the
    other keys of our own table.
    """
    # Only writing needs this import, which takes longer than choosing a plugin.
    from packaging.pylock import Pylock, PylockValidationError

    packages: dict[tuple[str, ...], dict[str, Any]] = {}
    whole = []
    for row in rows:
        marker = _marker(HostTag.parse(row["host"]))
        archives = (*row.get("requires", ()), row)
        found = [{**_package(each, addresses), "marker": marker} for each in archives]
        try:
            Pylock.from_dict({**_HEAD, "packages": found})
        except PylockValidationError:  # An archive is no wheel, or has no address.
            whole.append(row)
            continue
        for package in found:
            place = package["name"], package["version"], marker
            known = packages.setdefault(place, package)
            known["wheels"] += [each for each in package["wheels"] if each not in known["wheels"]]
        # After the loop, `known` is the package of the plugin itself.
        ours = known.setdefault("tool", {_OURS: {"artifact": []}})[_OURS]
        ours["artifact"].append(_remainder(row))
    return {
        **_HEAD,
        "environments": sorted({each["marker"] for each in packages.values()}),
        "packages": [package for _, package in sorted(packages.items())],
        "tool": {_OURS: {"format": FORMAT, **own, "artifact": whole}},
    }


def read(path: Path, data: _Table) -> tuple[list[dict[str, Any]], dict[str, str], dict[str, Any]]:
    """Read the tables of a lock file.

    The result is the rows, as `Artifact.from_row` reads them; where installers get each wheel, by
    its sha256; and the other keys of our own table. Malformed tables, or those of another format,
    raise LockFileError.
    """
    try:
        return _read(path, data)
    except (AttributeError, TypeError, ValueError) as exc:  # A table has an unexpected form.
        raise malformed(path, f"it is not built as a lock file is: {exc!r}") from None


def malformed(path: Path, what: str) -> LockFileError:
    """Make the error for a lock file that is malformed."""
    return LockFileError(
        f"the lock file {path} is malformed: {what}",
        path=path,
        hint="restore it from version control, or delete it and run `pjrt-hub lock` again",
    )


def _read(path: Path, data: _Table) -> tuple[list[dict[str, Any]], dict[str, str], dict[str, Any]]:
    if "lock-version" not in data and "format" in data:
        raise LockFileError(
            f"the lock file {path} has a form that nothing reads any more",
            path=path,
            hint="delete it, and run `pjrt-hub lock` with what it was written for",
        )
    own = dict(data.get("tool", {}).get(_OURS, {}))
    version, form = data.get("lock-version"), own.pop("format", None)
    if version != "1.0" or type(form) is not int or form < FORMAT:
        raise malformed(path, f"its lock-version is {version!r}, its format {form!r}")
    if form > FORMAT:
        raise LockFileError(
            f"the lock file {path} has format {form}, this pjrt-hub reads format {FORMAT}",
            path=path,
            hint="install a newer pjrt-hub: `pip install --upgrade pjrt-hub`",
        )
    rows = list(own.pop("artifact", ()))
    said: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    addresses: dict[str, str] = {}
    for package in data.get("packages", ()):
        rows += package.get("tool", {}).get(_OURS, {}).get("artifact", ())
        for wheel in package.get("wheels", ()):
            pin = {"size": wheel.get("size"), "sha256": wheel.get("hashes", {}).get("sha256")}
            names = {"package": package.get("name"), "version": package.get("version")}
            if said.setdefault(wheel.get("name"), (names, pin)) != (names, pin):
                raise malformed(path, f"it has {wheel.get('name')} twice")
            addresses[pin["sha256"]] = wheel.get("url", "")
    for archive in [*rows, *(each for row in rows for each in row.get("requires", ()))]:
        names, pin = said.get(archive.get("file_name"), ({}, {}))
        # The wheel's pin wins over the row's: installers and this package fetch the same bytes.
        archive.update({**names, **archive, **pin})
    return rows, addresses, own


def _package(archive: _Table, addresses: Mapping[str, str]) -> dict[str, Any]:
    """Return the table that tells installers about an archive."""
    sha256 = archive["sha256"]
    wheel = {
        "name": archive["file_name"],
        "url": next(iter(archive.get("urls", ())), addresses.get(sha256)),
        "size": archive["size"],
        "hashes": {"sha256": sha256},
    }
    name, version = canonical(archive["package"]), archive["version"]
    return {"name": name, "version": version, "wheels": [wheel]}


def _remainder(row: _Table) -> dict[str, Any]:
    """Return the columns of a row that the tables of its packages and wheels do not hold."""
    names = {"package": canonical(row["package"]), "version": row["version"]}
    said = {"size": row["size"], "sha256": row["sha256"], **names}
    rest = {column: row[column] for column in row if row[column] != said.get(column)}
    if "requires" in row:
        rest["requires"] = list(map(_remainder, row["requires"]))
    return rest


def _marker(host: HostTag) -> str:
    """Return the marker of the environments for which a host's wheels are."""
    system, machine = _MACHINES.get(f"{host.os}-{host.arch}", (host.os, host.arch))
    return f"sys_platform == '{system}' and platform_machine == '{machine}'"
