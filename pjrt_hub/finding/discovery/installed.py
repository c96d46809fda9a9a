"""The distributions on `sys.path`, read as files.

Owns the scan for entry points, RECORDs and package folders; imports nothing of what it finds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.base import digest
from pjrt_hub.base.fork import cached_property
from pjrt_hub.finding.contract.names import canonical

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# Without this, opening a pipe in the place of a file would wait for its writer.
_READ |= getattr(os, "O_NONBLOCK", 0)
_PART_NBYTES = 1 << 16

#: Packages with an entry point of this group bring rows, which count like the registry's.
REGISTRY = "pjrt_registry"
_REGISTRY = REGISTRY.encode()
GROUPS = ("pjrt_plugins", "jax_plugins", "xla_plugins", "torch_xla.plugins", REGISTRY)


class Distribution(NamedTuple):
    """An installed distribution."""

    name: str  # The canonical name.
    version: str
    folder: Path  # The folder on `sys.path` in which it is installed.
    info: Path  # Its `*.dist-info` folder, or `*.egg-info` of older tools.

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def requires(self) -> tuple[Requirement, ...]:
        """Return its requirements, including those of its extras; skip what is malformed."""
        import importlib_metadata
        from packaging.requirements import InvalidRequirement, Requirement

        found: list[Requirement] = []
        with suppress(OSError, ValueError):
            for text in importlib_metadata.Distribution.at(self.info).requires or ():
                with suppress(InvalidRequirement):
                    found.append(Requirement(text))
        return tuple(found)


_Shadowed = tuple[tuple[Distribution, Distribution], ...]


class EntryPoint(NamedTuple):
    """One line of a distribution's `entry_points.txt`; `module` is the value up to a colon."""

    group: str
    name: str
    module: str
    distribution: Distribution

    def __str__(self) -> str:
        return f"{self.distribution}, entry point {self.group}:{self.name}"


class _Info(NamedTuple):
    """A sortable distribution, read from its metadata folder's name alone: there are thousands."""

    name: str
    version: str
    file_name: str
    folder: str

    @property
    def distribution(self) -> Distribution:
        folder = Path(self.folder)
        return Distribution(self.name, self.version, folder, folder / self.file_name)


class Installed:
    """The distributions in some folders, and in the import finders of editable installs.

    The scan is our own: for 2,000 distributions it takes about 12 ms, while importing
    importlib.metadata alone takes 37 ms and its entry_points() 57 ms more.
    """

    def __init__(self, sys_path: Sequence[str], finders: Sequence[Any] = ()) -> None:
        self.sys_path, self.finders = tuple(sys_path), tuple(finders)
        # Here, as in Python, "" is the current folder. A zip file holds no library to load.
        absolute = dict.fromkeys(map(_absolute, sys_path))
        self.folders = tuple(Path(item) for item in absolute if os.path.isdir(item))

    @classmethod
    def current(cls) -> Installed:
        """Return what is installed for this process."""
        # For an editable install, setuptools uses a finder instead of a folder on sys.path.
        finders = (
            finder
            for finder in sys.meta_path
            if getattr(finder, "__module__", "").startswith("__editable__")
        )
        return cls(sys.path, tuple(finders))

    @cached_property
    def _scan(self) -> tuple[dict[str, _Info], _Shadowed]:
        first: dict[str, _Info] = {}
        shadowed = []
        for folder in self.folders:
            for found in sorted(_infos(os.fspath(folder))):
                winner = first.setdefault(found.name, found)
                if winner is not found:
                    shadowed.append((found.distribution, winner.distribution))
        return first, tuple(shadowed)

    def get(self, name: str) -> Distribution | None:
        """Return a distribution by its canonical name; of several the first on `sys.path`."""
        found = self._scan[0].get(name)
        return found.distribution if found else None

    @property
    def shadowed(self) -> _Shadowed:
        """Distributions that Python does not see, each with the earlier one that hides it."""
        return self._scan[1]

    @property
    def entry_points(self) -> tuple[EntryPoint, ...]:
        """The entry points of `GROUPS` that name plugins, sorted."""
        return self._read_entry_points[0]

    @property
    def registries(self) -> tuple[EntryPoint, ...]:
        """The entry points that name packages of registry rows, sorted."""
        return self._read_entry_points[1]

    @property
    def damaged(self) -> tuple[tuple[Distribution, str], ...]:
        """Distributions whose `entry_points.txt` cannot be read in full, each with the reason."""
        return self._read_entry_points[2]

    @cached_property
    def _read_entry_points(
        self,
    ) -> tuple[
        tuple[EntryPoint, ...], tuple[EntryPoint, ...], tuple[tuple[Distribution, str], ...]
    ]:
        found: list[EntryPoint] = []
        damaged = []
        for each in self._scan[0].values():
            raw, reason = _read(f"{each.folder}{os.sep}{each.file_name}{os.sep}entry_points.txt")
            text = raw.replace(b"\0", b"")  # Text in UTF-16 has zero bytes between the letters.
            if b"plugins" in text or _REGISTRY in text:
                points, flaw = _entry_points(raw, each.distribution)
                found += points
                reason = reason or flaw
            if reason:
                damaged.append((each.distribution, reason))
        found.sort()
        registries = tuple(point for point in found if point.group == REGISTRY)
        plugins = tuple(point for point in found if point.group != REGISTRY)
        return plugins, registries, tuple(sorted(damaged))

    def owner(self, file: Path) -> Distribution | None:
        """Return the distribution whose RECORD names a file, or None.

        Distributions named like the file's folder are read first, for there may be thousands.
        """
        home = next((folder for folder in self.folders if file.is_relative_to(folder)), None)
        if home is None:
            return None
        line = b"\n" + file.relative_to(home).as_posix().encode() + b","
        word = canonical(file.parent.name)
        here = [each for each in self._scan[0].values() if each.folder == os.fspath(home)]
        for each in sorted(here, key=lambda each: word not in each.name):
            raw, _ = _read(f"{each.folder}{os.sep}{each.file_name}{os.sep}RECORD")
            if line in b"\n" + raw:
                return each.distribution
        return None

    def files(self, distribution: Distribution) -> tuple[str, ...]:
        """Return the paths in a distribution's RECORD, from its folder; skip those in quotes."""
        lines = _read(os.fspath(distribution.info / "RECORD"))[0].decode("utf-8", "replace")
        paths = (line.rsplit(",", 2)[0] for line in lines.splitlines())
        return tuple(path for path in paths if path and not path.startswith('"'))

    def package_folders(self, module: str) -> Iterator[Path]:
        """Yield the folders of a package, in the order of `sys.path`; import nothing."""
        top, *rest = module.split(".")
        for folder in self.folders:
            package = folder.joinpath(top, *rest)
            if os.path.isdir(package):
                yield package
        for finder in self.finders:
            spec = finder.find_spec(top, None)
            for location in (spec and spec.submodule_search_locations) or ():
                package = Path(location).joinpath(*rest)
                if os.path.isdir(package):
                    yield package
            yield from _editable_folders(finder, module)


def _absolute(item: str) -> str:
    try:
        return os.path.abspath(item)
    except FileNotFoundError:  # The current folder is gone, and so is everything relative to it.
        return ""


def _editable_folders(finder: Any, module: str) -> Iterator[Path]:
    """Yield the folder that setuptools' finder has for a namespace, or for a package inside one."""
    mapping = getattr(sys.modules.get(finder.__module__), "MAPPING", {})
    for name, location in mapping.items():
        parent, dot, child = name.rpartition(".")
        if dot and name == module:
            yield Path(location)
        elif dot and parent == module and Path(location).name == child:
            yield Path(location).parent


def _read(path: str) -> tuple[bytes, str]:
    """Return a small file's bytes, and why they cannot be read, if so; an absent file is empty.

    Thousands of files are asked for, so none gets a file object, which takes three times as long.
    """
    content = bytearray()
    try:
        file = os.open(path, _READ)
        try:
            while part := os.read(file, _PART_NBYTES):
                content += part
                if len(content) > digest.MOST_NBYTES:
                    return b"", f"larger than {digest.MOST_NBYTES:,} bytes"
        finally:
            os.close(file)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as exc:
        return b"", exc.strerror or str(exc)
    return bytes(content), ""


def _entry_points(raw: bytes, distribution: Distribution) -> tuple[list[EntryPoint], str]:
    """Return a distribution's entry points of `GROUPS`, and why there may be others, if so."""
    text = raw.decode("utf-8-sig", "replace")
    reason = "it is not UTF-8" if "\0" in text or "\ufffd" in text else ""
    group: str | None = None
    found = []
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        is_header, is_comment = line.startswith("["), not line or line.startswith(("#", ";"))
        if is_header and line.endswith("]"):
            group = line[1:-1].strip()
        elif group in GROUPS and "=" in line and not is_comment:
            name, _, value = line.partition("=")
            module = value.partition("[")[0].partition(":")[0].strip()
            found.append(EntryPoint(group, name.strip(), module, distribution))
        elif is_header or (group in (None, *GROUPS) and not is_comment):
            reason = reason or f"line {number} is {line[:80]!r}"
            group = "" if is_header else group
    return found, reason


def _infos(folder: str) -> Iterator[_Info]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if name.endswith(".dist-info"):
            stem, _, version = name[: -len(".dist-info")].rpartition("-")
            if stem:
                yield _Info(canonical(stem), version, name, folder)
        elif name.endswith(".egg-info"):
            # The stem is "toy-1.0-py3.11", or "toy" in a folder of sources.
            stem, version, *_ = f"{name[: -len('.egg-info')]}-".split("-")
            yield _Info(canonical(stem), version, name, folder)
