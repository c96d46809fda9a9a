"""What could be installed: the registry's rows, each with its manifest's words."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pjrt_hub.base.abi import ApiVersion, Verdict
from pjrt_hub.base.listing import Listing, size_text
from pjrt_hub.door.process import known_rows, world
from pjrt_hub.finding.discovery import packages
from pjrt_hub.finding.discovery.registry_rows import manifest_of
from pjrt_hub.finding.store.catalog import newest_for_each_kind


class Offer(NamedTuple):
    """A plugin's newest build for one kind of machine."""

    name: str
    platform: str
    aliases: tuple[str, ...]
    description: str
    package: str
    version: str
    license: str
    publisher: str  # The builder by the index's attestation, or empty.
    api_version: ApiVersion | None
    host: str  # The oldest machine that it runs on, such as "linux-x86_64-glibc2.28".
    fits: Verdict  # Whether it runs on this machine; the reason says why not.
    size: int  # The bytes to download, with all that it requires.
    requires: tuple[str, ...]  # Packages with their versions.
    installed: tuple[Path, ...]  # The manifests of its name in the folders of all levels.

    @property
    def names(self) -> tuple[str, ...]:
        """What it can be found by."""
        return (self.name, self.platform, *self.aliases, self.package, self.description)

    def _row(self) -> dict[str, str]:
        return {
            "name": self.name,
            "platform": self.platform,
            "package": f"{self.package} {self.version}",
            "api": str(self.api_version or "-"),
            "size": size_text(self.size),
            "description": self.fits.reason or self.description,
        }


Offer.__module__ = "pjrt_hub"  # The body of a NamedTuple cannot set this.


def search(text: str = "") -> Listing[Offer]:
    """List the plugins that could be installed; those that run here come first.

    Args:
        text: what their names, packages or descriptions contain, in whatever case.
    """
    here = world()
    described, _ = packages.describe(here)
    places = [each.manifests for each in here.levels()]
    offers = []
    for row in newest_for_each_kind(known_rows(here.catalog)):
        about, reason = manifest_of(row, described), row.runs(here.host)
        files = (folder / f"{about.name}.toml" for folder in places)
        offers.append(
            Offer(
                about.name,
                about.platform,
                about.aliases,
                about.description,
                row.package,
                row.version,
                row.license,
                row.publisher,
                row.api_version,
                str(row.host),
                Verdict(not reason, reason),
                size=sum(each.size for each in row.archives),
                requires=tuple(f"{each.package} {each.version}" for each in row.requires),
                installed=tuple(filter(Path.exists, files)),
            )
        )
    words = "\n".join
    return Listing(
        each
        for each in sorted(offers, key=lambda each: (not each.fits.ok, each.name))
        if text.lower() in words(each.names).lower()
    )
