"""A bundle: any bytes are imported, of nothing that is known here, or give a PjrtHubError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from files import folder, written

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact, Catalog
from pjrt_hub.finding.store.transfer import bundle

FINDINGS = (b"archives/x.whl".ljust(124, b"\0").ljust(512, b"9"),)


def seeds() -> Iterator[bytes]:
    """The empty bundle, and one of an archive that a row of the registry was bent to."""
    import hashlib

    archive = b"PK\5\6" + bytes(18)
    row = (
        Catalog.read_shipped()
        .rows()[0]
        ._replace(
            size=len(archive),
            sha256=hashlib.sha256(archive).hexdigest(),
        )
    )

    @contextmanager
    def bring(row: Artifact, place: Path) -> Iterator[Path]:
        (place / "archive").write_bytes(archive)
        yield place / "archive"

    for archives in ((), (row,)):
        path = Path(folder()) / "seed.bundle"
        bundle.write(path, archives, bring)
        yield path.read_bytes()


def one(data: bytes) -> None:
    """Read one input."""
    try:
        bundle.read(written(data, "plugins.bundle"), (), Cache(Path(folder()) / "cache"))
    except PjrtHubError:
        return
