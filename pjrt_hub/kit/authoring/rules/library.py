"""Rules about the library itself, read without loading it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import PurePosixPath

from pjrt_hub.base.host import HostTag
from pjrt_hub.base.listing import size_text
from pjrt_hub.finding.contract.binary import ENTRY_POINT, Binary
from pjrt_hub.finding.contract.shippers import shipper
from pjrt_hub.kit.authoring.linting import ERROR, WARNING, Found, rule
from pjrt_hub.kit.authoring.native_library import find_missing
from pjrt_hub.kit.authoring.package_files import PackageFiles

#: Folders that everybody, or the person who built the library, may write to.
_WRITABLE = ("/tmp", "/var/tmp", "/dev/shm", "/home", "/root", "/Users", "/builds", "/workspace")
_SHOWN = 5
_MUCH_NBYTES = 1_000_000


@rule(101, ERROR)
def has_a_plugin(package: PackageFiles) -> Found:
    """A library exports GetPjrtApi.

    Every framework looks up this one symbol; without it there is no plugin. A universal library
    exports it for each machine.
    """
    plugins = {each.path for each in package.plugins}
    if not plugins:
        there = list(dict.fromkeys(package.name(each.path) for each in package.natives))
        text = f"no library exports {ENTRY_POINT}; found: {_some(there) or 'none'}"
        yield package.path.name, text
    for each in package.natives:
        if each.path in plugins and not each.exported:
            text = f"its part for {each.machine} does not export {ENTRY_POINT}"
            yield package.name(each.path), text


@rule(102, ERROR)
def libraries_can_be_read(package: PackageFiles) -> Found:
    """Every library is a whole 64-bit library: ELF, Mach-O or PE.

    A truncated file, a Git LFS pointer or an HTML page under the name of a library does not load;
    fetch the real file before packing.
    """
    for path, why in package.unreadable.items():
        yield package.name(path), why.replace(str(path), "it", 1)


@rule(103, WARNING)
def has_one_plugin(package: PackageFiles) -> Found:
    """One library exports GetPjrtApi, not several.

    Tools that look for a plugin by the names of files cannot choose between two; ship each in a
    package of its own, or name each in a manifest.
    """
    names = list(dict.fromkeys(package.name(each.path) for each in package.plugins))
    if len(names) > 1:
        text = f"{len(names)} libraries export {ENTRY_POINT}: {', '.join(names)}"
        yield package.path.name, text


@rule(104, WARNING)
def exports_only_the_entry(package: PackageFiles) -> Found:
    """The plugin exports GetPjrtApi and nothing else.

    Other exported symbols are taken for those of other libraries in the process, or replace them:
    two copies of protobuf or LLVM end in a crash. Link with a version script, or with
    -fvisibility=hidden and --exclude-libs,ALL; on macOS, with -exported_symbol _GetPjrtApi.
    """
    for path in dict.fromkeys(each.path for each in package.plugins):
        others = [name for name in package.libraries[path].exports if name != ENTRY_POINT]
        if others:
            yield package.name(path), f"{len(others)} more are exported: {_some(others)}"


@rule(105, ERROR)
def run_paths_are_safe(package: PackageFiles) -> Found:
    """No library is searched for in the working directory, or where others may write.

    The loader searches run paths first. An empty or relative one is the user's working directory,
    and anybody who can write there can run code as that user. Use $ORIGIN; on macOS, use
    @loader_path, and @rpath before the name of each needed library.
    """
    for library, name in _each(package):
        for path in library.run_paths:
            if not path.startswith(("/", *_origins(library))):
                yield name, f"the run path {path!r} is relative" if path else "a run path is empty"
            elif _is_open(path):
                yield name, f"the run path {path!r} may belong to anybody"
        for needed in _unanchored(library):
            yield name, f"{needed!r} is needed, which is relative"


@rule(106, WARNING)
def run_paths_are_relative(package: PackageFiles) -> Found:
    """Run paths begin with $ORIGIN, on macOS with @loader_path.

    An absolute run path names a folder of the machine that built the library, or of one Linux
    distribution; elsewhere it finds nothing, or another version.
    """
    for library, name in _each(package):
        absolute = [path for path in library.run_paths if path[:1] == "/" and not _is_open(path)]
        if absolute:
            yield name, f"absolute: {_some(absolute)}"


@rule(107, ERROR)
def stack_is_not_executable(package: PackageFiles) -> Found:
    """No library asks for an executable stack.

    Loading such a library makes all stacks of the process executable, which newer kernels and
    glibc refuse. The cause is an assembler file without a .note.GNU-stack section; link with
    -z noexecstack.
    """
    for library in package.natives:
        if library.shared and library.executable_stack:
            yield package.name(library.path), "it asks for an executable stack"


@rule(108, ERROR)
def has_no_text_relocations(package: PackageFiles) -> Found:
    """No library has text relocations.

    The loader would have to write into the library's code, which SELinux forbids, and processes
    could not share that memory. Compile everything with -fPIC.
    """
    for library in package.natives:
        if library.text_relocations:
            yield package.name(library.path), "it has text relocations (DT_TEXTREL)"


@rule(109, WARNING)
def needed_libraries_are_there(package: PackageFiles) -> Found:
    """Every library that a plugin needs is in the package, in the system, or preloaded.

    The finding names the package that ships a missing library, if known: require it in the
    metadata, and list it in the manifest's [[preload]].
    """
    host = HostTag.current()
    preloaded = {
        name for each in package.manifests for load in each.preloads for name in load.libraries
    }
    for plugin, _ in _each(package):
        if not plugin.exported or (plugin.system == "linux" and plugin.machine != host.arch):
            continue
        lost: dict[tuple[str, str, str], list[str]] = {}
        for each in find_missing(plugin, package.natives):
            if each.name not in preloaded and each.name not in _unanchored(plugin):
                place = package.name(each.needed_by)
                lost.setdefault((place, *shipper(each.name)), []).append(each.name)
        for (place, who, how), names in lost.items():
            text = f"needed and not found: {', '.join(names)}"
            yield place, text + f"; part of {who}" * bool(who) + f": {how}" * bool(how)


@rule(110, WARNING)
def has_no_debug_information(package: PackageFiles) -> Found:
    """Libraries carry no debug information.

    It is often larger than the code. Keep it in a separate file with objcopy --only-keep-debug.
    """
    for name, nbytes, _ in _of_role(package, "debug"):
        yield name, f"{size_text(nbytes)} of debug information"


@rule(111, WARNING)
def is_stripped(package: PackageFiles) -> Found:
    """Libraries carry no table of local symbols.

    Nothing reads the table at run time; strip --strip-unneeded removes it, on macOS strip -x.
    """
    for name, nbytes, whole in _of_role(package, "symbols"):
        text = f"{size_text(nbytes)} of {size_text(whole)} are symbols that nothing reads"
        yield name, text


def _each(package: PackageFiles) -> Iterator[tuple[Binary, str]]:
    """Yield each library with its name; of a universal library's parts that link alike, one."""
    seen = set()
    for each in package.natives:
        alike = (each.path, each.run_paths, each.needed, each.optional, each.exported)
        if alike not in seen:
            seen.add(alike)
            yield each, package.name(each.path)


def _origins(library: Binary) -> tuple[str, ...]:
    """Return the placeholders of folders that the loader fills in, the library's own first."""
    if library.system == "linux":
        return ("$ORIGIN", "${ORIGIN}")
    return () if library.system == "windows" else ("@loader_path", "@executable_path")


def _unanchored(library: Binary) -> list[str]:
    """Return the libraries that the loader will look for relative to the working directory."""
    if library.system == "windows":
        return []
    anchors = ("/", "@rpath/", *_origins(library))
    named = [*library.needed, *library.optional]
    if library.system == "linux":  # The loader looks in its own folders for a name without "/".
        named = [each for each in named if "/" in each]
    return [each for each in named if not each.startswith(anchors)]


def _of_role(package: PackageFiles, role: str) -> Iterator[tuple[str, int, int]]:
    """Yield the libraries with many bytes of a role: the name, those bytes, and all bytes."""
    for path, library in package.libraries.items():
        if library.nbytes[role] >= _MUCH_NBYTES:
            yield package.name(path), library.nbytes[role], os.path.getsize(path)


def _is_open(path: str) -> bool:
    """Say whether somebody else may own the folder, or may create it."""
    return any(PurePosixPath(path).is_relative_to(each) for each in _WRITABLE)


def _some(names: list[str]) -> str:
    """List a few of many."""
    return ", ".join(names[:_SHOWN]) + ", ..." * (len(names) > _SHOWN)
