"""A pylock.pjrt.toml: any bytes give pins, which can be written again, or a PjrtHubError."""

from __future__ import annotations

from collections.abc import Iterator

from files import written
from fuzz_registry import seeds as row_files

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.finding.store import pins
from pjrt_hub.finding.store.catalog import read_rows

#: Tables of another kind than that of lock files.
FINDINGS = (b"[tool]\npjrt-hub = 'abc'\n", b"packages = [1]\ntool = 1\n")


def seeds() -> Iterator[bytes]:
    """Lock files of the rows that come with pjrt-hub, for installers and without addresses."""
    for data in row_files():
        path = written(data, "rows.toml")
        file = pins.Pins(path, ("cuda",), ("linux-x86_64",), read_rows(path))
        yield file.text().encode()
        archives = [each for row in file.rows for each in row.archives]
        addresses = {each.sha256: f"https://host/{each.file_name}" for each in archives}
        yield file._replace(addresses=addresses).text().encode()


def one(data: bytes) -> None:
    """Read one input."""
    try:
        file = pins.read(written(data, pins.FILE_NAME))
    except PjrtHubError:
        return
    assert pins.read(written(file.text().encode(), pins.FILE_NAME)).rows is not None
