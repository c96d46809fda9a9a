"""Checks whether this machine's dynamic loader could load a library.

Owns `Search` and `find_missing` (where the loader looks, what it will not find) and `problems`,
which is every reason; must not load anything.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePath

from pjrt_hub.base import digest
from pjrt_hub.base.frozen import frozen
from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract.binary import Binary, Problem, unfit
from pjrt_hub.finding.contract.headers import inspect

# Entries of ld.so.cache carry their architecture in these bits (glibc, ldconfig.h).
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_ARCHITECTURE = {"x86_64": 0x0300, "aarch64": 0x0A00}
_MAX_LIBRARIES = 512
_OF_MACOS = ("/usr/lib/", "/System/", "@executable_path")
#: What Windows brings, and Python for it: those that libraries like a plugin's name.
_OF_WINDOWS = re.compile(
    r"(api|ext)-ms-.*|python3\d*t?\.dll|vcruntime140(_1)?\.dll|winspool\.drv|("
    "advapi32|avrt|bcrypt|bcryptprimitives|cabinet|cfgmgr32|combase|comctl32|comdlg32|crypt32|"
    "cryptbase|cryptnet|d2d1|d3d9|d3d11|d3d12|d3dcompiler_47|dbgeng|dbghelp|directml|dnsapi|"
    "dwmapi|dwrite|dxcore|dxgi|gdi32|gdiplus|hid|imagehlp|imm32|iphlpapi|kernel32|kernelbase|mf|"
    "mfplat|mfreadwrite|mpr|msvcrt|mswsock|ncrypt|netapi32|normaliz|ntdll|ole32|oleaut32|opengl32|"
    "pdh|powrprof|propsys|psapi|rpcrt4|secur32|setupapi|shell32|shlwapi|ucrtbase|user32|userenv|"
    "usp10|uxtheme|version|wevtapi|winhttp|wininet|winmm|wintrust|wldap32|ws2_32|wsock32|wtsapi32"
    r")\.dll"
)


@frozen
class Search:
    """Where the loader will look besides the library's own run paths.

    Attributes:
        library_path: folders of LD_LIBRARY_PATH, in order.
        preloaded: files that will have been loaded before; their names count as found.
        cache: the loader's cache.
        folders: its default folders, tried last.
        package: folders which a package gives to Windows' loader (`os.add_dll_directory`).
    """

    library_path: tuple[str, ...] = ()
    preloaded: tuple[Path, ...] = ()
    cache: Path = Path("/etc/ld.so.cache")
    folders: tuple[str, ...] = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
    package: tuple[str, ...] = ()


@frozen
class MissingLibrary:
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
    """Return the libraries that the loader will not find.

    Those of macOS and Windows are looked for from any system: what is part of the system is known
    by its path or its name. Those of Linux are walked as ld.so does:
    RPATH (its own, then that of whoever loaded it), LD_LIBRARY_PATH, RUNPATH, ld.so.cache, default
    folders. Libraries of the system folders are not walked: the system's packages keep those whole.
    """
    if binary.system == "windows":
        return list(_missing_on_windows(binary, search))
    if binary.system != "linux":
        return list(_missing_on_macos(binary, search))
    known = {path.name for path in search.preloaded}
    lost: list[MissingLibrary] = []
    queue: list[tuple[Binary, tuple[str, ...]]] = [(binary, binary.rpath)]
    cached = _loader_cache(search.cache, binary.machine)
    for walked, (library, inherited) in enumerate(queue):
        if walked >= _MAX_LIBRARIES:
            break
        own = (*inherited, *search.library_path, *library.runpath)
        for name in library.needed:
            if name in known:
                continue
            known.add(name)
            found = _in_folders(name, own, binary.machine)
            if found is not None:
                queue.append((found, (*found.rpath, *inherited)))
            elif name not in cached and _in_folders(name, search.folders, binary.machine) is None:
                lost.append(MissingLibrary(name, library.path))
    return lost


def _missing_on_macos(binary: Binary, search: Search) -> Iterator[MissingLibrary]:
    """Yield those that dyld does not find; `@executable_path` belongs to the program."""
    known = {path.name for path in search.preloaded}
    queue = [(binary, binary.runpath)]
    for walked, (library, run_paths) in enumerate(queue):
        if walked >= _MAX_LIBRARIES:
            return
        for name in library.needed:
            if name in known or PurePath(name).name in known or name.startswith(_OF_MACOS):
                continue
            known.add(name)
            places = [name]
            if name.startswith("@rpath/"):
                places = [each + name.removeprefix("@rpath") for each in run_paths]
            here = str(library.path.resolve().parent)
            paths = [Path(each.replace("@loader_path", here, 1)) for each in places]
            found = next((each for each in paths if each.is_absolute() and each.exists()), None)
            if found is None:
                yield MissingLibrary(name, library.path)
                continue
            try:
                loaded = inspect(found, machine=binary.machine)
            except PluginLoadError:
                continue  # it is there, and told where it is loaded
            queue.append((loaded, (*loaded.runpath, *run_paths)))


def _missing_on_windows(binary: Binary, search: Search) -> Iterator[MissingLibrary]:
    """Yield those neither in the searched folders, nor part of Windows or of Python."""
    folders = (str(binary.path.parent), *search.package)
    there = {path.name.lower(): path for folder in folders for path in Path(folder).glob("*.dll")}
    known = {path.name.lower() for path in search.preloaded}
    queue = [binary]
    for walked, library in enumerate(queue):
        if walked >= _MAX_LIBRARIES:
            return
        for name in map(str.lower, library.needed):
            if name in known or _OF_WINDOWS.fullmatch(name):
                continue
            known.add(name)
            if name not in there:
                yield MissingLibrary(name, library.path)
                continue
            with suppress(PluginLoadError):  # it is there, and told where it is loaded
                queue.append(inspect(there[name], machine=binary.machine))


def finds(name: str, machine: str, search: Search) -> bool:
    """Check whether the loader finds a library that is opened by its name alone."""
    folders = (*search.library_path, *search.folders)
    return (
        name in _loader_cache(search.cache, machine)
        or _in_folders(name, folders, machine) is not None
    )


def _in_folders(name: str, folders: tuple[str, ...], machine: str) -> Binary | None:
    # Like ld.so, a file of another machine is passed over.
    for path in [Path(name)] if "/" in name else [Path(folder, name) for folder in folders]:
        if not os.path.exists(path):
            continue
        try:
            found = inspect(path)
        except PluginLoadError:
            continue
        if (found.system, found.machine, found.bits) == ("linux", machine, 64):
            return found
    return None


@lru_cache(maxsize=4)
def _loader_cache(path: Path, machine: str) -> frozenset[str]:
    """Read the names in ld.so.cache; none if the file is absent or of another format."""
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
