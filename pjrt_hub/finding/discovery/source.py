"""The records of discovery: World, Described, Candidate and Rejection.

Owns the arguments and results of searches; must not search for anything itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.base.abi import ApiVersion, Verdict
from pjrt_hub.base.host import HostTag
from pjrt_hub.finding.contract.manifest import Manifest
from pjrt_hub.finding.contract.option import OptionValue
from pjrt_hub.finding.discovery.installed import Distribution, Installed
from pjrt_hub.finding.store.catalog import Artifact, Catalog
from pjrt_hub.finding.store.level import Level, levels

if TYPE_CHECKING:
    from pjrt_hub.finding.store.cache.cache import Cache
    from pjrt_hub.finding.store.pins import Pins

#: This folder holds the `pjrt_plugins` of this distribution, installed or checked out.
FIRST_PARTY = Path(__file__).resolve().parents[3]


class World(NamedTuple):
    """Everything that discovery may look at; tests replace it."""

    env: Mapping[str, str]
    host: HostTag
    installed: Installed  # What is in the folders that Python imports from.
    catalog: Catalog = Catalog([])  # The registry.
    cache: Cache | None = None  # What has been fetched.
    pins: Pins | None = None  # The lock file in force; the catalog already applies it.
    root: Path = Path("/")  # Replaces "/" as the place of /dev, /sys and /proc.
    first_party: Path = FIRST_PARTY  # The folder of our own `pjrt_plugins`.

    @classmethod
    def current(cls, env: Mapping[str, str], installed: Installed | None = None) -> World:
        """Return the world of this process: what is installed for it, and this machine."""
        return cls(env, HostTag.current(), installed or Installed.current())

    def levels(self) -> Iterator[Level]:
        """Yield the levels of this machine, in the order in which their manifests count."""
        return levels(self.env, self.root, windows=self.host.os == "windows")

    def veto(self, name: str) -> str:
        """Return which variable leaves a plugin out, or an empty string."""
        is_selected = _matches(name, self.env.get("PJRT_HUB_SELECT", ""))
        if is_selected is None and _matches(name, self.env.get("PJRT_HUB_DISABLE", "")):
            return "PJRT_HUB_DISABLE names it"
        return "PJRT_HUB_SELECT does not name it" if is_selected is False else ""

    def refusal(self, library_path: Path) -> str:
        """Return why the lock file forbids a library, or an empty string."""
        if self.pins is None:
            return ""
        from pjrt_hub.base import digest
        from pjrt_hub.finding.store.cache.memo import Probes

        sha256 = Probes(self.cache.root).sha256 if self.cache else digest.of_file
        return self.pins.refusal(library_path, sha256)


def _matches(name: str, patterns: str) -> bool | None:
    """Check whether one of the patterns, between commas, matches; return None without any."""
    given = list(filter(None, (each.strip(" \t") for each in patterns.split(","))))
    # Only `*` has a meaning, and no name holds what else has one in fnmatch.
    plain = [each for each in given if not set(each) & set("?[")]
    return any(fnmatchcase(name, each) for each in plain) if given else None


class Described(NamedTuple):
    """A manifest and its origin; the plugin's library may lie elsewhere, or be absent."""

    manifest: Manifest
    source: str  # The source that found it.
    origins: tuple[str, ...]  # Where it was found.
    distribution: str = ""  # The canonical name of the manifest's distribution, if known.


class Candidate(NamedTuple):
    """A plugin that could be used: a library on this machine, or a registry row to fetch.

    Its source is "explicit", "environment", "entry_points", "namespace", "vendor_wheels",
    "manifests", "cached" or "catalogued".
    """

    manifest: Manifest
    source: str
    origins: tuple[str, ...]  # Every place where it was found.
    distribution: str = ""  # The canonical name of the library's distribution, if known.
    version: str = ""
    described_by: str = ""  # The canonical name of the manifest's distribution, if known.
    library_path: Path | None = None  # The absolute path; None if it must be fetched.
    artifact: Artifact | None = None  # The row of a cached or catalogued plugin.
    create_options: tuple[tuple[str, Any], ...] = ()  # Those in PJRT_NAMES_AND_LIBRARY_PATHS.
    hardware: Verdict = Verdict(True)  # Whether the hardware is present.
    notes: tuple[str, ...] = ()  # What the user should know, though it is no reason to reject it.

    @classmethod
    def of_file(
        cls, manifest: Manifest, source: str, origin: str, path: Path, shipped: Distribution | None
    ) -> Candidate:
        """Make the candidate of a library that is not described, and that `shipped` brought."""
        name, version = (shipped.name, shipped.version) if shipped else ("", "")
        return cls(manifest, source, (origin,), name, version, library_path=path)

    @property
    def name(self) -> str:
        """The plugin's name ("cuda13")."""
        return self.manifest.name

    @property
    def platform(self) -> str:
        """The platform that it drives ("cuda")."""
        return self.manifest.platform

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other words that select the plugin."""
        return self.manifest.aliases

    @property
    def priority(self) -> int:
        """The priority; the highest wins if no platform is named."""
        return self.manifest.priority

    @property
    def origin(self) -> str:
        """Every place that led to the candidate, in one line."""
        return "; ".join(self.origins)

    @property
    def api_version(self) -> ApiVersion | None:
        """The PJRT API version, known before loading only from a registry row."""
        return None if self.artifact is None else self.artifact.api_version

    @property
    def may_run(self) -> bool:
        """Whether its hardware is present, or unknown."""
        return self.hardware.ok is not False

    @property
    def must_be_fetched(self) -> bool:
        """Whether it is not on this machine yet."""
        return self.library_path is None

    def check_options(
        self, given: Mapping[str, object], env: Mapping[str, str], api: ApiVersion | None = None
    ) -> dict[str, OptionValue]:
        """Return a client's create options: the candidate's, then the variables', then `given`.

        Later ones win. Without `api`, the version is the registry row's, if there is one. A value
        of another type raises TypeError; ValueError means that there is no such option, that it is
        of a later version, or that a variable's text is no value of its type.
        """
        api = api or self.api_version
        said = self.manifest.options_from_environment(env, api)
        return self.manifest.create_options({**dict(self.create_options), **said, **given}, api)

    def is_same_build(self, other: Candidate | None) -> bool:
        """Check whether both are the same build; fetching a registry row does not change it."""
        if other is None:
            return False
        if self.artifact or other.artifact:
            return self.artifact == other.artifact
        return (self.name, self.library_path) == (other.name, other.library_path)

    def __str__(self) -> str:
        """Name the candidate distinctly: plugin, distribution, place."""
        shipped = f"{self.distribution} {self.version}".strip()
        place = self.library_path or "must be fetched"
        return f"{self.name}{f' of {shipped}' if shipped else ''} ({place})"


class Rejection(NamedTuple):
    """The reason why something is not used."""

    name: str  # The plugin, or the word that was asked for.
    origin: str
    reason: str
    hint: str = ""  # The next step.
    absent: bool = False  # Whether it is missing on this machine, as opposed to unusable.
    shadowed: bool = False  # Whether something else of that name is used in its place.
    build: Candidate | None = None  # The rejected build, which "distribution:plugin" chooses.

    def __str__(self) -> str:
        place = f" [{self.origin}]" if self.origin else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.name}: {self.reason}{hint}{place}"


Found = Candidate | Rejection
