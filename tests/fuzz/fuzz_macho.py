"""A library of macOS: any bytes give Binaries, names and sections, or a PluginLoadError."""

from __future__ import annotations

from collections.abc import Iterator

from files import written
from images import X86_64, macho, read_all, universal

from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import PluginLoadError

FINDINGS: tuple[bytes, ...] = ()
HOST = HostTag.parse("macos-arm64-14.2")


def seeds() -> Iterator[bytes]:
    """A small plugin that exports in each way, and universal ones of both kinds."""
    names = ("_GetPjrtApi", "_GetPjrt", "_other")
    for how in ("trie", "info", "symbols"):
        yield macho(names, exports=how, run_paths=("@loader_path/lib",), locals_count=2)
    both = macho(machine=X86_64, systems=(), version_min=0x000A0D00), macho(names)
    yield universal(*both)
    yield universal(*both, wide=True)


def one(data: bytes) -> None:
    """Reads one input."""
    path = written(data, "toy.dylib")
    try:
        read_all(path, HOST)
    except PluginLoadError:
        return
