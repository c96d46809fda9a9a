"""A library of Windows: any bytes give Binaries, names and sections, or a PluginLoadError."""

from __future__ import annotations

from collections.abc import Iterator

from files import written
from images import pe, read_all

from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import PluginLoadError

FINDINGS: tuple[bytes, ...] = ()
HOST = HostTag.parse("windows-x86_64")


def seeds() -> Iterator[bytes]:
    """A small plugin, one that imports in each way, and one of 32 bits."""
    yield pe()
    yield pe(("GetPjrtApi", "Other"), delayed=("late.dll",), symbols=2)
    yield pe(delayed=("late.dll",), by_address=True)
    yield pe(machine=0x14C, wide=False)


def one(data: bytes) -> None:
    """Reads one input."""
    path = written(data, "toy.dll")
    try:
        read_all(path, HOST)
    except PluginLoadError:
        return
