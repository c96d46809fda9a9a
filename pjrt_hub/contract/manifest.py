"""`pjrt_plugin.toml` -> `Manifest` (layer 1).

Owns what a plugin says about itself, as data; must not look for the library or at the machine.
The format is described in docs/manifest.md.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pjrt_hub.abi import ApiVersion
from pjrt_hub.contract.names import canonical, did_you_mean, is_name
from pjrt_hub.contract.table import Table
from pjrt_hub.errors import ManifestError

SCHEMA = 1
FILE_NAME = "pjrt_plugin.toml"
DEFAULT_PRIORITY = 400

OptionValue = str | int | float | bool | tuple[int, ...]
OPTION_TYPES = ("string", "int64", "int64_list", "float", "bool")
PROBE_KINDS = ("always", "files", "kfd", "pci")
WHEN = ("always", "present", "absent")


@dataclass(frozen=True, slots=True)
class Library:
    """One place where the plugin's library may lie; exactly one base, and a path below it.

    Attributes:
        distribution: canonical name; `path` is relative to the folder it is installed in.
        module: dotted name of a package; `path` is relative to its folder.
        variable: an environment variable that holds the whole path; `path` is empty.
        path: a POSIX path, `*` and `?` allowed; with no base, relative to the manifest's folder.
    """

    distribution: str = ""
    module: str = ""
    variable: str = ""
    path: str = ""

    def __str__(self) -> str:
        if self.variable:
            return f"${self.variable}"
        if self.distribution:
            return f"{self.path} of the distribution {self.distribution}"
        return f"{self.path} of the package {self.module}" if self.module else self.path


@dataclass(frozen=True, slots=True)
class Preload:
    """Libraries to load before the plugin, in order, from `folder` of the package `module`."""

    module: str
    libraries: tuple[str, ...]
    folder: str = "lib"


@dataclass(frozen=True, slots=True)
class Probe:
    """How to tell, by files only, whether the hardware is there.

    Attributes:
        kind: "always"; "files" (any of `files` exists); "kfd" (an AMD compute node);
            "pci" (a device of `vendor` and one of `devices`).
        files: absolute paths.
        vendor: PCI vendor, as in /sys ("0x1ae0").
        devices: PCI devices; empty means any.
        driver_file: a file that holds the driver's version, or an empty string.
        driver_minimum: the oldest major version of the driver that will do.
    """

    kind: str = "always"
    files: tuple[str, ...] = ()
    vendor: str = ""
    devices: tuple[str, ...] = ()
    driver_file: str = ""
    driver_minimum: int = 0


@dataclass(frozen=True, slots=True)
class Option:
    """One create option of the plugin's client (`PJRT_Client_Create`).

    Attributes:
        name: as the plugin spells it.
        type: one of `OPTION_TYPES`.
        default: what we send where the user says nothing, or None to send nothing.
        doc: one line.
        since: the first PJRT API version of this plugin known to take it, or None.
    """

    name: str
    type: str
    default: OptionValue | None = None
    doc: str = ""
    since: ApiVersion | None = None

    def convert(self, value: object) -> OptionValue:
        """Gives `value` as this option's type; nothing is parsed and nothing is rounded.

        A wrong type aborts the process inside some plugins (std::bad_variant_access through the
        C ABI), so it must never reach one.

        Raises:
            TypeError: the type is another.
            ValueError: an integer does not fit into 64 bits.
        """
        if self.type == "string" and isinstance(value, str):
            return value
        if self.type == "bool" and isinstance(value, bool):
            return value
        if self.type == "float" and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if self.type == "int64":
            return self._int64(value)
        if self.type == "int64_list" and not isinstance(value, str | bytes):
            return tuple(self._int64(item) for item in self._items(value))
        raise self._mismatch(value)

    def _items(self, value: object) -> Iterable[object]:
        if not isinstance(value, Iterable):
            raise self._mismatch(value)
        return value

    def _int64(self, value: Any) -> int:
        if isinstance(value, bool):
            raise self._mismatch(value)
        try:
            number = operator.index(value)
        except TypeError as exc:
            raise self._mismatch(value) from exc
        if not -(1 << 63) <= number < 1 << 63:
            raise ValueError(f"option {self.name!r}: {number} does not fit into 64 bits")
        return number

    def _mismatch(self, value: object) -> TypeError:
        return TypeError(
            f"option {self.name!r} is of type {self.type}, found {value!r} "
            f"of type {type(value).__name__}"
        )


@dataclass(frozen=True, slots=True)
class EnvironmentDefault:
    """A variable to set before the library is loaded, where the user has not set it.

    Attributes:
        name: the variable.
        value: its value.
        when: "always", or only where the hardware is "present" or "absent".
    """

    name: str
    value: str
    when: str = "always"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a plugin says about itself.

    Attributes:
        name: the plugin ("cuda13"); unique among plugins.
        platform: what it drives ("cuda"); several plugins may share one.
        description: one line.
        aliases: further words that select it ("gpu").
        priority: the highest wins where nobody asked for a platform.
        libraries: places of its library, in order.
        registry: keys of the registry rows that hold it.
        preloads: libraries to load before it.
        probe: how to tell that its hardware is there.
        options: its create options.
        environment: variables to set before it is loaded.
        api_minimum: the oldest PJRT API version that the manifest speaks of, or None.
        api_maximum: the newest one, or None.
        path: the file, or None for a plugin that nobody described.
    """

    name: str
    platform: str
    description: str = ""
    aliases: tuple[str, ...] = ()
    priority: int = DEFAULT_PRIORITY
    libraries: tuple[Library, ...] = ()
    registry: tuple[str, ...] = ()
    preloads: tuple[Preload, ...] = ()
    probe: Probe = Probe()
    options: tuple[Option, ...] = ()
    environment: tuple[EnvironmentDefault, ...] = ()
    api_minimum: ApiVersion | None = None
    api_maximum: ApiVersion | None = None
    path: Path | None = None

    def create_options(
        self, given: Mapping[str, object], api: ApiVersion | None = None
    ) -> dict[str, OptionValue]:
        """Gives the options for `PJRT_Client_Create`: `given`, checked, over the defaults.

        Options of a plugin that nobody described pass with the type that Python gives them.

        Args:
            given: the user's options.
            api: the plugin's version; options that came later are refused, their defaults left out.

        Raises:
            TypeError: an option has another type.
            ValueError: the plugin has no such option, or its version is too old for it.
        """
        known = {option.name: option for option in self.options}
        result: dict[str, OptionValue] = {}
        for option in self.options:
            fits = option.since is None or api is None or option.since <= api
            if option.default is not None and fits:
                result[option.name] = option.default
        for name, value in given.items():
            if name not in known:
                if self.path is not None:
                    raise ValueError(_unknown_option(self.name, name, known))
                result[name] = _undescribed(name, value)
                continue
            since = known[name].since
            if since is not None and api is not None and since > api:
                raise ValueError(
                    f"option {name!r} is known since PJRT API {since}, {self.name} has {api}"
                )
            result[name] = known[name].convert(value)
        return result

    def environment_for(self, *, present: bool) -> dict[str, str]:
        """Gives the variables to set by default on a machine with or without the hardware."""
        here = ("always", "present" if present else "absent")
        return {item.name: item.value for item in self.environment if item.when in here}


def read(path: Path) -> tuple[Manifest, ...]:
    """Reads a `pjrt_plugin.toml`: one plugin, or several as `[[plugin]]`.

    What stands above the first `[[plugin]]` holds for each of them; in `options` and `environment`
    a plugin's entries are added to it, any other key of a plugin replaces it.

    Raises:
        ManifestError: naming the file, the key, what was found and what was expected.
    """
    top = Table.read(path)
    if top.integer("schema") != SCHEMA:
        top.fail("schema", f"{SCHEMA}: this pjrt-hub reads no other; a newer one may")
    if "plugin" not in top.data:
        return (_manifest(top),)
    shared = {key: value for key, value in top.data.items() if key != "plugin"}
    merged = [
        _manifest(Table({**shared, **_added(shared, table)}, path, f"plugin[{number}]"))
        for number, table in enumerate(top.tables("plugin"))
    ]
    names = [manifest.name for manifest in merged]
    if not merged or len(set(names)) < len(names):
        top.fail("plugin", "at least one plugin, each with its own name")
    return tuple(merged)


def undescribed(name: str, platform: str = "") -> Manifest:
    """Gives the manifest of a plugin that nobody described."""
    return Manifest(name, platform or name, description="no pjrt_plugin.toml describes it")


def _added(shared: Mapping[str, Any], table: Table) -> dict[str, Any]:
    own = dict(table.data)
    for key in ("options", "environment"):
        if isinstance(own.get(key), dict) and isinstance(shared.get(key), dict):
            own[key] = {**shared[key], **own[key]}
    return own


def _manifest(table: Table) -> Manifest:
    table.integer("schema")
    name = _name(table, "name")
    aliases = table.texts("aliases")
    if not all(is_name(alias) for alias in aliases):
        table.fail("aliases", "names of [a-z0-9_], 1 to 32 characters")
    priority = table.integer("priority", DEFAULT_PRIORITY)
    if not 0 <= priority <= 1000:
        table.fail("priority", "an integer from 0 to 1000")
    api = table.table("api")
    manifest = Manifest(
        name=name,
        platform=_name(table, "platform"),
        description=table.text("description", ""),
        aliases=aliases,
        priority=priority,
        libraries=tuple(_library(item) for item in table.tables("library")),
        registry=table.texts("registry"),
        preloads=tuple(_preload(item) for item in table.tables("preload")),
        probe=_probe(table.table("probe")),
        options=tuple(_option(key, table.table("options")) for key in _keys(table, "options")),
        environment=tuple(
            _environment(key, table.table("environment")) for key in _keys(table, "environment")
        ),
        api_minimum=_version(api, "minimum"),
        api_maximum=_version(api, "maximum"),
        path=table.path,
    )
    api.finish()
    table.finish()
    if not manifest.libraries and not manifest.registry:
        table.fail("library", "at least one [[library]], or a `registry` key")
    return manifest


def _keys(table: Table, key: str) -> list[str]:
    return sorted(table.table(key).data)


def _name(table: Table, key: str) -> str:
    text = table.text(key)
    if not is_name(text):
        table.fail(key, "a name of ASCII [a-z0-9_], 1 to 32 characters")
    return text


def _relative(table: Table, key: str, default: str | None = None) -> str:
    text = table.text(key, default)
    path = PurePosixPath(text)
    if not text or path.is_absolute() or ".." in path.parts or "\\" in text or "\0" in text:
        table.fail(key, "a relative path with forward slashes and without '..'")
    return text


def _library(table: Table) -> Library:
    bases = [key for key in ("distribution", "module", "variable") if key in table.data]
    if len(bases) > 1:
        table.fail(bases[1], f"one base: {bases[0]} is there already")
    library = Library(
        distribution=canonical(table.text("distribution", "")),
        module=table.text("module", ""),
        variable=table.text("variable", ""),
        path="" if bases == ["variable"] else _relative(table, "path"),
    )
    if library.module:
        _dotted(table)
    table.finish()
    return library


def _dotted(table: Table) -> None:
    if not all(part.isidentifier() for part in table.text("module").split(".")):
        table.fail("module", "the dotted name of a package")


def _preload(table: Table) -> Preload:
    preload = Preload(
        table.text("module"), table.texts("libraries"), _relative(table, "folder", "lib")
    )
    _dotted(table)
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


def _option(name: str, options: Table) -> Option:
    table = options.table(name)
    kind = table.text("type")
    if kind not in OPTION_TYPES:
        table.fail("type", f"one of {', '.join(OPTION_TYPES)}")
    option = Option(name, kind, None, table.text("doc", ""), _version(table, "since"))
    default = table.any("default")
    table.finish()
    if default is None:
        return option
    try:
        return Option(name, kind, option.convert(default), option.doc, option.since)
    except (TypeError, ValueError) as exc:
        raise ManifestError(f"{table.path}: options.{name}.default: {exc}") from exc


def _environment(name: str, environment: Table) -> EnvironmentDefault:
    if isinstance(environment.data[name], str):
        return EnvironmentDefault(name, environment.text(name))
    table = environment.table(name)
    default = EnvironmentDefault(name, table.text("value"), table.text("when", "always"))
    if default.when not in WHEN:
        table.fail("when", f"one of {', '.join(WHEN)}")
    table.finish()
    return default


def _version(table: Table, key: str) -> ApiVersion | None:
    text = table.text(key, "")
    if not text:
        return None
    try:
        return ApiVersion.parse(text)
    except ValueError:
        table.fail(key, "a PJRT API version such as '0.81'")


def _unknown_option(plugin: str, name: str, known: Mapping[str, Option]) -> str:
    meant = did_you_mean(name, known)
    return (
        f"{plugin} has no create option {name!r}; it has {', '.join(sorted(known)) or 'none'}"
        + (f" ({meant})" if meant else "")
    )


def _undescribed(name: str, value: object) -> OptionValue:
    if isinstance(value, str | bool | float):
        return value
    kind = "int64_list" if isinstance(value, list | tuple) else "int64"
    return Option(name, kind).convert(value)
