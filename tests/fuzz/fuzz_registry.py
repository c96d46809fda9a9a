"""A file of registry rows: any bytes give rows, which can be written again, or an error."""

from __future__ import annotations

from collections.abc import Iterator

from files import written
from packaging.version import Version

from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.store.catalog import Artifact, Catalog, shipped_registry

HERE = HostTag("linux", "x86_64", "glibc", (2, 36))


def seeds() -> Iterator[bytes]:
    """Rows of the registry that comes with pjrt-hub, one in a file."""
    for path in sorted(shipped_registry().glob("*.toml")):
        rows = path.read_text("utf-8").split("[[artifact]]")
        yield f"[[artifact]]{rows[1]}".encode()
        yield f"[[artifact]]{rows[1]}[[artifact]]{rows[-1]}".encode()


ODD = next(seeds()).replace(b'\nversion = "', b'\nversion = ".')
#: Two rows with a version that nobody can compare; arrays that end the stack.
FINDINGS = (ODD + ODD, b"a = " + b"[" * 5000)


def one(data: bytes) -> None:
    """Read one input."""
    path = written(data, "rows.toml")
    catalog = Catalog([path.parent])
    try:
        for row in catalog.rows():
            assert Artifact.from_row(row.as_row(), "again") == row
            assert row.runs(HERE) is not None
        assert max((Version(row.version) for row in catalog.rows()), default=True)
    except ManifestError:
        return
