"""The reading of a manifest as a `Manifest`: a package's `pjrt_plugin.toml`, or one of its own.

Owns a plugin's description as data; must not look for the library or at the machine.
The formats are described in docs/manifest.md and docs/spec/manifest.md.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.host import HostTag
from pjrt_hub.finding.contract import option
from pjrt_hub.finding.contract.names import canonical, is_name
from pjrt_hub.finding.contract.option import (
    CompileFlag,
    FlagValue,
    Option,
    OptionValue,
    read_compile_flags,
)
from pjrt_hub.finding.contract.table import Table
from pjrt_hub.finding.contract.target import NO_TARGETS, Targets

SCHEMA = 1
FILE_NAME = "pjrt_plugin.toml"
DEFAULT_PRIORITY = 400

PROBE_KINDS = ("always", "files", "kfd", "pci")
WHEN = ("always", "present", "absent")
_SHA256 = re.compile("[0-9a-f]{64}")
_TARGET = re.compile(r"([a-z0-9_]+)-([a-z0-9_]+)(?:-([a-z]{1,31})(?:([0-9]{1,4})\.([0-9]{1,4}))?)?")
#: The bases of a path that only the manifest in a package has.
_BASES = ("distribution", "module", "variable")


class Library(NamedTuple):
    """One place where the plugin's library may lie: at most one base, and a path below it."""

    distribution: str = ""  # The canonical name; `path` is relative to where it is installed.
    module: str = ""  # The dotted name of a package; `path` is relative to its folder.
    variable: str = ""  # The environment variable that holds the whole path; `path` is empty.
    path: str = ""  # A POSIX path, with `*` and `?`; with no base, it is relative to the manifest.
    sha256: str = ""  # The sha256 of the library that the manifest was written for.
    target: HostTag | None = None  # The machine that it needs; None where nobody says.

    def __str__(self) -> str:
        if self.variable:
            return f"${self.variable}"
        if self.distribution:
            return f"{self.path} of the distribution {self.distribution}"
        return f"{self.path} of the package {self.module}" if self.module else self.path


class Preload(NamedTuple):
    """Libraries to load before the plugin, in order, from `folder` of the package `module`."""

    module: str  # If it is empty, the folder is absolute, or relative to the manifest.
    libraries: tuple[str, ...]
    folder: str = "lib"


class Probe(NamedTuple):
    """The detection of the hardware, from files only.

    The kind is "always", "files" (any of `files` exists), "kfd" (an AMD compute node), "pci" (a
    device of `vendor` and one of `devices`), or "unknown" for a plugin without a manifest.
    """

    kind: str = "always"
    files: tuple[str, ...] = ()  # Absolute paths.
    vendor: str = ""  # The PCI vendor, as in /sys ("0x1ae0").
    devices: tuple[str, ...] = ()  # The PCI devices, as in /sys; empty means any.
    driver_file: str = ""  # The file that holds the driver's version.
    driver_minimum: int = 0  # The oldest major version of the driver that is new enough.

    def as_table(self) -> dict[str, Any]:
        """Return the table of a manifest that says the same."""
        told: dict[str, Any] = {"kind": self.kind, "files": [*self.files], "vendor": self.vendor}
        told["devices"] = [*self.devices]
        if self.driver_file:
            told["driver"] = {"file": self.driver_file, "minimum": self.driver_minimum}
        return {key: each for key, each in told.items() if each}


class EnvironmentDefault(NamedTuple):
    """A variable to set before the library is loaded, unless the user has set it."""

    name: str
    value: str
    when: str = "always"  # "always", or where the hardware is "present" or "absent".


class Manifest(NamedTuple):
    """A plugin's description of itself."""

    name: str  # A name that no other plugin has ("cuda13").
    platform: str  # The platform that it drives ("cuda"); several plugins may share one.
    description: str = ""
    aliases: tuple[str, ...] = ()  # Other words that select it ("gpu").
    priority: int = DEFAULT_PRIORITY  # The highest wins if no platform is named.
    libraries: tuple[Library, ...] = ()  # Where its library may be, in order.
    registry: tuple[str, ...] = ()  # Keys of the registry rows that hold it.
    preloads: tuple[Preload, ...] = ()  # The libraries to load before it.
    probe: Probe = Probe()
    options: tuple[Option, ...] = ()
    compile_flags: tuple[CompileFlag, ...] = ()  # XLA flags that apply unless the user sets them.
    environment: tuple[EnvironmentDefault, ...] = ()
    targets: Targets = NO_TARGETS  # Machines that it compiles for without the hardware.
    api_minimum: ApiVersion | None = None  # The oldest PJRT API that the manifest describes.
    api_maximum: ApiVersion | None = None  # The newest PJRT API that it describes.
    extensions: tuple[str, ...] = ()  # The library's extensions when this was written.
    path: Path | None = None  # The manifest's file; None if nobody described the plugin.
    module: str = ""  # The package around it; its `initialize()` runs when the plugin is chosen.

    def create_options(
        self, given: Mapping[str, object], api: ApiVersion | None = None
    ) -> dict[str, OptionValue]:
        """Return the options for `PJRT_Client_Create`: the defaults, overridden by `given`.

        Options of a plugin without a manifest pass with the type that Python gives them. Errors
        are those of `option.check`.
        """
        if self.path is None:
            return option.infer_all(given)
        return option.check(self.options, given, plugin=self.name, what="create option", api=api)

    def options_from_environment(
        self, env: Mapping[str, str], api: ApiVersion | None
    ) -> dict[str, OptionValue]:
        """Return the create options that variables set, if version `api` takes them.

        If the version is unknown, only options that every version takes are returned. A text that
        is no value of its option's type raises ValueError.
        """
        fitting = [
            each for each in self.options if each.since is None or (api and each.since <= api)
        ]
        found = {each.name: each.from_environment(env) for each in fitting}
        return {name: value for name, value in found.items() if value is not None}

    def topology_options(
        self, name: str, given: Mapping[str, object], library: Path, api: ApiVersion | None = None
    ) -> tuple[str, dict[str, OptionValue]]:
        """Return the name and options for `PJRT_TopologyDescription_Create`.

        Those of a plugin without a manifest pass as they are; for others, see `Targets.resolve`.
        """
        if self.path is None:
            return name, option.infer_all(given)
        return self.targets.resolve(name, given, plugin=self.name, library=library, api=api)

    def compile_flags_beside(
        self, given: Container[str], api: ApiVersion, code: bytes = b""
    ) -> dict[str, FlagValue]:
        """Return the XLA flags with which to compile a program's code, in addition to a user's."""
        return {each.name: each.value for each in self.compile_flags if each.fits(given, api, code)}

    def environment_for(self, *, present: bool) -> dict[str, str]:
        """Return the variables to set by default on a machine with or without the hardware."""
        here = ("always", "present" if present else "absent")
        return {item.name: item.value for item in self.environment if item.when in here}


def read(path: Path) -> tuple[Manifest, ...]:
    """Read a `pjrt_plugin.toml`: one plugin, or several as `[[plugin]]`.

    Keys above the first `[[plugin]]` apply to every plugin. In `options`, `compile_flags`,
    `environment` and `topology`, a plugin's own entries are added to these; its other keys replace
    them. A ManifestError names the file, the key, what was found and what was expected.
    """
    top = Table.read(path)
    if "plugin" not in top.data:
        return (_manifest(top),)
    shared = {key: value for key, value in top.data.items() if key != "plugin"}
    merged = [
        _manifest(Table({**shared, **_merge(shared, table)}, path, f"plugin[{number}]"))
        for number, table in enumerate(top.tables("plugin"))
    ]
    names = [manifest.name for manifest in merged]
    if not merged or len(set(names)) < len(names):
        top.fail("plugin", "at least one plugin, each with its own name")
    return tuple(merged)


def read_standalone(path: Path) -> Manifest:
    """Read a manifest that is in no package, by the rules 12 to 24 of docs/spec/manifest.md.

    A ManifestError is as for `read`; keys that nobody knows are passed over.
    """
    return _manifest(Table.read(path, lenient=True))


def parse_standalone(raw: bytes, path: Path) -> Manifest:
    """Read the text of such a manifest as it would be read at `path`."""
    return _manifest(Table.parse(raw, path, lenient=True))


def default_manifest(name: str, platform: str = "") -> Manifest:
    """Make the manifest of a plugin that has none."""
    what = f"no {FILE_NAME} describes it"
    return Manifest(name, platform or name, description=what, probe=Probe("unknown"))


def _merge(shared: Mapping[str, Any], table: Table) -> dict[str, Any]:
    own = dict(table.data)
    for key in ("options", "compile_flags", "environment", "topology"):
        if isinstance(own.get(key), dict) and isinstance(shared.get(key), dict):
            own[key] = {**shared[key], **own[key]}
    return own


def _manifest(table: Table) -> Manifest:
    if table.integer("schema") != SCHEMA:
        table.fail("schema", f"{SCHEMA}, the only one that is known here")
    name = _name(table, "name")
    if table.lenient and name != table.path.stem:
        table.fail("name", f'"{table.path.stem}", the name of its file')
    aliases = table.texts("aliases")
    if not all(is_name(alias) for alias in aliases):
        table.fail("aliases", "names of [a-z0-9_], 1 to 32 characters")
    priority = table.integer("priority", DEFAULT_PRIORITY)
    if not 0 <= priority <= 1000:
        table.fail("priority", "an integer from 0 to 1000")
    api, environment = table.table("api"), table.table("environment")
    manifest = Manifest(
        name=name,
        platform=_name(table, "platform"),
        description=table.text("description", ""),
        aliases=aliases,
        priority=priority,
        libraries=tuple(_library(item) for item in _own(table, "library")),
        registry=table.texts("registry"),
        preloads=tuple(_preload(item) for item in _own(table, "preload")),
        probe=_probe(table.table("probe")),
        options=option.read_all(table.table("options")),
        compile_flags=read_compile_flags(table.table("compile_flags")),
        environment=tuple(_environment(key, environment) for key in sorted(environment.data)),
        targets=Targets.read(table.table("topology")),
        api_minimum=api.version("minimum"),
        api_maximum=api.version("maximum"),
        extensions=api.texts("extensions"),
        path=table.path,
    )
    api.finish()
    table.finish()
    if not manifest.libraries and (table.lenient or not manifest.registry):
        either = " with a path" if table.lenient else ", or a `registry` key"
        table.fail("library", f"at least one [[library]]{either}")
    return manifest


def _own(table: Table, key: str) -> Iterator[Table]:
    """Yield an array of tables; outside a package, without those that are about packages."""
    for each in table.tables(key):
        if not (table.lenient and each.data.keys() & set(_BASES)):
            yield each


def _name(table: Table, key: str) -> str:
    text = table.text(key)
    if not is_name(text):
        table.fail(key, "a name of ASCII [a-z0-9_], 1 to 32 characters")
    return text


def _path(table: Table, key: str, default: str | None = None) -> str:
    text = table.text(key, default)
    path = PurePosixPath(text)
    kind, wild = ("a path", ("*", "?", "[")) if table.lenient else ("a relative path", ("**",))
    is_odd = ".." in path.parts or any(part in text for part in ("\\", "\0", *wild))
    if not text or is_odd or (path.is_absolute() and not table.lenient):
        without = ", ".join(f"'{part}'" for part in ("..", *wild))
        table.fail(key, f"{kind} with forward slashes, without {without}")
    return text


def _library(table: Table) -> Library:
    bases = [key for key in _BASES if key in table.data]
    if len(bases) > 1:
        table.fail(bases[1], f"one base: {bases[0]} is there already")
    library = Library(
        distribution=canonical(table.text("distribution", "")),
        module=table.text("module", ""),
        variable=table.text("variable", ""),
        path="" if bases == ["variable"] else _path(table, "path"),
        sha256=table.text("sha256", ""),
        target=_target(table) if table.lenient and "target" in table.data else None,
    )
    if "sha256" in table.data and not _SHA256.fullmatch(library.sha256):
        table.fail("sha256", "64 digits of [0-9a-f]")
    if library.module:
        _check_module(table)
    table.finish()
    return library


def _target(table: Table) -> HostTag:
    found = _TARGET.fullmatch(table.text("target"))
    if not found:
        table.fail("target", "a target such as 'linux-x86_64-glibc2.28'")
    version = (int(found[4]), int(found[5])) if found[4] else ()
    return HostTag(found[1], found[2], found[3] or "", version)


def _check_module(table: Table) -> None:
    if not all(part.isidentifier() for part in table.text("module").split(".")):
        table.fail("module", "the dotted name of a package")


def _preload(table: Table) -> Preload:
    module = "" if table.lenient else table.text("module")
    preload = Preload(module, table.texts("libraries"), _path(table, "folder", "lib"))
    if module:
        _check_module(table)
    if not preload.libraries or any("/" in name for name in preload.libraries):
        table.fail("libraries", "file names such as 'libcudart.so.13'")
    table.finish()
    return preload


def _probe(table: Table) -> Probe:
    driver = table.table("driver")
    probe = Probe(
        kind=table.text("kind", "always"),
        files=table.texts("files"),
        vendor=table.text("vendor", "").lower(),
        devices=tuple(device.lower() for device in table.texts("devices")),
        driver_file=driver.text("file", ""),
        driver_minimum=driver.integer("minimum", 0),
    )
    if probe.kind not in PROBE_KINDS:
        table.fail("kind", f"one of {', '.join(PROBE_KINDS)}")
    if probe.kind == "files" and not probe.files:
        table.fail("files", "at least one path")
    if probe.kind == "pci" and not probe.vendor:
        table.fail("vendor", "a PCI vendor such as '0x1ae0'")
    if not all(path.startswith("/") for path in probe.files):
        table.fail("files", "absolute paths")
    driver.finish()
    table.finish()
    return probe


def _environment(name: str, environment: Table) -> EnvironmentDefault:
    if not isinstance(environment.data[name], dict):
        default = EnvironmentDefault(name, environment.text(name))
    else:
        table = environment.table(name)
        default = EnvironmentDefault(name, table.text("value"), table.text("when", "always"))
        if default.when not in WHEN:
            table.fail("when", f"one of {', '.join(WHEN)}")
        table.finish()
    if not name or "=" in name or "\0" in name + default.value:
        environment.fail(name, "a variable's name without '=', and no NUL")
    return default
