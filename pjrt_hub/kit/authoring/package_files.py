"""What is shipped: a wheel, a folder or a bare library, opened for the rules of `lint`.

Reads each part of a package once; must not judge it, nor load a plugin into this process.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub.base.fork import cached_property
from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import ManifestError, PjrtHubError, PluginLoadError
from pjrt_hub.finding.contract import headers, manifest
from pjrt_hub.finding.contract.binary import Binary
from pjrt_hub.finding.contract.manifest import Library, Manifest
from pjrt_hub.finding.contract.names import canonical
from pjrt_hub.kit.authoring import native_library
from pjrt_hub.kit.authoring.identity import LibraryIdentity, identify
from pjrt_hub.kit.authoring.native_library import NativeLibrary

if TYPE_CHECKING:
    from email.message import Message

#: A file with one of these suffixes is expected to be a library.
_SUFFIXES = (".so", ".dylib", ".dll", ".pyd")
_MOST_NBYTES = 8_000_000_000


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A line of entry_points.txt: "jax_plugins", "mychip", "mychip_pjrt.jax_plugin"."""

    group: str
    name: str
    value: str

    @property
    def module(self) -> str:
        """The module that is imported."""
        return self.value.partition(":")[0].strip()

    @property
    def attribute(self) -> str:
        """The object that is taken from the module, or empty."""
        return self.value.partition(":")[2].partition("[")[0].strip()

    def __str__(self) -> str:
        return f"{self.group}:{self.name}"


class PackageFiles:
    """What is shipped, as files below `root`, the folder that stands for site-packages."""

    def __init__(self, path: Path, root: Path, *, probes: bool) -> None:
        self.path = path
        self.wheel = path if path.suffix == ".whl" else None
        self.root = root
        self.files = (path,) if path.is_file() and not self.wheel else tuple(sorted(_walk(root)))
        self._probes = probes

    def name(self, path: Path) -> str:
        """Return a file's path from the root on, as findings show it."""
        return path.relative_to(self.root).as_posix() if path != self.path else path.name

    @cached_property
    def libraries(self) -> dict[Path, NativeLibrary]:
        """Every file that is a library and can be read."""
        return {path: read for path, read in self._native.items() if not isinstance(read, str)}

    @cached_property
    def natives(self) -> tuple[Binary, ...]:
        """The headers of each library; a universal library has one entry for each machine."""
        return tuple(part for each in self.libraries.values() for part in each.parts)

    @cached_property
    def unreadable(self) -> dict[Path, str]:
        """The files that look like libraries and cannot be read as such, with the reason."""
        return {path: read for path, read in self._native.items() if isinstance(read, str)}

    @cached_property
    def plugins(self) -> tuple[Binary, ...]:
        """The libraries that export GetPjrtApi."""
        return tuple(each for each in self.natives if each.exported)

    @cached_property
    def info(self) -> Path | None:
        """The `*.dist-info` folder of the one distribution here, or None."""
        found = sorted({path.parent for path in self.files if path.parent.suffix == ".dist-info"})
        return found[0] if len(found) == 1 else None

    @cached_property
    def metadata(self) -> Message | None:
        """The headers of the file METADATA, or None."""
        return self._headers("METADATA")

    @cached_property
    def tags(self) -> Message | None:
        """The headers of the file WHEEL, or None."""
        return self._headers("WHEEL")

    @cached_property
    def entry_points(self) -> tuple[EntryPoint, ...]:
        """The distribution's entry points."""
        import configparser

        if self.info is None or not (path := self.info / "entry_points.txt").is_file():
            return ()
        parser = configparser.ConfigParser(delimiters="=", interpolation=None)
        parser.optionxform = str  # type: ignore[assignment]  # names keep their case
        try:
            parser.read_string(path.read_text("utf-8", "replace"))
        except configparser.Error:
            return ()
        return tuple(
            EntryPoint(group, name, value)
            for group in parser.sections()
            for name, value in parser[group].items()
        )

    @cached_property
    def manifests(self) -> tuple[Manifest, ...]:
        """The manifest of every plugin that is described here."""
        return tuple(
            each for read in self._read.values() if not isinstance(read, str) for each in read
        )

    @cached_property
    def malformed(self) -> dict[Path, str]:
        """The manifests that cannot be read, with the reason."""
        return {path: read for path, read in self._read.items() if isinstance(read, str)}

    def library(self, plugin: Manifest, library: Library) -> tuple[Path, ...]:
        """Return the files that a manifest's `[[library]]` means; none if they are elsewhere."""
        assert plugin.path is not None
        if library.variable:
            return ()
        if library.distribution:
            base = self.root if library.distribution == self.distribution else None
        elif library.module:
            base = self.root.joinpath(*library.module.split("."))
        else:
            base = plugin.path.parent
        return tuple(sorted(base.glob(library.path))) if base else ()

    @cached_property
    def distribution(self) -> str:
        """The distribution's canonical name, or empty."""
        return canonical(self.metadata["Name"] or "") if self.metadata else ""

    @cached_property
    def identities(self) -> dict[Path, LibraryIdentity | PjrtHubError]:
        """The identity of each plugin for this machine, or the error; empty without probes."""
        if not self._probes:
            return {}
        host = HostTag.current()
        names = tuple(option.name for each in self.manifests for option in each.options)
        found: dict[Path, LibraryIdentity | PjrtHubError] = {}
        for plugin in self.plugins:
            if (host.os, host.arch) == (plugin.system, plugin.machine):
                try:
                    found[plugin.path] = identify(plugin.path, names=names)
                except PjrtHubError as exc:
                    found[plugin.path] = exc
        return found

    @cached_property
    def hosts(self) -> dict[Path, list[str]]:
        """The hosts that abort on each plugin here, and why; empty without probes."""
        from pjrt_hub.kit.conformance import suite

        found: dict[Path, list[str]] = {}
        for path, identity in self.identities.items():
            if isinstance(identity, LibraryIdentity):
                report = suite.run(path, areas=["hosts"], offline=True)
                told = [text for each in report.results for text in (*each.notes, each.text)]
                found[path] = [text for text in told if " aborts at " in text]
        return found

    @cached_property
    def _read(self) -> dict[Path, tuple[Manifest, ...] | str]:
        found: dict[Path, tuple[Manifest, ...] | str] = {}
        for path in self.files:
            if path.name == manifest.FILE_NAME:
                try:
                    found[path] = manifest.read(path)
                except ManifestError as exc:
                    found[path] = exc.message
        return found

    def _headers(self, name: str) -> Message | None:
        from email.parser import Parser

        if self.info is None or not (path := self.info / name).is_file():
            return None
        return Parser().parsestr(path.read_text("utf-8", "replace"))

    @cached_property
    def _native(self) -> dict[Path, NativeLibrary | str]:
        found: dict[Path, NativeLibrary | str] = {}
        for path in self.files:
            if path.suffix in _SUFFIXES or headers.is_library(path):
                try:
                    found[path] = native_library.read(path)
                except PluginLoadError as exc:
                    found[path] = exc.message
        return found


@contextmanager
def open_package(path: Path, *, probes: bool = True) -> Iterator[PackageFiles]:
    """Open a wheel, a folder or a library; with `probes`, child processes load its plugins."""
    path = path.resolve()
    if path.is_dir():
        yield PackageFiles(path, path, probes=probes)
    elif not path.is_file():
        raise PjrtHubError(
            f"{path} is neither a file nor a folder", hint="give a wheel, a folder or a library"
        )
    elif path.suffix != ".whl":
        yield PackageFiles(path, path.parent, probes=probes)
    else:
        with tempfile.TemporaryDirectory(prefix="pjrt-hub-lint-") as folder:
            try:
                with zipfile.ZipFile(path) as archive:
                    if sum(member.file_size for member in archive.infolist()) > _MOST_NBYTES:
                        raise zipfile.BadZipFile("it holds more than 8 GB")
                    archive.extractall(folder)
            except (zipfile.BadZipFile, OSError, RuntimeError) as exc:  # A password may be needed.
                raise PjrtHubError(
                    f"{path} cannot be read as a wheel: {exc}", hint="build it again"
                ) from None
            yield PackageFiles(path, Path(folder).resolve(), probes=probes)


def _walk(root: Path) -> Iterator[Path]:
    """List the files below a folder, without hidden ones."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name[0] != "." and name != "__pycache__"]
        yield from (path for name in names if (path := Path(folder, name)).is_file())
