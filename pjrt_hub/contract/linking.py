"""Whether the dynamic loader of this machine could load a library (layer 1).

Owns `unfit` (the file against the host), `Search` and `missing` (where the loader looks, what it
will not find) and `problems`, which is both; must not load anything.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from pathlib import Path

from pjrt_hub import digest
from pjrt_hub.contract.elf import ENTRY_POINT, ElfFile, inspect
from pjrt_hub.contract.shippers import shipper
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.frozen import frozen
from pjrt_hub.host import HostTag

# Entries of ld.so.cache carry their architecture in these bits (glibc, ldconfig.h).
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_ARCHITECTURE = {"x86_64": 0x0300, "aarch64": 0x0A00}
_MAX_LIBRARIES = 512


@frozen
class Problem:
    """One reason why a library will not load.

    Attributes:
        text: what is wrong and what was found.
        hint: the next step, or an empty string.
    """

    text: str
    hint: str = ""


@frozen
class Search:
    """Where the loader will look besides the library's own run paths.

    Attributes:
        library_path: folders of LD_LIBRARY_PATH, in order.
        preloaded: files that will have been loaded before; their names count as found.
        cache: the loader's cache.
        folders: its default folders, tried last.
    """

    library_path: tuple[str, ...] = ()
    preloaded: tuple[Path, ...] = ()
    cache: Path = Path("/etc/ld.so.cache")
    folders: tuple[str, ...] = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


@frozen
class Missing:
    """A library that the loader will not find, and the one that needs it."""

    name: str
    needed_by: Path


def problems(elf: ElfFile, host: HostTag, search: Search) -> list[Problem]:
    """Gives every reason why `elf` will not load on `host`; an empty list where it should."""
    found = unfit(elf, host)
    if found:
        return found
    for lost in missing(elf, search):
        who, how = shipper(lost.name)
        by = "" if lost.needed_by == elf.path else f" (needed by {lost.needed_by.name})"
        found.append(
            Problem(
                f"{lost.name} is needed and not found{by}" + (f"; it is part of {who}" * bool(who)),
                how or "install it, or name its folder in LD_LIBRARY_PATH",
            )
        )
    return found


def unfit(elf: ElfFile, host: HostTag) -> list[Problem]:
    """Gives the reasons that lie in the file itself: class, machine, type, glibc, entry point."""
    if host.os != "linux":
        return [Problem(f"it is an ELF library, built for Linux; this machine runs {host.os}")]
    if elf.bits != 64 or not elf.little:
        order = "little" if elf.little else "big"
        return [Problem(f"it is a {elf.bits}-bit {order}-endian library, 64-bit little is needed")]
    if elf.machine != host.arch:
        return [Problem(f"it is built for {elf.machine}, this machine is {host.arch}")]
    found = []
    if not elf.shared:
        found.append(Problem("it is a program or an object file, not a shared library"))
    if not elf.exported:
        found.append(
            Problem(f"it does not export {ENTRY_POINT}: it is not a PJRT plugin of the C API")
        )
    if elf.glibc and host.libc != "glibc":
        found.append(Problem(f"it needs glibc, this machine has {host.libc or 'another libc'}"))
    elif elf.glibc > host.version:
        need, have = (".".join(map(str, version)) for version in (elf.glibc, host.version))
        found.append(
            Problem(
                f"it needs glibc {need}, this machine has {have}",
                "use a newer system, or an older release of the plugin",
            )
        )
    return found


def missing(elf: ElfFile, search: Search) -> list[Missing]:
    """Gives the libraries that the loader will not find, walking them as ld.so does.

    RPATH (its own, then that of whoever loaded it), LD_LIBRARY_PATH, RUNPATH, ld.so.cache, default
    folders. Libraries of the system folders are not walked: the system's packages keep those whole.
    """
    known = {path.name for path in search.preloaded}
    lost: list[Missing] = []
    queue: list[tuple[ElfFile, tuple[str, ...]]] = [(elf, elf.rpath)]
    cached = _loader_cache(search.cache, elf.machine)
    for walked, (library, inherited) in enumerate(queue):
        if walked >= _MAX_LIBRARIES:
            break
        own = (*inherited, *search.library_path, *library.runpath)
        for name in library.needed:
            if name in known:
                continue
            known.add(name)
            found = _in_folders(name, own, elf.machine)
            if found is not None:
                queue.append((found, (*found.rpath, *inherited)))
            elif name not in cached and _in_folders(name, search.folders, elf.machine) is None:
                lost.append(Missing(name, library.path))
    return lost


def finds(name: str, machine: str, search: Search) -> bool:
    """Says whether the loader finds a library that is opened by its name alone."""
    folders = (*search.library_path, *search.folders)
    return (
        name in _loader_cache(search.cache, machine)
        or _in_folders(name, folders, machine) is not None
    )


def _in_folders(name: str, folders: tuple[str, ...], machine: str) -> ElfFile | None:
    # Like ld.so, a file of another machine is passed over.
    for path in [Path(name)] if "/" in name else [Path(folder, name) for folder in folders]:
        if not os.path.exists(path):
            continue
        try:
            found = inspect(path)
        except PluginLoadError:
            continue
        if found.machine == machine and found.bits == 64:
            return found
    return None


@lru_cache(maxsize=4)
def _loader_cache(path: Path, machine: str) -> frozenset[str]:
    """Reads the names in ld.so.cache; none where the file is absent or of another format."""
    try:
        data = digest.content(path)
    except OSError:
        return frozenset()
    begin = data.find(_CACHE_MAGIC)  # an older format may stand before it
    if begin < 0 or len(data) < begin + 48:
        return frozenset()
    (count,) = struct.unpack_from("<I", data, begin + 20)
    names = set()
    for number in range(min(count, (len(data) - begin - 48) // 24)):
        flags, name = struct.unpack_from("<II", data, begin + 48 + 24 * number)
        if flags & 0xFF00 == _CACHE_ARCHITECTURE.get(machine, 0):
            end = data.find(b"\0", begin + name)
            names.add(data[begin + name : end].decode("utf-8", "surrogateescape"))
    return frozenset(names)
