"""Reading foreign text and bytes takes linear time: ten times the size, about ten times as long."""

import mmap
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pjrt_hub import Program
from pjrt_hub.errors import PjrtHubError, UnknownError
from pjrt_hub.finding.contract import names, table
from pjrt_hub.finding.discovery.installed import Distribution, _entry_points
from pjrt_hub.finding.store.transfer import index
from pjrt_hub.finding.store.transfer.transport import Page, Refused
from pjrt_hub.frameworks.exported import assignment
from pjrt_hub.frameworks.safetensors import _tensors
from pjrt_hub.running.capi import wire
from pjrt_hub.running.program import compile_error, hlo
from pjrt_hub.running.program.entry import signature

SMALL, LARGE = 20_000, 2_000_000  # sizes in bytes
TOY = Distribution("toy", "1", Path(), Path())
#: The beginnings of a main function with attributes, and of one that refers to earlier text.
MAIN = b"func.func @main(%a: tensor<8xf32>) {mhlo.num_partitions = 8"
SPLIT = b"\nfunc.func @main(%a: tensor<2xf32> {sdy.sharding = #sdy.sharding<"
MANY = b"%%a: tensor<2xf32> {%s = #a}, "
SPLIT_BY_X = SPLIT + b"@x, [{}]>}) {"
SHARDING, BOOLEANS = b'#a = "#sdy.sharding<@m, [', b'dense<"0x0101"> : tensor<'
ENTRY = b'{"a":{"dtype":"F32","data_offsets":[0,0],'
Make = Callable[[int], bytes]


def mlir(data: bytes, format: str = "mlir") -> None:
    for count in (None, 8):
        signature(Program(data, format), count)


def proto(data: bytes) -> None:
    mlir(data, "hlo")


def page(data: bytes) -> None:
    index._files(Page("https://x/", data, "json" if data[:1] == b"{" else "html"), "https://x/")


def refused(data: bytes) -> None:
    error = UnknownError(data.decode())
    compile_error.hint(error, Program(MAIN, "mlir"))
    compile_error.find_refused_flag(error)


def header(data: bytes) -> None:
    with mmap.mmap(-1, 8 + len(data)) as mapped:
        mapped.write(struct.pack("<Q", len(data)) + data)
        list(_tensors(mapped))


def of(part: bytes, before: bytes = b"", after: bytes = b"") -> Make:
    return lambda size: before + part * (size // len(part)) + after


def nested(begin: bytes, end: bytes) -> Make:
    return lambda size: begin * (size // 24) + end * (size // 24)


def shared(alias: bytes, part: bytes, end: bytes, name: bytes) -> Make:
    """Half of the text is the definition of an alias, and the other half are its uses."""
    main = b"\nsdy.mesh @m = <[]>\nfunc.func @main(" + MANY % name * 2
    each = MANY % name
    return lambda size: (
        alias + part * (size // 2 // len(part)) + end + main + each * (size // 80) + b"%b: f32)"
    )


def aliases(size: int) -> bytes:
    """Nested dictionaries, each of which contains the next one many times."""

    def line(n: int) -> bytes:
        entries = b", ".join(b"b%d = #a%d" % (k, n - 1) for k in range(size // 150))
        return b"#a%d = {%s}\n" % (n, entries)

    lines = b"".join(map(line, range(1, 12)))
    return b"#a0 = {b = 1}\n" + lines + b"func.func @main(%a: f32 {a.b = #a11}) {"


def bytecode(size: int) -> bytes:
    """Bytecode of functions that share one long dictionary of attributes."""

    def number(value: int) -> bytes:
        return b"\0" + value.to_bytes(8, "little")

    def section(kind: int, content: bytes) -> bytes:
        return bytes([kind]) + number(len(content)) + content

    words = [b"builtin\0", b"module\0", b"func\0"]
    strings = b"\x07" + bytes(len(each) * 2 + 1 for each in reversed(words)) + b"".join(words)
    attributes = b"\x03" + number(size // 4) + b"\x03\x03" * (size // 4) + b"\x05\x05"
    offsets = b"\x05\x01\x01\x05" + number((len(attributes) - 2) << 1 | 1) + b"\x0b"
    body = b"\x03\x01" + number(size // 8 << 1) + b"\x03\x01\x01\x01" * (size // 8)
    sections = [strings, b"\x05\x01\x09\x05\x01\x03\x03\x03\x03\x05", attributes, offsets]
    sections.append(b"\x05\x01\x10\x01\x07" + section(4, body))
    return b"ML\xefR\x09x\0" + b"".join(map(section, range(5), sections))


def tuples(tag: int, *around: int) -> Make:
    """Nested messages, each of which is the only field of the one around it."""

    def make(size: int) -> bytes:
        heads, length = list[bytes](), 0
        while length < size:
            head = wire.varint(2, 13) if tag == 4 else wire.varint(hlo.SHARDING_TYPE, hlo.TUPLE)
            head += wire.length_delimited(tag, b"")[:-1] + wire._raw_varint(length)
            heads.append(head)
            length += len(head)
        whole = b"".join(reversed(heads))
        for each in around:
            whole = wire.length_delimited(each, whole)
        return whole + wire.length_delimited(hlo.MODULE_PROGRAM_SHAPE, b"")

    return make


def toml_table(size: int) -> bytes:
    return b"[a" + b".a" * (size // 4) + b"]\n" + b"b.c = {d.e = 1}\n" * (size // 32)


KINDS: dict[str, tuple[Callable[[bytes], object], Make]] = {
    "heads": (mlir, of(b"func.func private @x(")),
    "heads in attributes": (mlir, nested(b'"func.func"() <{a = [', b"]}>")),
    "names by an alias": (mlir, of(b'"func.func"() <{sym_name = #a}>\n', b'#a = "f"\n')),
    "modules": (mlir, of(b'module"(', after=MAIN)),
    "meshes without an end": (mlir, of(b"sdy.mesh @x = <", SPLIT + b"@m, [{}]>}) {")),
    "meshes by an alias": (mlir, of(b"sdy.mesh @x = #a\n", b"#a = #sdy.mesh<[]>\n", SPLIT_BY_X)),
    "a mesh's name": (mlir, of(b"a", b'xla.sdy.meshes = "', b'"' + SPLIT + b"@m, [{}]>}) {")),
    "lines": (mlir, of(b"\n", after=b"x sdy.mesh" + MAIN)),
    "strings without an end": (mlir, of(b'\\"', MAIN + b'"')),
    "a long alias of many": (mlir, shared(b"#a = [", b"1,", b"2]", b"a.b")),
    "a long dictionary of many": (mlir, shared(b"#a = {", b"b = 1,", b"c = 2}", b"a.b")),
    "aliases of aliases": (mlir, aliases),
    "a sharding of many": (mlir, shared(SHARDING, b"{},", b'{}]>"', b"sdy.sharding")),
    "an OpSharding of many": (mlir, shared(b'#a = "', b"\\18\\01", b'"', b"mhlo.sharding")),
    "axes": (mlir, of(b'"x":(1)9999999999, ', SPLIT + b"mesh<[]>, [{", b"}]>}) {")),
    "dimensions": (compile_error.rewrite_booleans, of(b"9" * 19 + b"x", BOOLEANS, b"2xi1>")),
    "a dictionary of many functions": (mlir, bytecode),
    "fields": (proto, of(b"\x10\x01")),
    "tuples of tuples": (proto, tuples(4, hlo.PROGRAM_RESULT, hlo.MODULE_PROGRAM_SHAPE)),
    "shardings of shardings": (proto, tuples(hlo.SHARDING_TUPLE, hlo.MODULE_OUTPUT_SHARDING)),
    "words of a compiler": (refused, of(b"'a.", b"Dialect `")),
    "a shape": (header, of(b"9" * 18 + b",", ENTRY + b'"shape":[', b"1]}}")),
    "tensors": (header, of(ENTRY[1:] + b'"shape":[0]},', b"{", b'"x":1}')),
    "values in brackets": (table.parse, of(b"[", b"a = ")),
    "a key of many parts": (table.parse, of(b".a", b"a", b" = 1")),
    "a table of many parts": (table.parse, toml_table),
    "entry points": (lambda data: _entry_points(data, TOY), of(b"a=b[\n", b"[jax_plugins]\n")),
    "attributes": (page, of(b"a='", b"<a ")),
    "comments of a page": (page, of(b"<!--")),
    "links": (page, of(b"<a href=x.whl>")),
    "files": (page, of(b'{"url":"x"},', b'{"files":[', b'{"url":"x"}]}')),
    "places": (lambda data: assignment._bare(data.decode()), of(b"['")),
    "a name": (lambda data: names.did_you_mean(data.decode(), ["cuda"]), of(b"cud")),
}  # fmt: skip


def seconds(read: Callable[[bytes], object], data: bytes) -> float:
    begin = time.process_time()
    with suppress(PjrtHubError, Refused, ValueError, LookupError, TypeError):
        read(data)
    return time.process_time() - begin


@pytest.mark.slow
@pytest.mark.night
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_linear(kind):
    read, make = KINDS[kind]
    before = 0.0
    for size in (SMALL, SMALL * 10, LARGE):
        took = seconds(read, make(size))
        assert size == SMALL or took < 40 * max(before, 0.02), (size, before, took)
        before = took
