"""Plugins in the namespace package `pjrt_plugins`, our own adapters among them.

Owns the walk over its folders; nothing in them is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pjrt_hub.base.frozen import replace
from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.contract.manifest import FILE_NAME, read
from pjrt_hub.finding.discovery.source import Described, Rejection, World

name = "namespace"
PACKAGE = "pjrt_plugins"
#: Our own folders; others install theirs into the same one.
OURS = ("cpu", "cuda", "metal", "rocm", "tpu", "xpu")


def describe(world: World) -> Iterator[Described | Rejection]:
    """Yield the manifest of each folder, ours first, then in the order of `sys.path`."""
    packages: dict[str, Path] = {}
    own = world.first_party / PACKAGE
    for package in dict.fromkeys((own, *world.installed.package_folders(PACKAGE))):
        for path in sorted(package.glob(f"*/{FILE_NAME}")):
            origin, folder = str(path), path.parent.name
            # As `import pjrt_plugins.x` would: of folders with one name the first is the package.
            winner = packages.setdefault(folder, path.resolve())
            if winner != path.resolve():
                yield Rejection(folder, origin, f"shadowed by {winner}")
                continue
            try:
                manifests = read(path)
            except ManifestError as exc:
                yield Rejection(folder, origin, exc.message, exc.hint)
                continue
            ours = package == own and folder in OURS
            owner = None if ours else world.installed.owner(path)
            for manifest in manifests:
                yield Described(
                    replace(manifest, module=f"{PACKAGE}.{folder}"),
                    name,
                    (f"{PACKAGE}.{folder}" if ours else origin,),
                    "pjrt-hub" if ours else owner.name if owner else "",
                )
