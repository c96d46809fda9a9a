"""Registry rows that were fetched before.

Owns which row of the cache stands for a plugin. Verifies nothing: whoever loads one asks
`Cache.lookup`, which does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.discovery.catalogued import by_plugin, manifest_of
from pjrt_hub.finding.discovery.source import Candidate, Described, Found, World

name = "cached"


def find(world: World, described: Sequence[Described]) -> Iterator[Found]:
    """Yield, for each plugin, the newest row that runs here and lies in the cache."""
    if world.cache is None:
        return
    try:
        plugins = list(by_plugin(world))
    except ManifestError:  # `catalogued` says so
        return
    for rows in plugins:
        for row in rows:
            root = world.cache.place(row)
            if root is not None and not row.runs(world.host):
                yield Candidate(
                    manifest_of(row, described),
                    name,
                    (f"the cache, {row.package} {row.version}",),
                    row.package,
                    row.version,
                    library_path=root / row.library,
                    artifact=row,
                )
                break
