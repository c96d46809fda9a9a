"""Checks whether this machine's dynamic loader could load a library.

Owns `Search` and `find` (where the loader looks, and which file it takes), `follow` (what it loads
with a file), `find_missing` (what it will not find) and `problems` (why it will not load a file);
must not load anything.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pjrt_hub.base import digest
from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract.binary import Binary, Problem, unfit
from pjrt_hub.finding.contract.headers import inspect

# Entries of ld.so.cache have their architecture in these bits (glibc, ldconfig.h).
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_ARCHITECTURE = {"x86_64": 0x0300, "aarch64": 0x0A00}
_MAX_LIBRARIES = 512
_LOADED = "already loaded"
_OF_SYSTEM = ("ld.so.cache", "a default folder")
#: glibc's levels of x86-64, each with the flags of /proc/cpuinfo that it adds to the previous one.
_LEVELS = {
    "x86-64-v2": {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    "x86-64-v3": {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}


class Search(NamedTuple):
    """Where the loader will look besides the library's own run paths."""

    library_path: tuple[str, ...] = ()  # Folders of LD_LIBRARY_PATH, in order.
    preloaded: tuple[Path, ...] = ()  # Libraries loaded before; their names count as found.
    cache: Path = Path("/etc/ld.so.cache")  # The loader's own cache.
    folders: tuple[str, ...] = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")  # They are tried last.
    program: tuple[str, ...] = ()  # The program's DT_RPATH, which also applies to what it loads.


class Found(NamedTuple):
    """The file that the loader takes for a name."""

    library: Binary
    reason: str  # Why it is taken, such as "LD_LIBRARY_PATH" or "DT_RUNPATH of libx.so".
    hidden: tuple[Path, ...]  # Files that would be taken if it did not exist, in order.

    @property
    def is_systems(self) -> bool:
        """Whether it is found where the system keeps its libraries."""
        return self.reason in _OF_SYSTEM


class MissingLibrary(NamedTuple):
    """A library that the loader will not find, and the one that needs it."""

    name: str
    needed_by: Path


def problems(binary: Binary, host: HostTag, search: Search) -> list[Problem]:
    """Return every reason why a library will not load on `host`; an empty list if it should."""
    found = unfit(binary, host)
    if found:
        return found
    from pjrt_hub.finding.contract.shippers import shipper

    for lost in find_missing(binary, search):
        who, how = shipper(lost.name)
        by = "" if lost.needed_by == binary.path else f" (needed by {lost.needed_by.name})"
        found.append(
            Problem(
                f"{lost.name} is needed and not found{by}" + (f"; it is part of {who}" * bool(who)),
                how or "install it, or name its folder in LD_LIBRARY_PATH",
            )
        )
    return found


def find_missing(binary: Binary, search: Search) -> list[MissingLibrary]:
    """Return the libraries that the loader will not find, by the rules of `find`.

    The needs of system libraries are not checked: the system's packages keep those complete.
    """
    known = {name for path in search.preloaded for name in (path.name, _name_of(path))}
    lost: list[MissingLibrary] = []
    queue: list[tuple[Binary, tuple[str, ...]]] = [(binary, ())]
    for walked, (library, inherited) in enumerate(queue):
        if walked >= _MAX_LIBRARIES:
            break
        for name in library.needed:
            if name in known:
                continue
            known.add(name)
            found = find(name, binary.machine, search, library, inherited)
            if found is None:
                lost.append(MissingLibrary(name, library.path))
            elif not found.is_systems and found.reason != _LOADED:
                queue.append((found.library, (*library.rpath, *inherited)))
    return lost


def find(
    name: str,
    machine: str,
    search: Search,
    library: Binary | None = None,
    inherited: tuple[str, ...] = (),
) -> Found | None:
    """Return the file that ld.so takes for a name, or None; a name with a slash is a path.

    The order is that of `dlopen` and DT_NEEDED: libraries loaded under that name; DT_RPATH of the
    library and of those that loaded it (`inherited`), unless it has a DT_RUNPATH; LD_LIBRARY_PATH;
    its DT_RUNPATH; ld.so.cache; default folders. Subfolders for this processor's level come first.
    A file for another machine is passed over; a file that is no library ends the search.
    """
    taken: Found | None = None
    hidden: dict[Path, None] = {}
    for reason, path in _places(name, machine, search, library, inherited):
        if not os.path.exists(path):
            continue
        if taken is not None:
            hidden[path] = None
            continue
        try:
            file = inspect(path)
        except PluginLoadError:
            return None  # The loader's search ends at a file that is no library.
        if (file.system, file.machine, file.bits) == ("linux", machine, 64):
            taken = Found(file, reason, ())
    if taken is None:
        return None
    same = taken.library.path
    others = (each for each in hidden if not os.path.samefile(each, same))
    return Found(taken.library, taken.reason, tuple(others))


def follow(files: Sequence[Path], machine: str, search: Search) -> dict[Path, str]:
    """Return what the loader loads, in its order, if `files` are opened one after another.

    The loader loads what a file needs, by the rules of `find`, before it opens the next file. If
    that loads another copy of the next file, the copy keeps the name. Each file comes with the
    reason why it was taken, which is empty for those that were opened. A file that cannot be opened
    is left out.
    """
    loaded: dict[Path, str] = {}
    for file in files:
        try:
            opened = inspect(file)
        except PluginLoadError:
            continue
        if not any(os.path.samefile(file, each) for each in loaded):
            now = search._replace(preloaded=(*search.preloaded, *loaded))
            loaded |= _brought(opened, machine, now)
    return loaded


def _brought(opened: Binary, machine: str, search: Search) -> dict[Path, str]:
    """Return a library and all that it needs, with reasons; nothing if one of them is missing."""
    brought = {opened.path: ""}
    queue: list[tuple[Binary, tuple[str, ...]]] = [(opened, ())]
    for library, inherited in queue:
        for name in library.needed if len(brought) < _MAX_LIBRARIES else ():
            now = search._replace(preloaded=(*search.preloaded, *brought))
            found = find(name, machine, now, library, inherited)
            if found is None:
                return {}
            if not found.is_systems and found.reason != _LOADED:
                brought[found.library.path] = f"{found.reason}, needed by {library.path.name}"
                queue.append((found.library, (*library.rpath, *inherited)))
    return brought


def _places(
    name: str, machine: str, search: Search, library: Binary | None, inherited: tuple[str, ...]
) -> Iterator[tuple[str, Path]]:
    """Yield where ld.so looks for a name, in its order, each with the reason."""
    for path in search.preloaded:
        if name == _name_of(path):
            yield _LOADED, path
    if "/" in name:
        yield "its path", Path(name)
        return
    if library is None or not library.runpath:
        own = f"DT_RPATH of {library.path.name}" if library is not None else ""
        rpath = library.rpath if library is not None else ()
        yield from ((own, path) for path in _in_folders(name, rpath))
        yield from (("an inherited DT_RPATH", path) for path in _in_folders(name, inherited))
        yield from (("DT_RPATH of the program", path) for path in _in_folders(name, search.program))
    yield from (("LD_LIBRARY_PATH", path) for path in _in_folders(name, search.library_path))
    if library is not None:
        own = f"DT_RUNPATH of {library.path.name}"
        yield from ((own, path) for path in _in_folders(name, library.runpath))
    cached = _loader_cache(search.cache, machine).get(name, ())
    yield from ((_OF_SYSTEM[0], path) for path in cached)
    yield from ((_OF_SYSTEM[1], path) for path in _in_folders(name, search.folders))


def _in_folders(name: str, folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        special = os.path.join(folder, "glibc-hwcaps")
        if os.path.isdir(special):
            yield from (Path(special, level, name) for level in _levels())
        yield Path(folder, name)


@lru_cache(maxsize=1)
def _levels() -> tuple[str, ...]:
    """Return the subfolders of glibc-hwcaps that this processor uses, the best first."""
    try:
        text = digest.content(Path("/proc/cpuinfo")).decode("utf-8", "replace")
    except OSError:
        return ()
    flags = set(found[1].split()) if (found := re.search(r"^flags\s*:(.*)$", text, re.M)) else set()
    levels: list[str] = []
    for level, needed in _LEVELS.items():
        if not needed <= flags:
            break
        levels.insert(0, level)
    return tuple(levels)


@lru_cache(maxsize=256)
def _name_of(path: Path) -> str:
    """Return a library's own name (DT_SONAME), by which the loader knows it once it is loaded."""
    try:
        return inspect(path).name
    except PluginLoadError:
        return ""


@lru_cache(maxsize=4)
def _loader_cache(path: Path, machine: str) -> dict[str, tuple[Path, ...]]:
    """Read the files in ld.so.cache by name; none if it is absent or of another format.

    Files for this processor's levels come first; those for other levels are left out.
    """
    try:
        data = digest.content(path)
    except OSError:
        return {}
    begin = data.find(_CACHE_MAGIC)  # A cache in an older format may come before this one.
    if begin < 0 or len(data) < begin + 48:
        return {}
    (count,) = struct.unpack_from("<I", data, begin + 20)
    found: dict[str, list[tuple[int, Path]]] = {}

    def text(at: int) -> str:
        end = data.find(b"\0", begin + at)
        return data[begin + at : end].decode("utf-8", "surrogateescape")

    for number in range(min(count, (len(data) - begin - 48) // 24)):
        flags, name, file = struct.unpack_from("<III", data, begin + 48 + 24 * number)
        if flags & 0xFF00 != _CACHE_ARCHITECTURE.get(machine, 0):
            continue
        place = Path(text(file))
        levels = ("", *reversed(_levels()))  # The best level comes last.
        level = place.parent.name if place.parent.parent.name == "glibc-hwcaps" else ""
        if level in levels:
            found.setdefault(text(name), []).append((-levels.index(level), place))
    return {
        name: tuple(path for _, path in sorted(files, key=lambda each: each[0]))
        for name, files in found.items()
    }
