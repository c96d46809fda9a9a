"""Libraries of Windows, read anywhere: plugins, broken ones, hostile ones."""

from __future__ import annotations

import struct
from pathlib import Path

import images
import pytest
from images import pe

from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract.headers import exports, inspect, parts, sections
from pjrt_hub.finding.contract.linking import Search, find_missing, problems

LINUX = HostTag.parse("linux-x86_64-glibc2.36")
WINDOWS = HostTag.parse("windows-x86_64")


def written(folder: Path, data: bytes, name: str = "toy.dll") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_a_plugin(tmp_path: Path):
    needed, delayed = ("KERNEL32.dll", "cudart64_12.dll"), ("cudnn64_9.dll",)
    path = written(tmp_path, pe(("GetPjrtApi", "Other"), needed=needed, delayed=delayed))
    found = inspect(path)
    assert (found.system, found.machine, found.bits) == ("windows", "x86_64", 64)
    assert (found.shared, found.exported, found.name) == (True, True, "toy.dll")
    assert (found.needed, found.optional, found.run_paths) == (needed, delayed, ())
    assert exports(path) == ("GetPjrtApi", "Other")
    assert parts(path) == (found,)


def test_delayed_imports_of_old_linkers(tmp_path: Path):
    path = written(tmp_path, pe(delayed=("late.dll",), by_address=True))
    assert inspect(path).optional == ("late.dll",)


def test_names_are_looked_up_as_windows_does(tmp_path: Path):
    names = tuple(sorted(f"name{number}" for number in range(1000)))
    path = written(tmp_path, pe(names))
    assert all(inspect(path, name).exported for name in names[::37])
    assert not inspect(path, "name").exported
    assert exports(path) == names
    # Windows finds nothing in a table that is not sorted, though it is there.
    path = written(tmp_path, pe(("Z", "Y", "GetPjrtApi")))
    assert not inspect(path).exported
    assert exports(path) == ("GetPjrtApi", "Y", "Z")


def test_nothing_exported_and_nothing_needed(tmp_path: Path):
    found = inspect(path := written(tmp_path, pe((), needed=())))
    assert (found.exported, found.needed, found.optional, found.name) == (False, (), (), "")
    assert exports(path) == ()


@pytest.mark.parametrize(
    ("host", "data", "text"),
    [
        (LINUX, pe(), "it is built for windows, this machine runs linux"),
        (
            WINDOWS,
            pe(machine=images.ARM64_PE),
            "it is built for aarch64, this machine is x86_64",
        ),
        (WINDOWS, pe(dll=False), "it is a program or an object file, not a shared library"),
        (
            WINDOWS,
            pe(("other",)),
            "it does not export GetPjrtApi: it is not a PJRT plugin of the C API",
        ),
        (
            WINDOWS,
            pe(machine=0x14C, wide=False),
            "it is a 32-bit little-endian library, 64-bit little is needed",
        ),
    ],
)
def test_why_it_does_not_load(tmp_path: Path, host: HostTag, data: bytes, text: str):
    found = inspect(written(tmp_path, data))
    assert [why.text for why in problems(found, host, Search())] == [text]


def test_what_windows_does_not_find(tmp_path: Path):
    needed = ("KERNEL32.dll", "api-ms-win-crt-heap-l1-1-0.dll", "VCRUNTIME140.dll", "python312.dll")
    path = written(tmp_path, pe(needed=(*needed, "Beside.DLL", "libs_one.dll", "lost.dll")))
    written(tmp_path, pe(needed=("Deep.dll",)), "beside.dll")
    (tmp_path / "pkg.libs").mkdir()
    written(tmp_path / "pkg.libs", pe(), "libs_one.dll")
    search = Search(package=(str(tmp_path / "pkg.libs"),))
    lost = find_missing(inspect(path), search)
    assert [(each.name, each.needed_by.name) for each in lost] == [
        ("lost.dll", "toy.dll"),
        ("deep.dll", "beside.dll"),
    ]


def test_what_nothing_reads(tmp_path: Path):
    found = sections(written(tmp_path, pe(symbols=5)))
    assert [(each.name, each.role) for each in found] == [
        ("symbols", "symbols"),
        (".rdata", "data"),
        (".debug_information", "debug"),
    ]
    assert found[0].nbytes == 5 * 18 + 4 + len(".debug_information\0")


def test_truncated_at_every_length(tmp_path: Path):
    whole = pe()
    for length in range(len(whole)):
        with pytest.raises(PluginLoadError):
            inspect(written(tmp_path, whole[:length]))


def changed(at: int, layout: str, *values: int, **kw: object) -> bytes:
    """A library with a few numbers changed."""
    data = bytearray(pe(**kw))  # type: ignore[arg-type]
    struct.pack_into(layout, data, at, *values)
    return bytes(data)


_COFF, _OPTIONAL = 68, 88
HOSTILE = {
    "many sections": (changed(_COFF + 2, "<H", 60000), "it has 60000 sections"),
    "neither 32 nor 64 bits": (changed(_OPTIONAL, "<H", 7), "neither a 32-bit nor a 64-bit"),
    "no optional header": (changed(_COFF + 16, "<H", 0), "neither a 32-bit nor a 64-bit"),
    "exports nowhere": (changed(_OPTIONAL + 112, "<I", 0x900000), "0x900000 lies in no section"),
    "many exports": (changed(0x400 + 32 + 24, "<I", 1 << 30), "exports 1073741824 names"),
    "names outside": (changed(0x400 + 32 + 32, "<I", 0x11FE), "leave their section"),
    "a header far away": (changed(60, "<I", 0xFFFFFFF0), "a program of DOS"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_libraries_give_one_error(tmp_path: Path, name: str):
    data, text = HOSTILE[name]
    path = written(tmp_path, data)
    with pytest.raises(PluginLoadError, match=text) as caught:
        exports(path)
    assert caught.value.path == str(path)


def test_a_table_of_imports_has_an_end(tmp_path: Path):
    many = tuple(f"lib{number}.dll" for number in range(5000))
    with pytest.raises(PluginLoadError, match="needed libraries has no end"):
        inspect(written(tmp_path, pe(needed=many)))


def test_mutations_give_one_error(tmp_path: Path):
    seeds = [pe(), pe(("GetPjrtApi", "Other"), delayed=("late.dll",), symbols=2)]
    images.read_mutated(tmp_path / "toy.dll", seeds, WINDOWS, begin=60)
