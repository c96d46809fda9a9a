"""The fuzzed parsers, each with seeds of its inputs, past findings, and a check of one input.

Any bytes give the result that a class describes, or raise one of our errors.
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from unittest.mock import patch

import wheels
import xspaces
from packaging.version import Version
from trees import compile_library, plugin_bytes

import pjrt_plugins
from pjrt_hub import Program, errors
from pjrt_hub.base.host import HostTag
from pjrt_hub.finding.contract import headers, manifest, plain
from pjrt_hub.finding.store import pins
from pjrt_hub.finding.store.archive.archive import measure, unpack
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact, Catalog, read_rows, shipped_registry
from pjrt_hub.finding.store.transfer import bundle, index
from pjrt_hub.finding.store.transfer.transport import Page, Refused
from pjrt_hub.frameworks.exported import description, jax_blob, stablehlo_folder
from pjrt_hub.frameworks.exported.contents import Contents
from pjrt_hub.frameworks.exported.function import Weight
from pjrt_hub.kit.tracing import devices, xspace
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.program import bytecode_constants, hlo
from pjrt_hub.running.program.bytecode import MAGIC
from pjrt_hub.running.program.entry import signature
from pjrt_hub.running.program.signature import UNTOLD_LAYOUT, Slot

TESTS = Path(__file__).parents[1]
ARTIFACTS = TESTS / "exported" / "artifacts"


@cache
def folder() -> Path:
    """A private folder of this process, in memory if the system has a folder for that."""
    memory = "/dev/shm"
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory if os.path.isdir(memory) else None))


def written(data: bytes, name: str) -> Path:
    """The path of a file with that name and these bytes; the next call replaces it."""
    path = folder() / name
    path.write_bytes(data)
    return path


def emptied(name: str) -> Path:
    """The path of an empty folder with that name."""
    path = folder() / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


class Parser:
    """A parser with valid example inputs, `seeds()`, and a check of one input, `one(data)`."""

    #: Inputs that a parser once read wrongly.
    findings: tuple[bytes, ...] = ()


class Bundle(Parser):
    """A bundle is imported where none of its rows is known."""

    findings = (b"archives/x.whl".ljust(124, b"\0").ljust(512, b"9"),)

    def seeds(self) -> Iterator[bytes]:
        """The empty bundle, and one with an archive for which a registry row was changed."""
        archive = b"PK\5\6" + bytes(18)
        row, *_ = Catalog([shipped_registry()]).rows()
        row = row._replace(size=len(archive), sha256=hashlib.sha256(archive).hexdigest())

        @contextmanager
        def bring(row: Artifact, place: Path) -> Iterator[Path]:
            (place / "archive").write_bytes(archive)
            yield place / "archive"

        for archives in ((), (row,)):
            path = folder() / "seed.bundle"
            bundle.write(path, archives, bring)
            yield path.read_bytes()

    def one(self, data: bytes) -> None:
        with suppress(errors.PjrtHubError):
            bundle.read(written(data, "plugins.bundle"), (), Cache(folder() / "cache"))


class Elf(Parser):
    """A Linux library gives a Binary, names and sections."""

    def seeds(self) -> Iterator[bytes]:
        """A small plugin with each kind of hash table, and files that may come in its place."""
        yield plugin_bytes()
        source = "int GetPjrtApi(void) { return 0; }"
        flags = "-Wl,--hash-style=sysv", "-Wl,-soname,toy.so", "-Wl,-rpath,$ORIGIN/../lib:/opt"
        path = compile_library(source, written(b"", "seed.so"), *flags)
        yield path.read_bytes()
        yield path.read_bytes()[:800]
        yield b"<!DOCTYPE html>"

    def one(self, data: bytes) -> None:
        path = written(data, "toy.so")
        with suppress(errors.PluginLoadError):
            found = headers.inspect(path)
            assert found.bits in (0, 32, 64)
            assert all(isinstance(number, int) for number in found.glibc)
            assert all(isinstance(name, str) for name in headers.exports(path))
            assert all(section.nbytes >= 0 for section in headers.sections(path))


class Entry(Parser):
    """A program gives its signature, or None."""

    #: Programs with forms and annotations that the programs of other tests lack.
    TEXTS = (
        '#map = "x"\n!t = tuple<tensor<2x?xf32, #stablehlo.bounds<?, 4>>, !stablehlo.token>\n'
        "module @a attributes {mhlo.num_partitions = 8 : i32, mhlo.frontend_attributes = "
        '{xla.sdy.meshes = "{mesh = #sdy.mesh<[\\22x\\22=8]>}"}} {\n  // func.func @main(\n'
        "  func.func @main(%a: !t {jax.buffer_donor = true}, %b: tensor<8xi4> "
        "{mhlo.frontend_attributes"
        ' = {xla.sdy.sharding = "#sdy.sharding<@mesh, [{\\22x\\22:(1)2}p1]>"}} loc("b"("c":1:2))) '
        '-> (tensor<i1> {mhlo.layout_mode = "{}", mhlo.sharding = "\\08\\03\\1A\\01\\08"}) {',
        '"builtin.module"() <{sym_name = "m"}> ({\n  "func.func"() <{arg_attrs = [{a.b = #map}], '
        "function_type = (tensor<3xcomplex<f32>>) -> (), res_attrs = [], sym_name = "
        '"main", sym_visibility = "public"}> ({\n  }) : () -> ()\n}) : () -> ()\n',
    )

    def seeds(self) -> Iterator[bytes]:
        """Programs as text, as bytecode of several versions, and as a proto."""
        for path in (*TESTS.glob("programs/*.mlir"), *TESTS.glob("cpu/data/*.mlirbc")):
            yield path.read_bytes()
        yield from (text.encode() for text in self.TEXTS)
        shape = Slot.of("float32", (2, 3), (0, 1), (1,)).serialize()
        yield hlo.module("m", [hlo.Instruction("a", "parameter", shape)], donated=(0,))

    def one(self, data: bytes) -> None:
        """Read one input as every format, for one device and for eight."""
        for form in ("mlir", "hlo"):
            for num_partitions in (None, 8):
                told = signature(Program(data, form), num_partitions)
                if told is None:
                    continue
                for slot in told.parameters + told.outputs:
                    assert dtypes.of_code(slot.code)
                    assert slot.shape is None or all(size >= 0 for size in slot.shape)
                    if slot.layout not in (None, UNTOLD_LAYOUT) and slot.shape is not None:
                        assert len(slot.layout) == len(slot.shape)
                assert all(0 <= number < len(told.parameters) for number in told.donated)


class Exported(Parser):
    """A function serialized by jax.export can be described."""

    def seeds(self) -> Iterator[bytes]:
        """Exported functions of every kind in the old and the new format."""
        for path in sorted(ARTIFACTS.glob("*.jaxexport")):
            yield path.read_bytes()

    def one(self, data: bytes) -> None:
        try:
            with patch.multiple(bytecode_constants, MIN_NBYTES=1, MIN_CONSTANT_NBYTES=1):
                function = jax_blob.read(Contents(data), "some file")
        except (errors.FileFormatError, errors.NotRunnableError):
            return
        described = description.describe(function)
        assert len(described["inputs"]) == len(function.inputs) == function.in_tree.count
        leaves = list(range(len(function.outputs)))
        again: list[object] = []
        function.out_tree.flatten(function.out_tree.maker({})(iter(leaves)), again)
        assert again == leaves


class Registry(Parser):
    """A file of registry rows gives rows, which can be written again."""

    HERE = HostTag("linux", "x86_64", "glibc", (2, 36))

    @property
    def findings(self) -> tuple[bytes, ...]:
        """Two rows with an incomparable version, and arrays too deeply nested for the stack."""
        odd = next(self.seeds()).replace(b'\nversion = "', b'\nversion = ".')
        return odd + odd, b"a = " + b"[" * 5000

    def seeds(self) -> Iterator[bytes]:
        """Rows of pjrt-hub's own registry, one in each file."""
        for path in sorted(shipped_registry().glob("*.toml")):
            rows = path.read_text("utf-8").split("[[artifact]]")
            yield f"[[artifact]]{rows[1]}".encode()
            yield f"[[artifact]]{rows[1]}[[artifact]]{rows[-1]}".encode()

    def one(self, data: bytes) -> None:
        catalog = Catalog([written(data, "rows.toml").parent])
        with suppress(errors.ManifestError):
            for row in catalog.rows():
                assert Artifact.from_row(row.as_row(), "again") == row
                assert row.runs(self.HERE) is not None
            assert max((Version(row.version) for row in catalog.rows()), default=True)


class Lock(Parser):
    """A pylock.pjrt.toml gives pins, which can be written again."""

    #: TOML files whose tables are not those of a lock file.
    findings = (b"[tool]\npjrt-hub = 'abc'\n", b"packages = [1]\ntool = 1\n")

    def seeds(self) -> Iterator[bytes]:
        """Lock files of pjrt-hub's own rows, for installers and without addresses."""
        for data in Registry().seeds():
            path = written(data, "rows.toml")
            file = pins.Pins(path, ("cuda",), ("linux-x86_64",), read_rows(path))
            yield file.text().encode()
            archives = [each for row in file.rows for each in row.archives]
            addresses = {each.sha256: f"https://host/{each.file_name}" for each in archives}
            yield file._replace(addresses=addresses).text().encode()

    def one(self, data: bytes) -> None:
        try:
            file = pins.read(written(data, pins.FILE_NAME))
        except errors.PjrtHubError:
            return
        assert pins.read(written(file.text().encode(), pins.FILE_NAME)).rows is not None


class Manifest(Parser):
    """A pjrt_plugin.toml gives manifests."""

    def seeds(self) -> Iterator[bytes]:
        """The manifests that come with pjrt-hub."""
        for place in pjrt_plugins.__path__:
            for path in sorted(Path(place).glob("*/pjrt_plugin.toml")):
                yield path.read_bytes()

    def one(self, data: bytes) -> None:
        with suppress(errors.ManifestError):
            manifest.read(written(data, manifest.FILE_NAME))


class StandaloneManifest(Parser):
    """A manifest outside a package gives a plugin, and is TOML of that content."""

    def seeds(self) -> Iterator[bytes]:
        """Manifests with every key; those in packages have values over several lines."""
        yield (
            b'schema = 1\nname = "toy"\nplatform = "toy" # what it drives\naliases = ["a", "b"]\n'
            b"[[library]]\npath = '/a.so'\ntarget = 'linux-x86_64-glibc2.28'\n"
            b'[[preload]]\nlibraries = ["b.so"]\n[environment]\nA = { value = "\\u0041" }\n'
        )
        yield (
            b"schema = 1\nname = 'toy'\nplatform = 'toy'\n[[library]]\npath = 'a.so'\n"
            b"[options.a]\ntype = 'float'\ndefault = -1.5e3\n[api]\nminimum = '0.57'\n"
            b"[probe]\nkind = 'pci'\nvendor = '0x1ae0'\ndriver = { file = '/v', minimum = 5 }\n"
        )

    def one(self, data: bytes) -> None:
        with suppress(errors.ManifestError):
            manifest.read_standalone(written(data, "toy.toml"))
        try:
            found = plain.parse(data)
        except ValueError:
            return
        assert repr(found) == repr(tomllib.loads(data.decode()))


class IndexPage(Parser):
    """A page of an index, in HTML or JSON, gives files."""

    BASE = "https://user:secret@index.invalid/simple"
    NAME = "toy_plugin-1.0-py3-none-any.whl"
    findings = (b"<![\0~",)  # the standard library's parser raises AssertionError

    def seeds(self) -> Iterator[bytes]:
        """Pages in the form that package indexes write."""
        name = self.NAME
        yield (
            f'<!DOCTYPE html><html><head><base href="/files/"></head><body>'
            f'<a href="{name}#sha256={"0" * 64}" data-requires-python="&gt;=3.11" '
            f'data-yanked="broken" data-provenance="https://index.invalid/p">{name}</a></body></html>'
        ).encode()
        odd = '<a href="https://[::1/x.whl">x</a><a>none</a>'
        yield f'{odd}<a href="../%2e%2e/y-1-py3-none-any.whl">'.encode()
        file = {"filename": name, "url": f"../files/{name}", "hashes": {"sha256": "0" * 64}}
        file |= {"requires-python": ">=3.11", "size": 5, "yanked": "broken", "provenance": None}
        yield json.dumps({"meta": {"api-version": "1.3"}, "name": "toy", "files": [file]}).encode()
        yield json.dumps({"files": [{**file, "url": "https://other.invalid/x.whl"}]}).encode()

    def one(self, data: bytes) -> None:
        """Read one input, as JSON if it begins like JSON."""
        kind = "json" if data.lstrip()[:1] in (b"{", b"[") else "html"
        page = Page(f"{self.BASE}/toy-plugin/", data, f"text/{kind}")
        with suppress(Refused):
            for file in index._files(page, self.BASE):
                assert isinstance(file.package + file.version, str)
                assert "secret" not in repr(file)


class StablehloFolder(Parser):
    """The description in a folder of torch_xla gives a function."""

    def seeds(self) -> Iterator[bytes]:
        """The description that other tests use, and the shortest valid JSON."""
        yield (ARTIFACTS / "torch_xla" / "functions" / "forward.meta").read_bytes()
        yield b"{}"

    def one(self, data: bytes) -> None:
        place = emptied("model")
        (place / "functions").mkdir()
        (place / "functions" / "forward.meta").write_bytes(data)
        (place / "functions" / "forward.bytecode").write_bytes(MAGIC)
        try:
            function = stablehlo_folder.read(place)
        except errors.FileFormatError:
            return
        description.describe(function)
        weights = [each for each in function.arguments if isinstance(each, Weight)]
        assert all(each.path.parent.parent == place for each in weights)


class Tar(Parser):
    """A tar.gz is refused, or means the same to the standard library.

    The input is packed first unless it is a gzip file, since no fuzzer guesses a CRC.
    """

    MEMBERS = {"a/lib.so": b"library" * 90, "./a/b/c.so": b"c", "long/" * 30 + "d.so": b"d"}

    @property
    def findings(self) -> tuple[bytes, ...]:
        """A mode and a device that are not numbers, where the standard library stops."""
        seed, mark = next(self.seeds()), b"ustar\x0000"
        mode = seed.replace(b"0000644\0", b"0000x44\0")
        return mode, seed.replace(mark + bytes(64 + 8), mark + bytes(64) + b"library")

    def seeds(self) -> Iterator[bytes]:
        """The same members in every form of tar."""
        for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            out = BytesIO()
            with tarfile.open(fileobj=out, mode="w", format=form) as archive:
                place = tarfile.TarInfo("a")
                place.type = tarfile.DIRTYPE
                archive.addfile(place)
                for name, body in self.MEMBERS.items():
                    info = tarfile.TarInfo(name)
                    info.size = len(body)
                    archive.addfile(info, BytesIO(body))
            yield out.getvalue()
            yield out.getvalue().rstrip(b"\0") + bytes(2048)
        yield gzip.compress(out.getvalue())

    @staticmethod
    def checked(data: bytes) -> bytes:
        """The data with correct checksums in all blocks that look like headers."""
        blocks = bytearray(data)
        for at in range(0, len(blocks) - 511, 512):
            if blocks[at + 257 : at + 262] == b"ustar":
                blocks[at + 148 : at + 156] = b" " * 8
                blocks[at + 148 : at + 156] = b"%06o\0 " % sum(blocks[at : at + 512])
        return bytes(blocks)

    def one(self, data: bytes) -> None:
        packed = data if data[:2] == b"\x1f\x8b" else gzip.compress(self.checked(data), 1)
        path = written(packed, "toy.tar.gz")
        try:
            members = measure(path, lambda path: True)
        except errors.ArchiveError:
            return
        ours = [(member.path, member.size) for member in members]
        with tarfile.open(path) as archive:
            theirs = [(info.name, info.size) for info in archive.getmembers() if info.isfile()]
        assert ours == [(name.removeprefix("./"), size) for name, size in theirs]
        unpack(path, members, emptied("out"))


class XSpace(Parser):
    """A profile gives arrays of times, from which a report can be made."""

    def seeds(self) -> Iterator[bytes]:
        """Devices and hosts, with few events of a line and with many."""
        yield xspaces.GPU + xspaces.HOST + xspaces.ENVIRONMENT
        yield xspaces.plane("/device:TPU:0", [xspaces.line("XLA Ops", 1, [xspaces.KERNELS] * 9)])

    def one(self, data: bytes) -> None:
        try:
            profile = xspace.read(data)
        except errors.FileFormatError:
            return
        for device in devices.devices(0, profile):
            assert 0 <= device.busy <= device.span
            assert all(each.runs > 0 and each.total >= 0 for each in device.operations)


class Zip(Parser):
    """A zip, also as a wheel, is refused, or means the same to the standard library."""

    EMPTY = b"PK\5\6" + bytes(18)
    MEMBERS = {"a/lib.so": b"library" * 9, "a/b/c.so": b"c", "a-1.dist-info/METADATA": b"Name: a\n"}
    #: A zip whose central directory is empty, and one that needs a newer reader.
    findings = (EMPTY, wheels.build(MEMBERS).replace(b"PK\1\2\x14\3\x14", b"PK\1\2\x14\3\x95"))

    def seeds(self) -> Iterator[bytes]:
        """The same members in every form that zip writers produce."""
        yield wheels.build(self.MEMBERS)
        yield wheels.build(self.MEMBERS, stored=True)
        out = BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.comment = b"comment"
            archive.mkdir("a")
            for name, body in self.MEMBERS.items():
                with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as file:
                    file.write(body)
        yield out.getvalue()
        at = out.getvalue().rindex(b"PK\5\6")
        yield out.getvalue()[:at] + b"PK\6\6" + bytes(52) + b"PK\6\7" + bytes(16) + self.EMPTY

    def one(self, data: bytes) -> None:
        path = written(data, "toy.zip")
        try:
            members = measure(path, lambda path: True)
        except errors.ArchiveError:
            return
        with zipfile.ZipFile(path) as archive:
            theirs = [(info.filename, len(archive.read(info))) for info in archive.infolist()]
        ours = [(member.path, member.size) for member in members]
        assert sorted(ours) == sorted(each for each in theirs if each[0][-1] != "/")
        unpack(path, members, emptied("out"), name="toy.whl")


def name_of(parser: type[Parser]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", parser.__name__).lower()


PARSERS: dict[str, Parser] = {name_of(each): each() for each in Parser.__subclasses__()}
