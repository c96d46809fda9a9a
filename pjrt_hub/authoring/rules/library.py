"""Rules about the library itself, read without loading it (layer 5)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import PurePosixPath

from pjrt_hub.authoring.rule import ERROR, WARNING, rule
from pjrt_hub.authoring.shipment import Shipment
from pjrt_hub.contract import elf, linking
from pjrt_hub.contract.elf import ENTRY_POINT
from pjrt_hub.contract.shippers import shipper
from pjrt_hub.host import HostTag

Found = Iterator[tuple[str, str]]

#: Folders in which everybody, or whoever built the library, may write.
_WRITABLE = ("/tmp", "/var/tmp", "/dev/shm", "/home", "/root", "/Users", "/builds", "/workspace")
_SHOWN = 5
_MUCH_NBYTES = 1_000_000


@rule(101, ERROR)
def has_a_plugin(shipment: Shipment) -> Found:
    """A library exports GetPjrtApi.

    It is the one symbol that every framework looks up; without it there is no plugin.
    """
    if not shipment.plugins:
        there = ", ".join(shipment.name(each.path) for each in shipment.natives[:_SHOWN])
        yield shipment.path.name, f"no library exports {ENTRY_POINT}; found: {there or 'none'}"


@rule(102, ERROR)
def libraries_can_be_read(shipment: Shipment) -> Found:
    """Every library is a whole ELF file.

    A truncated file, a pointer of Git LFS or a page of HTML under the name of a library does not
    load; fetch the real file before packing.
    """
    for path, why in shipment.unreadable.items():
        yield shipment.name(path), why.replace(str(path), "it", 1)


@rule(103, WARNING)
def has_one_plugin(shipment: Shipment) -> Found:
    """One library exports GetPjrtApi, not several.

    Tools that look for a plugin by the names of files cannot choose between two; ship each in a
    package of its own, or name each in a manifest.
    """
    if len(shipment.plugins) > 1:
        names = ", ".join(shipment.name(each.path) for each in shipment.plugins)
        yield shipment.path.name, f"{len(shipment.plugins)} libraries export {ENTRY_POINT}: {names}"


@rule(104, WARNING)
def exports_only_the_entry(shipment: Shipment) -> Found:
    """The plugin exports GetPjrtApi and nothing else.

    Other exported symbols are taken for those of other libraries in the process, or replace them:
    two copies of protobuf or LLVM end in a crash. Link with a version script, or with
    -fvisibility=hidden and --exclude-libs,ALL.
    """
    for plugin in shipment.plugins:
        others = [name for name in elf.exports(plugin.path) if name != ENTRY_POINT]
        if others:
            yield shipment.name(plugin.path), f"{len(others)} more are exported: {_some(others)}"


@rule(105, ERROR)
def run_paths_are_safe(shipment: Shipment) -> Found:
    """No run path is relative, empty, or leads to where others may write.

    The loader searches these folders first. An empty or relative one is the working directory of
    whoever runs the program: whoever writes there runs code as that user. Use $ORIGIN.
    """
    for library in shipment.natives:
        for path in library.run_paths:
            if not path.startswith(("/", "$ORIGIN", "${ORIGIN}")):
                text = f"the run path {path!r} is relative" if path else "a run path is empty"
                yield shipment.name(library.path), text
            elif _is_open(path):
                yield shipment.name(library.path), f"the run path {path!r} may belong to anybody"


@rule(106, WARNING)
def run_paths_are_relative(shipment: Shipment) -> Found:
    """Run paths begin with $ORIGIN.

    An absolute one names a folder of the machine that built the library, or of one distribution of
    Linux; elsewhere it finds nothing, or another version.
    """
    for library in shipment.natives:
        absolute = [path for path in library.run_paths if path[:1] == "/" and not _is_open(path)]
        if absolute:
            yield shipment.name(library.path), f"absolute: {_some(absolute)}"


@rule(107, ERROR)
def stack_is_not_executable(shipment: Shipment) -> Found:
    """No library asks for an executable stack.

    Loading one makes the stacks of the whole process executable, which newer kernels and glibc
    refuse. It comes from an assembler file without a .note.GNU-stack section; link with
    -z noexecstack.
    """
    for library in shipment.natives:
        if library.shared and library.executable_stack:
            yield shipment.name(library.path), "it asks for an executable stack"


@rule(108, ERROR)
def has_no_text_relocations(shipment: Shipment) -> Found:
    """No library has text relocations.

    The loader would have to write into its code, which SELinux forbids, and no two processes
    share that memory. Compile everything with -fPIC.
    """
    for library in shipment.natives:
        if library.text_relocations:
            yield shipment.name(library.path), "it has text relocations (DT_TEXTREL)"


@rule(109, WARNING)
def needed_libraries_are_there(shipment: Shipment) -> Found:
    """Every library that a plugin needs is in the package, in the system, or preloaded.

    What is not found here is told with the package that ships it, where that is known: require it
    in the metadata, and list it in the manifest's [[preload]].
    """
    host = HostTag.current()
    preloaded = {
        name for each in shipment.manifests for load in each.preloads for name in load.libraries
    }
    for plugin in shipment.plugins:
        if plugin.machine != host.arch:
            continue
        lost: dict[tuple[str, str, str], list[str]] = {}
        for each in linking.missing(plugin, linking.Search()):
            if each.name not in preloaded:
                place = shipment.name(each.needed_by)
                lost.setdefault((place, *shipper(each.name)), []).append(each.name)
        for (place, who, how), names in lost.items():
            text = f"needed and not found: {', '.join(names)}"
            yield place, text + f"; part of {who}: {how}" * bool(who)


@rule(110, WARNING)
def has_no_debug_information(shipment: Shipment) -> Found:
    """Libraries carry no debug information.

    It is often larger than the code. Keep it aside with objcopy --only-keep-debug.
    """
    for library in shipment.natives:
        nbytes = sum(
            each.nbytes
            for each in elf.sections(library.path)
            if each.name.startswith((".debug_", ".zdebug_"))
        )
        if nbytes >= _MUCH_NBYTES:
            yield shipment.name(library.path), f"{_megabytes(nbytes)} of debug information"


@rule(111, WARNING)
def is_stripped(shipment: Shipment) -> Found:
    """Libraries carry no table of local symbols.

    Nothing reads it at run time; strip --strip-unneeded takes it away.
    """
    for library in shipment.natives:
        listed = elf.sections(library.path)
        nbytes = sum(each.nbytes for each in listed if each.name in (".symtab", ".strtab"))
        if nbytes >= _MUCH_NBYTES:
            whole = os.path.getsize(library.path)
            text = f"{_megabytes(nbytes)} of {_megabytes(whole)} are symbols that nothing reads"
            yield shipment.name(library.path), text


def _is_open(path: str) -> bool:
    """Whether somebody else may own the folder, or make it."""
    return any(PurePosixPath(path).is_relative_to(each) for each in _WRITABLE)


def _some(names: list[str]) -> str:
    """A few of many."""
    return ", ".join(names[:_SHOWN]) + ", ..." * (len(names) > _SHOWN)


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"
