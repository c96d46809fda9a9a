"""Libraries of macOS and Windows, whole and damaged, can be read on any system."""

from pathlib import Path

import images
import pytest
from images import I386, X86_64, macho, pe, universal

from pjrt_hub.errors import PluginLoadError
from pjrt_hub.kit.authoring import native_library
from pjrt_hub.kit.authoring.native_library import NativeLibrary


def read(folder: Path, data: bytes, name: str = "toy") -> NativeLibrary:
    (folder / name).write_bytes(data)
    return native_library.read(folder / name)


def missing(plugin: NativeLibrary, *shipped: NativeLibrary):
    [part] = plugin.parts
    lost = native_library.find_missing(part, [part, *(each.parts[0] for each in shipped)])
    return [(each.name, each.needed_by.name) for each in lost]


def test_a_plugin_for_macos(tmp_path):
    libraries = (
        (images.LOAD, "/usr/lib/libSystem.B.dylib"),
        (images.WEAK, "/System/Library/Frameworks/Metal.framework/Metal"),
        (images.REEXPORT, "@rpath/libmlir.dylib"),
        (images.LAZY, "@rpath/liblate.dylib"),
        (images.UPWARD, "@loader_path/libup.dylib"),
    )
    data = macho(libraries=libraries, run_paths=("@loader_path/../lib", "/opt/x"), locals_count=7)
    found = read(tmp_path, data)
    [part] = found.parts
    assert (part.system, part.machine, part.bits, part.shared) == ("macos", "aarch64", 64, True)
    assert (part.exported, part.minimum) == (True, (11, 0))
    assert part.needed == (libraries[0][1], libraries[2][1], libraries[4][1])
    assert part.optional == (libraries[1][1], libraries[3][1])
    assert part.run_paths == ("@loader_path/../lib", "/opt/x")
    assert part.runpath == (str(tmp_path.resolve().parent / "lib"), "/opt/x")
    assert found.nbytes == {"debug": 8, "symbols": 7 * 16}


def test_a_plugin_for_windows(tmp_path):
    needed = ("KERNEL32.dll", "cudart64_12.dll")
    found = read(tmp_path, pe(("GetPjrtApi", "Other"), needed=needed, symbols=5))
    [part] = found.parts
    assert (part.system, part.machine, part.bits, part.shared) == ("windows", "x86_64", 64, True)
    assert (part.exported, part.needed) == (True, ("kernel32.dll", "cudart64_12.dll"))
    assert found.exports == ("GetPjrtApi", "Other")
    assert found.nbytes == {"debug": 512, "symbols": 5 * 18 + len(".debug_information\0")}
    nothing = read(tmp_path, pe((), needed=(), dll=False))
    assert (nothing.exports, nothing.parts[0].needed, nothing.parts[0].shared) == ((), (), False)


@pytest.mark.parametrize("how", ["trie", "info", "symbols"])
def test_each_way_to_export(tmp_path, how):
    # `dlsym` cannot find a name without the underscore that C compilers add on macOS.
    names = ("_GetPjrtApi", "_GetPjrt", "_Get", "__ZN3foo3barEv", "assembly")
    found = read(tmp_path, macho(names, exports=how, locals_count=2))
    assert found.exports == ("Get", "GetPjrt", "GetPjrtApi", "_ZN3foo3barEv")
    assert not read(tmp_path, macho(("GetPjrtApi",), exports=how)).parts[0].exported


def test_a_universal_library(tmp_path):
    intel = macho(("_other",), machine=X86_64, systems=(), version_min=0x000A0D04)
    found = read(tmp_path, universal(intel, macho(machine=I386), macho(locals_count=3)))
    assert [(each.machine, each.minimum, each.exported) for each in found.parts] == [
        ("x86_64", (10, 13), False),
        ("i386", (11, 0), True),
        ("aarch64", (11, 0), True),
    ]
    assert found.exports == ("GetPjrtApi", "other")
    assert found.nbytes["symbols"] == 3 * 16


CATALYST = (images.CATALYST, 0x000E0000)


@pytest.mark.parametrize(
    ("data", "built"),
    [
        (macho(machine=X86_64), ("macos", "x86_64", (11, 0))),
        (macho(machine=(0x0100000C, 0x80000002)), ("macos", "arm64e", (11, 0))),
        (macho(machine=(0x01000007, 8)), ("macos", "x86_64h", (11, 0))),
        (macho(machine=(99, 0)), ("macos", "99", (11, 0))),
        (macho(systems=()), ("macos", "aarch64", ())),
        (macho(systems=((images.IOS, 0x000D0000),)), ("ios", "aarch64", (13, 0))),
        (macho(systems=((77, 0x000D0000),)), ("77", "aarch64", (13, 0))),
        (macho(systems=(CATALYST, (images.MACOS, 0x000B0301))), ("macos", "aarch64", (11, 3))),
        (pe(machine=images.ARM64_PE), ("windows", "aarch64", ())),
        (pe(machine=0x1234), ("windows", "4660", ())),
    ],
)
def test_machines_and_systems(tmp_path, data, built):
    [part] = read(tmp_path, data).parts
    assert (part.system, part.machine, part.minimum) == built


def test_what_dyld_does_not_find(tmp_path):
    def needs(name: str, *names: str, run_paths: tuple[str, ...] = ()):
        data = macho(libraries=[(images.LOAD, each) for each in names], run_paths=run_paths)
        return read(tmp_path, data, name)

    (tmp_path / "lib").mkdir()
    b = needs("lib/libb.dylib", "@rpath/libdeep.dylib", "@rpath/libc.dylib")
    c = needs("lib/libc.dylib", "@loader_path/nowhere.dylib")
    of_the_system = "/System/Library/Frameworks/Metal.framework/Metal"
    plugin = needs(
        *("toy.dylib", "/usr/lib/libSystem.B.dylib", of_the_system, "@rpath/libb.dylib"),
        *("@loader_path/lib/libc.dylib", "@executable_path/libpython.dylib"),
        "/opt/homebrew/lib/libomp.dylib",
        run_paths=("/nonexistent", "@loader_path/lib"),
    )
    assert missing(plugin, b, c) == [
        ("/opt/homebrew/lib/libomp.dylib", "toy.dylib"),
        ("@rpath/libdeep.dylib", "libb.dylib"),
        ("@loader_path/nowhere.dylib", "libc.dylib"),
    ]


def test_what_windows_does_not_find(tmp_path):
    (tmp_path / "pkg.libs").mkdir()
    one = read(tmp_path, pe(), "pkg.libs/libs_one.dll")
    beside = read(tmp_path, pe(needed=("Deep.dll",)), "Beside.dll")
    (tmp_path / "unread.DLL").touch()
    needed = ("KERNEL32.dll", "api-ms-win-crt-heap-l1-1-0.dll", "VCRUNTIME140.dll", "python312.dll")
    needed += ("Beside.DLL", "libs_one.dll", "Unread.dll", "lost.dll")
    assert missing(read(tmp_path, pe(needed=needed), "toy.dll"), one, beside) == [
        ("lost.dll", "toy.dll"),
        ("deep.dll", "Beside.dll"),
    ]


BOTH = universal(macho(machine=X86_64), macho())


CUT = [macho()[:-1], macho()[:300], macho()[:40], BOTH[:-20], BOTH[:4800], BOTH[:40]]
CUT += [pe()[:-1], pe()[:300]]
FOREIGN_NAME = macho(run_paths=("/opt/x",)).replace(b"/opt/x", b"/opt/\xff")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        *((data, "is truncated or malformed") for data in CUT),
        (FOREIGN_NAME, "it has a name that is not UTF-8"),
        (b"\xce\xfa\xed\xfe" + macho()[4:28], "is not a 64-bit little-endian library"),
        (pe(machine=0x14C, wide=False), "is not a 64-bit little-endian library"),
    ],
)
def test_what_is_not_whole_is_refused(tmp_path, data, text):
    with pytest.raises(PluginLoadError, match=text) as caught:
        read(tmp_path, data)
    assert caught.value.path == str(tmp_path / "toy")
