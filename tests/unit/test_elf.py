"""Libraries read without loading them: real ones, broken ones, hostile ones."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trees import compile_library, plugin_bytes

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


def test_a_tiny_plugin(toy):
    elf = inspect(toy)
    assert (elf.bits, elf.little, elf.machine, elf.shared) == (64, True, HOST.arch, True)
    assert elf.exported
    assert problems(elf, HOST, Search()) == []


def test_both_hash_tables(tmp_path):
    for style in ("gnu", "sysv"):
        source = "int GetPjrtApi(void) { return 0; } int other(void) { return 1; }"
        path = compile_library(source, tmp_path / f"{style}.so", f"-Wl,--hash-style={style}")
        assert inspect(path).exported
        assert inspect(path, "other").exported
        assert not inspect(path, "absent").exported


def test_a_missing_library_is_named_with_who_ships_it(tmp_path):
    for name in ("libsycl.so.8", "libdeep.so", "libbeside.so"):
        compile_library("int x;", tmp_path / "deps" / name, f"-Wl,-soname,{name}")
    middle = compile_library(
        "int y;",
        tmp_path / "deps" / "libbeside.so",
        "-Wl,--no-as-needed",
        str(tmp_path / "deps" / "libdeep.so"),
        "-Wl,-soname,libbeside.so",
    )
    plugin = compile_library(
        "int GetPjrtApi(void) { return 0; }",
        tmp_path / "toy.so",
        "-Wl,--no-as-needed",
        str(middle),
        str(tmp_path / "deps" / "libsycl.so.8"),
        "-Wl,--enable-new-dtags,-rpath,$ORIGIN/deps",
        f"-Wl,-rpath-link,{tmp_path}/deps",
    )
    elf = inspect(plugin)
    assert elf.runpath == (str(tmp_path / "deps"),)
    # RUNPATH is not inherited: libbeside finds its own need only by LD_LIBRARY_PATH.
    needs = [(lost.name, lost.needed_by.name) for lost in find_missing(elf, EMPTY)]
    assert needs == [("libdeep.so", "libbeside.so")]
    assert find_missing(elf, Search((str(tmp_path / "deps"),), (), Path("/nonexistent"), ())) == []
    huge = tmp_path / "ld.so.cache"
    huge.touch()
    os.truncate(huge, 1 << 42)  # a sparse file, which nothing could hold
    assert find_missing(elf, Search(cache=huge, folders=())) == find_missing(elf, EMPTY)
    (tmp_path / "deps" / "libsycl.so.8").unlink()
    (found,) = problems(elf, HOST, Search((), (tmp_path / "libdeep.so",), EMPTY.cache, ()))
    assert found.text == ("libsycl.so.8 is needed and not found; it is part of Intel SYCL runtime")
    assert found.hint == "pip install 'intel-sycl-rt==2025.*'"


def patched(path: Path, offset: int, value: bytes) -> Binary:
    data = bytearray(path.read_bytes())
    data[offset : offset + len(value)] = value
    path.write_bytes(data)
    return inspect(path)


def test_another_machine(toy):
    other = (183, "aarch64") if HOST.arch == "x86_64" else (62, "x86_64")
    (found,) = unfit(patched(toy, 18, struct.pack("<H", other[0])), HOST)
    assert found.text == f"it is built for {other[1]}, this machine is {HOST.arch}"


def test_another_class(toy):
    (found,) = unfit(patched(toy, 4, b"\x01"), HOST)
    assert found.text == "it is a 32-bit little-endian library, 64-bit little is needed"


def test_a_newer_glibc_and_no_glibc(toy):
    elf = Binary(
        toy,
        "linux",
        64,
        True,
        "x86_64",
        True,
        versions=(("libc.so.6", "GLIBC_2.27"),),
        exported=True,
    )
    (old,) = unfit(elf, HostTag.parse("linux-x86_64-glibc2.17"))
    assert old.text == "it needs glibc 2.27, this machine has 2.17"
    (musl,) = unfit(elf, HostTag.parse("linux-x86_64-musl"))
    assert musl.text == "it needs glibc, this machine has musl"


def test_what_a_registry_pins_for_glibc_is_refused_with_musl():
    """Before its download: nothing is known of its file but the host of its row."""
    musl = HostTag.parse("linux-x86_64-musl")
    refused = "it is built for glibc, this machine has musl"
    assert musl.runs(HostTag.parse("linux-x86_64-glibc2.27")) == refused
    assert musl.runs(HostTag.parse("linux-x86_64-musl")) == ""


def test_not_a_plugin(tmp_path):
    elf = inspect(compile_library("int other;", tmp_path / "plain.so"))
    (found,) = unfit(elf, HOST)
    assert "does not export GetPjrtApi" in found.text


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
    last = max(
        offset + nbytes
        for kind, _, offset, _, _, nbytes, _, _ in struct.iter_unpack(
            "<IIQQQQQQ", whole[64 : 64 + 56 * whole[56]]
        )
        if kind == 1
    )
    for length in (*range(0, 200), *range(200, last, 97), last - 1):
        toy.write_bytes(whole[:length])
        with pytest.raises(PluginLoadError):
            inspect(toy)


def test_not_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.so")
    for path in (tmp_path, tmp_path / "pipe.so", Path("/dev/zero"), tmp_path / "absent.so"):
        with pytest.raises(PluginLoadError):
            inspect(path)


edits = st.lists(
    st.tuples(st.integers(0, 1 << 14), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6
)


@settings(max_examples=400)
@given(edits)
@example([(32, b"\xff" * 8)])
@example([(56, b"\xff\xff")])
def test_hostile_bytes_give_one_error(tmp_path_factory, edits):
    data = bytearray(plugin_bytes())
    for offset, value in edits:
        offset %= len(data)
        data[offset : offset + len(value)] = value
    path = tmp_path_factory.getbasetemp() / "hostile.so"
    path.write_bytes(data)
    try:
        elf = inspect(path)
    except PluginLoadError:
        return
    assert all(problem.text for problem in problems(elf, HOST, EMPTY))


@settings(max_examples=200)
@given(edits)
@example([(40, b"\xff" * 8)])
@example([(58, b"\xff" * 6)])
def test_hostile_sections_give_one_error(tmp_path_factory, edits):
    data = bytearray(plugin_bytes())
    for offset, value in edits:
        # Those of the last kilobytes are read by no loader, and by the tools that lint.
        offset = (len(data) - 1 - offset) % len(data)
        data[offset : offset + len(value)] = value
    path = tmp_path_factory.getbasetemp() / "hostile_sections.so"
    path.write_bytes(data)
    try:
        assert all(section.nbytes >= 0 for section in sections(path))
        assert all(isinstance(name, str) for name in exports(path))
    except PluginLoadError:
        return


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


def test_what_a_linter_asks_of_a_library(tmp_path):
    good = inspect(compile_library("int x;", tmp_path / "good.so"))
    assert (good.run_paths, good.executable_stack, good.text_relocations) == ((), False, False)
    flags = ("-Wl,-z,execstack,-z,notext", "-Wl,-rpath,$ORIGIN/lib:/opt/x")
    bad = inspect(compile_library('asm(".text\\n.quad x"); int x;', tmp_path / "bad.so", *flags))
    assert bad.run_paths == ("$ORIGIN/lib", "/opt/x")
    assert (bad.executable_stack, bad.text_relocations) == (True, True)


def test_names_without_end_are_refused_soon(tmp_path):
    """A file of 5 MB whose symbols would have names of terabytes."""
    path = tmp_path / "names.so"
    count, text = 100_000, 1 << 21
    begin = 64 + 3 * 64
    rows = b"".join(
        struct.pack("<IBBHQQ", at, 0x12, 0, 1, at, 0) for at in range(8, 8 + 8 * count, 8)
    )
    sections = (
        struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 1, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, begin, len(rows), 2, 0, 8, 24),
        struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, begin + len(rows), text, 0, 0, 1, 0),
    )
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQ", 3, 62, 1, 0, 0, 64)
    head += struct.pack("<IHHHHHH", 0, 64, 56, 0, 64, 3, 2)
    path.write_bytes(head + b"".join(sections) + rows + b"\0x" + b"x" * (text - 2))
    begin_s = time.process_time()
    with pytest.raises(PluginLoadError, match="its symbols have names without end"):
        exports(path)
    assert time.process_time() - begin_s < 10
