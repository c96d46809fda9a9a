"""Libraries that packages ship, for any system, read without loading them.

Owns what `lint` asks about a library, and the search for libraries that its loader will not find.
lief reads those for macOS and Windows; nothing outside of the kit imports it.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pjrt_hub.errors import PjrtHubError, PluginLoadError
from pjrt_hub.finding.contract import headers, linking
from pjrt_hub.finding.contract.binary import ENTRY_POINT, Binary
from pjrt_hub.finding.contract.linking import MissingLibrary

if TYPE_CHECKING:
    from lief import PE, MachO

#: The machines that lief and pjrt-hub name differently: lief's name and pjrt-hub's.
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "x86": "i386"}
#: Mach-O's subtypes of a machine whose code only some machines of that kind can run.
_SUBTYPES = {("x86_64", 8): "x86_64h", ("aarch64", 2): "arm64e"}
_UNREADABLE = "is truncated or malformed, or of a rare kind that lief does not read"
_OPTIONAL = {"LOAD_WEAK_DYLIB", "LAZY_LOAD_DYLIB"}
_OF_MACOS = ("/usr/lib/", "/System/", "@executable_path")
#: DLLs that come with Windows or with its Python, as far as libraries like plugins need them.
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


class NativeLibrary(NamedTuple):
    """What a library's file holds."""

    parts: tuple[Binary, ...]  # One part, or all 64-bit parts of a universal library of macOS.
    exports: tuple[str, ...]  # The exported names of all parts, as C writes them, sorted.
    nbytes: dict[str, int]  # Bytes that nothing reads at run time: "debug" and "symbols".


def read(path: Path) -> NativeLibrary:
    """Read a library; PluginLoadError says that it is malformed or has no part of 64 bits."""
    binary = headers.inspect(path)
    if binary.system == "linux":
        unread = {"debug": 0, "symbols": 0}
        for each in headers.sections(path):
            if each.role in unread:
                unread[each.role] += each.nbytes
        return NativeLibrary((binary,), headers.exports(path), unread)
    try:
        from lief import logging
    except ImportError as exc:
        name = {"macos": "macOS", "windows": "Windows"}[binary.system]
        raise PjrtHubError(
            f"{path.name} is a library for {name}, and lief, which reads those, is not here: {exc}",
            hint="pip install 'pjrt-hub[kit]'",
        ) from exc
    with logging.level_scope(logging.LEVEL.OFF), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lief warns of every number that it has no name for.
        try:
            return _read_macho(path) if binary.system == "macos" else _read_pe(path)
        except UnicodeDecodeError:
            _fail(path, "is malformed: it has a name that is not UTF-8")


def find_missing(plugin: Binary, shipped: Sequence[Binary]) -> Iterator[MissingLibrary]:
    """Yield the libraries that the loader will not find for a plugin and the `shipped` ones.

    Libraries for Linux are searched for on this machine. Parts of macOS and Windows are known by
    their paths or names.
    """
    if plugin.system == "linux":
        yield from linking.find_missing(plugin, linking.Search())
        return
    parts = {each.path.resolve(): each for each in shipped if each.machine == plugin.machine}
    # Python lets Windows search the package's folders, in which the case of names does not matter.
    folders = {each.path.parent for each in (plugin, *shipped)}
    beside = {path.name.lower(): path for each in folders for path in each.glob("*.[dD][lL][lL]")}
    queue, known = [(plugin, plugin.runpath)], set[str]()
    for library, run_paths in queue:
        for name in library.needed:
            is_systems = name.startswith(_OF_MACOS) or _OF_WINDOWS.fullmatch(name)
            if is_systems or name in known:
                continue
            known.add(name)
            if plugin.system == "windows":
                found = beside.get(name)
            else:
                found = _find_on_macos(name, library.path, run_paths)
            if found is None:
                yield MissingLibrary(name, library.path)
            elif part := parts.get(found.resolve()):
                queue.append((part, (*part.runpath, *run_paths)))


def _find_on_macos(name: str, needed_by: Path, run_paths: Sequence[str]) -> Path | None:
    places = [_anchor(name, needed_by)]
    if name.startswith("@rpath/"):
        places = [each + name.removeprefix("@rpath") for each in run_paths]
    return next((path for path in map(Path, places) if path.is_absolute() and path.exists()), None)


def _anchor(path: str, library: Path) -> str:
    """Return a path with `@loader_path` replaced by the library's folder."""
    return path.replace("@loader_path", str(library.resolve().parent), 1)


def _read_macho(path: Path) -> NativeLibrary:
    from lief import MachO

    config = MachO.ParserConfig()
    config.parse_dyld_bindings = config.parse_dyld_rebases = False
    fat = MachO.parse(path, config)  # `fat` must outlive its parts, which hold no reference to it.
    parts = [] if fat is None else list(fat)
    with path.open("rb") as file:
        begin, nbytes = file.read(8), file.seek(0, os.SEEK_END)
    # A universal file says how many parts it has; lief leaves out those that it cannot read.
    if len(parts) != (int.from_bytes(begin[4:], "big") if begin[0] == 0xCA else 1):
        _fail(path, _UNREADABLE)
    wide = [each for each in parts if each.header.magic == MachO.MACHO_TYPES.MAGIC_64]
    if not wide:
        _fail(path, "is not a 64-bit little-endian library")
    for part in wide:
        ends = [part.fat_offset + each.file_offset + each.file_size for each in part.segments]
        if len(part.commands) != part.header.nb_cmds or not 0 < max(ends, default=0) <= nbytes:
            _fail(path, _UNREADABLE)
    exports = [_macho_exports(each) for each in wide]
    binaries = [_macho_part(path, *each) for each in zip(wide, exports, strict=True)]
    debug = [each.size for part in wide for each in part.sections if each.segment_name == "__DWARF"]
    symbols = [each.nb_local_symbols for part in wide if (each := part.dynamic_symbol_command)]
    unread = {"debug": sum(debug), "symbols": 16 * sum(symbols)}
    return NativeLibrary(tuple(binaries), tuple(sorted(set().union(*exports))), unread)


def _macho_part(path: Path, part: MachO.Binary, exports: set[str]) -> Binary:
    machine = _machine(part.header.cpu_type)
    subtype = part.header.cpu_subtype & 0xFFFFFF
    libraries = [(each.command.name, os.fsdecode(each.name)) for each in part.libraries]
    run_paths = tuple(each.path for each in part.rpaths)
    system, minimum = _macho_system(part)
    return Binary(
        path,
        system,
        64,
        True,
        _SUBTYPES.get((machine, subtype), machine),
        _lower_name(part.header.file_type) in ("dylib", "bundle"),
        needed=tuple(name for kind, name in libraries if kind not in {"ID_DYLIB", *_OPTIONAL}),
        optional=tuple(name for kind, name in libraries if kind in _OPTIONAL),
        runpath=tuple(os.path.normpath(_anchor(each, path)) for each in run_paths if each),
        run_paths=run_paths,
        minimum=minimum,
        exported=ENTRY_POINT in exports,
    )


def _macho_system(part: MachO.Binary) -> tuple[str, tuple[int, ...]]:
    """Return the system that a part is built for; macOS if it is built for other systems, too."""
    from lief import MachO

    found: dict[str, list[int]] = {}
    for each in part.commands:
        if isinstance(each, MachO.BuildVersion):
            found[_lower_name(each.platform)] = each.minos
        elif isinstance(each, MachO.VersionMin) and each.command.name == "VERSION_MIN_MACOSX":
            found.setdefault("macos", each.version)
    system = "macos" if "macos" in found or not found else next(iter(found))
    version = found.get(system, [])
    return system, tuple(version[:2]) if any(version) else ()


def _macho_exports(part: MachO.Binary) -> set[str]:
    if part.has_dyld_exports_trie or part.has_dyld_info:
        names = [each.name for each in part.exported_symbols]
    else:  # The linker is older than macOS 10.6: exports are external, defined and not private.
        symbols = [each for each in part.symbols if each.raw_type & 0xF1 == 1]
        names = [each.name for each in symbols if each.raw_type & 0x0E]
    # `dlsym` puts an underscore before each name, so it finds no symbol without one.
    return {text[1:] for text in map(os.fsdecode, names) if text[:1] == "_"}


def _read_pe(path: Path) -> NativeLibrary:
    from lief import PE

    config = PE.ParserConfig()
    config.parse_signature = config.parse_rsrc = config.parse_reloc = False
    found = PE.parse(path, config)
    if found is None or len(found.sections) != found.header.numberof_sections:
        _fail(path, _UNREADABLE)
    if any(each.offset + each.sizeof_raw_data > path.stat().st_size for each in found.sections):
        _fail(path, _UNREADABLE)
    if found.optional_header.magic != PE.PE_TYPE.PE32_PLUS:
        _fail(path, "is not a 64-bit little-endian library")
    directory = found.get_export()
    exports = {os.fsdecode(each.name) for each in directory.entries} if directory else set()
    exports.discard("")  # A function that is exported by its number alone has no name.
    binary = Binary(
        path,
        "windows",
        64,
        True,
        _machine(found.header.machine),
        found.header.has_characteristic(PE.Header.CHARACTERISTICS.DLL),
        # Windows ignores the case of a library's name.
        needed=tuple(os.fsdecode(each.name).lower() for each in found.imports),
        exported=ENTRY_POINT in exports,
    )
    strings = sum(len(each.string) + 1 for each in found.coff_string_table)
    debug = [each.size for each in found.sections if _pe_name(each).startswith(".debug_")]
    nbytes = {"debug": sum(debug), "symbols": 18 * found.header.numberof_symbols + strings}
    return NativeLibrary((binary,), tuple(sorted(exports)), nbytes)


def _pe_name(section: PE.Section) -> str:
    """Return a section's name; the file keeps names of over eight characters after its symbols."""
    text = section.coff_string
    return text.string if text else os.fsdecode(section.name)


def _machine(kind: Any) -> str:
    name = _lower_name(kind)
    return _MACHINES.get(name, name)


def _lower_name(number: Any) -> str:
    """Return lief's name for a number, in lower case; a number without one stands for itself."""
    return str(getattr(number, "name", number)).lower()


def _fail(path: Path, what: str) -> NoReturn:
    raise PluginLoadError(f"{path} {what}", path=path, hint="build it again, or fetch it again")
