"""What could be installed: the registry's rows, each with its manifest's words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pjrt_hub.base.listing import Listing, size_text
from pjrt_hub.door.process import known_rows, world
from pjrt_hub.finding.discovery import packages
from pjrt_hub.finding.discovery.registry_rows import manifest_of
from pjrt_hub.finding.store.catalog import newest_for_each_kind
from pjrt_hub.finding.store.level import levels

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.manifest import Manifest
    from pjrt_hub.finding.store.catalog import Artifact


class Offer(NamedTuple):
    """A plugin's newest build for one kind of machine."""

    manifest: Manifest
    row: Artifact
    fits: str  # Why it does not run on this machine, or empty.
    installed: tuple[Path, ...]  # The manifests of its name in the folders of all levels.

    @property
    def names(self) -> tuple[str, ...]:
        """What it can be found by."""
        own = self.manifest
        return (own.name, own.platform, *own.aliases, self.row.package, own.description)

    @property
    def size(self) -> int:
        """The bytes to download, with all that it requires."""
        return sum(each.size for each in self.row.archives)

    def _row(self) -> dict[str, str]:
        return {
            "name": self.manifest.name,
            "platform": self.manifest.platform,
            "package": f"{self.row.package} {self.row.version}",
            "api": str(self.row.api_version or "-"),
            "size": size_text(self.size),
            "description": self.fits or self.manifest.description,
        }


Offer.__module__ = "pjrt_hub"  # The body of a NamedTuple cannot set this.


def search(text: str = "") -> Listing[Offer]:
    """List the plugins that could be installed; those that run here come first.

    Args:
        text: what their names, packages or descriptions contain, in whatever case.
    """
    here = world()
    described, _ = packages.describe(here)
    places = [each.manifests for each in levels(here.env, here.root)]
    offers = []
    for row in newest_for_each_kind(known_rows(here.catalog) if here.catalog else ()):
        manifest = manifest_of(row, described)
        files = (folder / f"{manifest.name}.toml" for folder in places)
        offers.append(Offer(manifest, row, row.runs(here.host), tuple(filter(Path.exists, files))))
    words = "\n".join
    return Listing(
        each
        for each in sorted(offers, key=lambda each: (bool(each.fits), each.manifest.name))
        if text.lower() in words(each.names).lower()
    )
