"""A pjrt_plugin.toml: any bytes give manifests or a ManifestError."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from files import written

import pjrt_plugins
from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.contract import manifest

FINDINGS: tuple[bytes, ...] = ()


def seeds() -> Iterator[bytes]:
    """The manifests that come with pjrt-hub."""
    for folder in pjrt_plugins.__path__:
        for path in sorted(Path(folder).glob("*/pjrt_plugin.toml")):
            yield path.read_bytes()


def one(data: bytes) -> None:
    """Read one input."""
    try:
        manifest.read(written(data, manifest.FILE_NAME))
    except ManifestError:
        return
