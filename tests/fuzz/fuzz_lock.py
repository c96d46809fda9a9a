"""A pjrt-hub.lock: any bytes give pins or a PjrtHubError."""

from __future__ import annotations

from collections.abc import Iterator

from files import written
from fuzz_registry import seeds as rows

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.finding.store import pins

FINDINGS: tuple[bytes, ...] = ()


def seeds() -> Iterator[bytes]:
    """Lock files of the rows that come with pjrt-hub."""
    head = f'format = {pins.FORMAT}\nrequests = ["cuda"]\nhosts = ["linux-x86_64"]\n'
    yield head.encode()
    for row in rows():
        yield head.encode() + row


def one(data: bytes) -> None:
    """Reads one input."""
    try:
        pins.read(written(data, pins.FILE_NAME))
    except PjrtHubError:
        return
