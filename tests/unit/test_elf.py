"""Real, broken and hostile libraries are read without being loaded."""

import os
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trees import NEW, compile_library, plugin_bytes

from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract.binary import Binary, unfit
from pjrt_hub.finding.contract.headers import exports, inspect, is_library, sections
from pjrt_hub.finding.contract.linking import Search, find_missing, problems

HOST = HostTag.current()
LINUX = HostTag.parse("linux-x86_64-glibc2.36")
EMPTY = Search(cache=Path("/nonexistent"), folders=())


@pytest.fixture
def toy(tmp_path) -> Path:
    path = tmp_path / "toy.so"
    path.write_bytes(plugin_bytes())
    return path


@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_both_hash_tables(tmp_path, style):
    source = "int GetPjrtApi(void) { return 0; } int other(void) { return 1; }"
    path = compile_library(source, tmp_path / "toy.so", f"-Wl,--hash-style={style}")
    assert inspect(path).exported
    assert inspect(path, "other").exported
    assert not inspect(path, "absent").exported


def test_a_missing_library_is_named_with_who_ships_it(tmp_path):
    folder, all_needed = tmp_path / "deps", "-Wl,--no-as-needed"
    for name in ("libsycl.so.8", "libdeep.so"):
        compile_library("int x;", folder / name, f"-Wl,-soname,{name}")
    flags = (all_needed, str(folder / "libdeep.so"), "-Wl,-soname,libbeside.so")
    middle = compile_library("int y;", folder / "libbeside.so", *flags)
    flags = (NEW + "$ORIGIN/deps", f"-Wl,-rpath-link,{folder}")
    flags += (all_needed, str(middle), str(folder / "libsycl.so.8"))
    source = "int GetPjrtApi(void) { return 0; }"
    elf = inspect(compile_library(source, tmp_path / "toy.so", *flags))
    assert elf.runpath == (str(folder),)
    # A RUNPATH is not inherited, so only LD_LIBRARY_PATH lets libbeside find libdeep.
    needs = [(lost.name, lost.needed_by.name) for lost in find_missing(elf, EMPTY)]
    assert needs == [("libdeep.so", "libbeside.so")]
    assert find_missing(elf, Search((str(folder),), (), Path("/nonexistent"), ())) == []
    huge = tmp_path / "ld.so.cache"
    huge.touch()
    os.truncate(huge, 1 << 42)  # this sparse file exceeds any memory
    assert find_missing(elf, Search(cache=huge, folders=())) == find_missing(elf, EMPTY)
    (folder / "libsycl.so.8").unlink()
    (found,) = problems(elf, HOST, Search((), (tmp_path / "libdeep.so",), EMPTY.cache, ()))
    assert found.text == "libsycl.so.8 is needed and not found; it is part of Intel SYCL runtime"
    assert found.hint == "pip install 'intel-sycl-rt==2025.*'"


def test_a_newer_glibc_and_no_glibc(toy):
    needs = {"versions": (("libc.so.6", "GLIBC_2.27"),), "exported": True}
    elf = Binary(toy, "linux", 64, True, "x86_64", True, **needs)
    (old,) = unfit(elf, HostTag.parse("linux-x86_64-glibc2.17"))
    assert old.text == "it needs glibc 2.27, this machine has 2.17"
    musl = HostTag.parse("linux-x86_64-musl")
    (refused,) = unfit(elf, musl)
    assert refused.text == "it needs glibc, this machine has musl"
    # Before a download, only the host in the row tells where a file runs.
    refused = musl.runs(HostTag.parse("linux-x86_64-glibc2.27"))
    assert refused == "it is built for glibc, this machine has musl"
    assert musl.runs(musl) == ""


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "an empty file"),
        (b"<!DOCTYPE html><html>", "an HTML page"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\x1f\x8brest", "a gzip archive"),
        (b"MZ\x90", "a program of DOS"),
        (b"\xca\xfe\xba\xbe\0\0\0\x34", "a class of Java"),
        (b"hello", "begins with b'hello'"),
    ],
)
def test_what_is_no_library_is_named(tmp_path, content, kind):
    path = tmp_path / "toy.so"
    path.write_bytes(content)
    with pytest.raises(PluginLoadError, match=f"is not a shared library: .*{kind}") as caught:
        inspect(path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    ("begin", "system"),
    [
        (b"\xcf\xfa\xed\xfe", "macos"),
        (b"\xce\xfa\xed\xfe", "macos"),
        (b"\xfe\xed\xfa\xcf", "macos"),
        (b"\xfe\xed\xfa\xce", "macos"),
        (b"\xca\xfe\xba\xbe\0\0\0\x02", "macos"),
        (b"\xca\xfe\xba\xbf\0\0\0\x02", "macos"),
        (b"MZ" + bytes(58) + b"\x40\0\0\0PE\0\0", "windows"),
    ],
)
def test_of_a_library_for_another_system_its_system_is_known(tmp_path, begin, system):
    path = tmp_path / "toy.so"
    path.write_bytes(begin)
    found = inspect(path)
    assert (found, is_library(path)) == (Binary(path, system), True)
    [why] = problems(found, LINUX, EMPTY)
    assert why.text == f"it is built for {system}, this machine runs linux"
    assert problems(found, HostTag(system, "x86_64"), EMPTY) == []
    with pytest.raises(PluginLoadError, match="is not a 64-bit little-endian library"):
        exports(path)


def test_truncated_at_every_length(toy):
    whole = toy.read_bytes()
    segments = struct.iter_unpack("<IIQQQQQQ", whole[64 : 64 + 56 * whole[56]])
    last = max(start + size for kind, _, start, _, _, size, _, _ in segments if kind == 1)
    for length in (*range(0, 200), *range(200, last, 97), last - 1):
        toy.write_bytes(whole[:length])
        with pytest.raises(PluginLoadError):
            inspect(toy)


@pytest.mark.parametrize("name", ["", "pipe.so", "/dev/zero", "absent.so"])
def test_not_a_regular_file(tmp_path, name):
    os.mkfifo(tmp_path / "pipe.so")
    with pytest.raises(PluginLoadError):
        inspect(tmp_path / name)


edits = st.lists(
    st.tuples(st.integers(0, 1 << 14), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6
)


@settings(max_examples=600)
@given(edits, st.booleans())
@example([(32, b"\xff" * 8)], False)
@example([(56, b"\xff\xff")], False)
@example([(40, b"\xff" * 8)], True)
@example([(58, b"\xff" * 6)], True)
def test_hostile_bytes_give_one_error(tmp_path_factory, edits, from_the_end):
    data = bytearray(plugin_bytes())
    for offset, value in edits:
        # No loader reads the last kilobytes of a file, but the tools that lint do.
        offset = (len(data) - 1 - offset if from_the_end else offset) % len(data)
        data[offset : offset + len(value)] = value
    path = tmp_path_factory.getbasetemp() / "hostile.so"
    path.write_bytes(data)
    with suppress(PluginLoadError):
        assert all(problem.text for problem in problems(inspect(path), HOST, EMPTY))
    with suppress(PluginLoadError):
        assert all(section.nbytes >= 0 for section in sections(path))
    with suppress(PluginLoadError):
        assert all(isinstance(name, str) for name in exports(path))


def test_exports_are_what_others_can_call(tmp_path):
    source = """
    int GetPjrtApi(void) { return 0; }
    __attribute__((weak)) int a_weak_one(void) { return 0; }
    __attribute__((visibility("hidden"))) int hidden(void) { return 0; }
    static int local(void) { return 0; }
    int (*volatile pointer)(void) = local;
    extern int from_elsewhere(void);
    int calls(void) { return from_elsewhere(); }
    """
    path = compile_library(source, tmp_path / "toy.so")
    assert exports(path) == ("GetPjrtApi", "a_weak_one", "calls", "pointer")


def test_names_without_end_are_refused(tmp_path):
    """The symbols of a 5 MB file claim to have terabytes of names."""
    path = tmp_path / "names.so"
    count, text = 100_000, 1 << 21
    begin = 64 + 3 * 64
    places = range(8, 8 + 8 * count, 8)
    rows = b"".join(struct.pack("<IBBHQQ", at, 0x12, 0, 1, at, 0) for at in places)
    section = struct.Struct("<IIQQQQIIQQ")
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQ", 3, 62, 1, 0, 0, 64)
    head += struct.pack("<IHHHHHH", 0, 64, 56, 0, 64, 3, 2) + section.pack(
        0, 0, 0, 0, 0, 1, *[0] * 4
    )
    head += section.pack(0, 11, 0, 0, begin, len(rows), 2, 0, 8, 24)
    head += section.pack(0, 3, 0, 0, begin + len(rows), text, 0, 0, 1, 0)
    path.write_bytes(head + rows + b"\0x" + b"x" * (text - 2))
    with pytest.raises(PluginLoadError, match="its symbols have names without end"):
        exports(path)
