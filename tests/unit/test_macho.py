"""Libraries of macOS, read anywhere: thin and universal ones, broken ones, hostile ones."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import images
import pytest
from images import I386, X86_64, macho, universal

from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract import macho as reader
from pjrt_hub.finding.contract.binary import unfit
from pjrt_hub.finding.contract.headers import exports, inspect, parts, sections
from pjrt_hub.finding.contract.linking import Search, find_missing, problems

LINUX = HostTag.parse("linux-x86_64-glibc2.36")
MAC = HostTag.parse("macos-arm64-14.2")


def written(folder: Path, data: bytes, name: str = "toy.dylib") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_a_plugin(tmp_path: Path):
    libraries = (
        (images.LOAD, "/usr/lib/libSystem.B.dylib"),
        (images.WEAK, "/System/Library/Frameworks/Metal.framework/Metal"),
        (images.REEXPORT, "@rpath/libmlir.dylib"),
        (images.LAZY, "@rpath/liblate.dylib"),
        (images.UPWARD, "@loader_path/libup.dylib"),
    )
    data = macho(libraries=libraries, run_paths=("@loader_path/../lib", "/opt/x"))
    path = written(tmp_path, data)
    found = inspect(path)
    assert (found.system, found.machine, found.bits, found.little) == ("macos", "aarch64", 64, True)
    assert (found.shared, found.exported, found.minimum) == (True, True, (11, 0))
    assert found.name == "@rpath/libtoy.dylib"
    assert found.needed == (libraries[0][1], libraries[2][1], libraries[4][1])
    assert found.optional == (libraries[1][1], libraries[3][1])
    assert found.run_paths == ("@loader_path/../lib", "/opt/x")
    assert found.runpath == (str(tmp_path.resolve().parent / "lib"), "/opt/x")
    assert parts(path) == (found,)


@pytest.mark.parametrize("how", ["trie", "info", "symbols"])
def test_each_way_to_export(tmp_path: Path, how: str):
    # A name without the underscore that C puts there is found by no `dlsym`.
    names = ("_GetPjrtApi", "_GetPjrt", "_Get", "__ZN3foo3barEv", "assembly")
    path = written(tmp_path, macho(names, exports=how))
    assert exports(path) == ("Get", "GetPjrt", "GetPjrtApi", "_ZN3foo3barEv")
    for symbol in ("GetPjrtApi", "GetPjrt", "Get"):
        assert inspect(path, symbol).exported, symbol
    for symbol in ("GetPjrtAp", "GetPjrtApi2", "G", "", "hidden", "undefined", "local", "assembly"):
        assert not inspect(path, symbol).exported, symbol


def test_without_the_underscore_it_is_no_plugin(tmp_path: Path):
    found = inspect(written(tmp_path, macho(("GetPjrtApi",))))
    assert not found.exported
    (why,) = unfit(found, MAC)
    assert why.text == "it does not export GetPjrtApi: it is not a PJRT plugin of the C API"


def test_hundreds_of_names(tmp_path: Path):
    names = tuple(f"_name_{number:x}_{'x' * (number % 37)}" for number in range(900))
    path = written(tmp_path, macho(names))
    assert exports(path) == tuple(sorted(name[1:] for name in names))
    assert all(inspect(path, name[1:]).exported for name in names[::50])


@pytest.mark.parametrize("wide", [False, True])
def test_a_universal_library(tmp_path: Path, wide: bool):
    old = macho(("_other",), machine=X86_64, systems=(), version_min=0x000A0D04)
    path = written(tmp_path, universal(old, macho(), wide=wide))
    intel, apple = parts(path)
    assert [(each.machine, each.minimum, each.exported) for each in (intel, apple)] == [
        ("x86_64", (10, 13, 4), False),
        ("aarch64", (11, 0), True),
    ]
    assert inspect(path) == inspect(path, machine="x86_64") == intel
    assert inspect(path, machine="aarch64") == apple
    assert exports(path) == ("GetPjrtApi", "other")
    for section in sections(path):
        if section.name == "__TEXT,__const":
            assert path.read_bytes()[section.offset :][:4] == b"\xcf\xfa\xed\xfe"


def test_other_machines_and_systems(tmp_path: Path):
    def seen(**kw):
        found = inspect(written(tmp_path, macho(**kw)))
        return found.system, found.machine, found.shared

    assert seen(machine=X86_64) == ("macos", "x86_64", True)
    assert seen(machine=(0x0100000C, 0x80000002)) == ("macos", "arm64e", True)
    assert seen(machine=(0x01000007, 8)) == ("macos", "x86_64h", True)
    assert seen(machine=(99, 0)) == ("macos", "machine 99", True)
    assert seen(kind=images.BUNDLE)[2]
    assert not seen(kind=images.EXECUTE)[2]
    assert seen(systems=((images.IOS, 0x000D0000),))[0] == "ios"
    zippered = ((images.CATALYST, 0x000E0000), (images.MACOS, 0x000B0301))
    assert seen(systems=zippered)[0] == "macos"
    assert inspect(written(tmp_path, macho(systems=zippered))).minimum == (11, 3, 1)
    assert inspect(written(tmp_path, macho(systems=()))).minimum == ()


@pytest.mark.parametrize(
    ("host", "data", "text"),
    [
        (LINUX, macho(), "it is built for macos, this machine runs linux"),
        (MAC, macho(machine=X86_64), "it is built for x86_64, this machine is aarch64"),
        (
            MAC,
            macho(systems=((images.MACOS, 0x000E0300),)),
            "it needs macos 14.3, this machine has 14.2",
        ),
        (
            MAC,
            macho(kind=images.EXECUTE),
            "it is a program or an object file, not a shared library",
        ),
        (MAC, macho(systems=((images.IOS, 0),)), "it is built for ios, this machine runs macos"),
    ],
)
def test_why_it_does_not_load(tmp_path: Path, host: HostTag, data: bytes, text: str):
    found = inspect(written(tmp_path, data), machine=host.arch)
    assert [why.text for why in problems(found, host, Search())] == [text]


def test_it_loads_where_it_fits(tmp_path: Path):
    both = written(tmp_path, universal(macho(machine=X86_64), macho()))
    for host in (MAC, HostTag.parse("macos-x86_64-13.0")):
        assert problems(inspect(both, machine=host.arch), host, Search()) == []


def test_what_dyld_does_not_find(tmp_path: Path):
    def needs(*names: str, run_paths: tuple[str, ...] = ()) -> bytes:
        return macho(libraries=[(images.LOAD, name) for name in names], run_paths=run_paths)

    (tmp_path / "lib").mkdir()
    written(tmp_path / "lib", needs("@rpath/libdeep.dylib", "@rpath/libc.dylib"), "libb.dylib")
    written(tmp_path / "lib", needs("@loader_path/nowhere.dylib"), "libc.dylib")
    plugin = needs(
        "/usr/lib/libSystem.B.dylib",
        "/System/Library/Frameworks/Metal.framework/Metal",
        "@rpath/libb.dylib",
        "@loader_path/lib/libc.dylib",
        "@executable_path/libpython.dylib",
        "/opt/homebrew/lib/libomp.dylib",
        "@rpath/libloaded.dylib",
        run_paths=("/nonexistent", "@loader_path/lib"),
    )
    found = inspect(written(tmp_path, plugin))
    lost = find_missing(found, Search(preloaded=(Path("/x/libloaded.dylib"),)))
    assert [(each.name, each.needed_by.name) for each in lost] == [
        ("/opt/homebrew/lib/libomp.dylib", "toy.dylib"),
        ("@rpath/libdeep.dylib", "libb.dylib"),
        ("@loader_path/nowhere.dylib", "libc.dylib"),
    ]


def test_what_nothing_reads(tmp_path: Path):
    found = sections(written(tmp_path, macho(locals_count=7)))
    roles = {each.role: (each.name, each.nbytes) for each in found}
    assert roles["debug"] == ("__DWARF,__debug_str", 8)
    assert roles["symbols"] == ("local symbols", 7 * 16)
    assert roles["data"][0] == "__TEXT,__const"


@pytest.mark.parametrize("magic", [b"\xce\xfa\xed\xfe", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf"])
def test_of_another_class_only_the_header_is_read(tmp_path: Path, magic: bytes):
    order = "<" if magic[0] != 0xFE else ">"
    path = written(tmp_path, magic + struct.pack(f"{order}3I", *I386, images.DYLIB) + b"\xff" * 64)
    found = inspect(path)
    wide = magic == b"\xfe\xed\xfa\xcf"
    assert (found.bits, found.little) == (64 if wide else 32, order == "<")
    assert (found.machine, found.shared) == ("i386", True)
    with pytest.raises(PluginLoadError, match="is not a 64-bit little-endian library"):
        exports(path)
    # Beside a part that is read, it is in nobody's way.
    assert exports(written(tmp_path, universal(macho(machine=I386), macho()))) == ("GetPjrtApi",)


def test_truncated_at_every_length(tmp_path: Path):
    whole = macho()
    for length in range(len(whole)):
        with pytest.raises(PluginLoadError):
            inspect(written(tmp_path, whole[:length]))
    both = universal(macho(machine=X86_64), macho())
    for length in (*range(0, 80, 3), *range(4096, len(both) - 8, 37)):
        with pytest.raises(PluginLoadError):
            parts(written(tmp_path, both[:length]))


def edited(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1, data.count(old)
    return data.replace(old, new)


def with_trie(tree: bytes) -> bytes:
    """A library whose exported names are these bytes."""
    plain = macho(exports="info")
    at = plain.rindex(struct.pack("<II", 0x80000022, 48))
    fields = struct.pack("<II", len(plain), len(tree))
    return plain[: at + 40] + fields + plain[at + 48 :] + tree


CHAIN = b"".join(
    b"\0\1a\0" + bytes([0x80 | following & 0x7F, following >> 7])
    for following in range(12, 12006, 6)
)
LONG = b"\0\2" + 2 * (b"x" * 60000 + b"\0\0")
_SYMTAB = struct.pack("<4I", 2, 24, 488, 4)
HOSTILE = {
    "a loop": (with_trie(b"\0\1_\0\0"), "not a tree"),
    "a loop of no characters": (with_trie(b"\0\2\0\0_\0\0"), "not a tree"),
    "a name without end": (with_trie(LONG), "not a tree"),
    "a node outside": (with_trie(b"\0\1_\0\x7f"), "no number at byte 127"),
    "an endless number": (with_trie(b"\xff" * 40), "no number at byte 0"),
    "an edge without end": (with_trie(b"\0\1_GetPjrtApi"), "has no end"),
    "a long edge": (with_trie(b"\0\1" + b"_" * 70000 + b"\0\0"), "has no end"),
    "too large": (edited(macho(), struct.pack("<I", len(images.trie(["_GetPjrtApi"]))) +
                         struct.pack("<II", 2, 24), struct.pack("<III", 1 << 30, 2, 24)),
                  "1073741824 bytes of exported names"),
    "parts that overlap": (
        edited(universal(macho(), macho()), struct.pack(">I", 4736), struct.pack(">I", 4100)),
        "parts of the universal library overlap",
    ),
    "no parts": (b"\xca\xfe\xba\xbe" + bytes(4000), "of 0 parts"),
    "many parts": (b"\xca\xfe\xba\xbe\0\0\0\x20" + bytes(4000), "of 32 parts"),
    "no library": (b"\xca\xfe\xba\xbe\0\0\0\x01" + bytes(4000), "a part of it begins with"),
    "many symbols": (
        edited(macho(exports="symbols"), _SYMTAB, struct.pack("<4I", 2, 24, 488, 1 << 30)),
        "1073741824 symbols with names of",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_libraries_give_one_error(tmp_path: Path, name: str):
    data, text = HOSTILE[name]
    path = written(tmp_path, data)
    begin_s = time.process_time()
    with pytest.raises(PluginLoadError, match=text) as caught:
        exports(path)
    assert time.process_time() - begin_s < 5
    assert caught.value.path == str(path)


def test_names_without_number_are_refused(tmp_path: Path, monkeypatch):
    names = tuple(f"_name{number}" for number in range(50))
    path = written(tmp_path, macho(names))
    assert len(exports(path)) == 50
    monkeypatch.setattr(reader, "_MAX_NODES", 50)
    with pytest.raises(PluginLoadError, match="exported names are more than 50"):
        exports(path)


def test_a_deep_tree_is_read(tmp_path: Path):
    path = written(tmp_path, with_trie(b"\0\1_\0\x06" + b"\0" + CHAIN + b"\2\0\0\0"))
    assert exports(path) == ("a" * (len(CHAIN) // 6),)


def test_mutations_give_one_error(tmp_path: Path):
    names = ("_GetPjrtApi", "_GetPjrt", "_other")
    seeds = [macho(names, exports=how, run_paths=("@loader_path",)) for how in ("trie", "info")]
    seeds += [macho(names, exports="symbols"), universal(*seeds)]
    images.read_mutated(tmp_path / "toy.dylib", seeds, MAC)
