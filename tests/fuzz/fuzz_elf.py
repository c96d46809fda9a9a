"""A library of Linux: any bytes give a Binary, names and sections, or a PluginLoadError."""

from __future__ import annotations

from collections.abc import Iterator

from files import written
from trees import compile_library, plugin_bytes

from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract import headers

FINDINGS: tuple[bytes, ...] = ()


def seeds() -> Iterator[bytes]:
    """A small plugin with each kind of hash table, and what a download may give instead."""
    yield plugin_bytes()
    source = "int GetPjrtApi(void) { return 0; }"
    flags = "-Wl,--hash-style=sysv", "-Wl,-soname,toy.so", "-Wl,-rpath,$ORIGIN/../lib:/opt"
    path = compile_library(source, written(b"", "seed.so"), *flags)
    yield path.read_bytes()
    yield path.read_bytes()[:800]
    yield b"<!DOCTYPE html>"


def one(data: bytes) -> None:
    """Read one input."""
    path = written(data, "toy.so")
    try:
        found = headers.inspect(path)
        assert found.bits in (0, 32, 64)
        assert all(isinstance(number, int) for number in found.glibc)
        assert all(isinstance(name, str) for name in headers.exports(path))
        assert all(section.nbytes >= 0 for section in headers.sections(path))
    except PluginLoadError:
        return
