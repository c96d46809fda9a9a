"""Every rule of `lint` finds its defect, and reports nothing about a correct package."""

import dataclasses
import hashlib
import json
import os
import platform
import runpy
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import images
import pytest
from images import X86_64, macho, pe, universal
from trees import compile_library, plugin_bytes
from wheels import build

from pjrt_hub import errors
from pjrt_hub.cli.__main__ import run
from pjrt_hub.finding.contract import headers
from pjrt_hub.finding.contract.option import Option
from pjrt_hub.finding.contract.shippers import shipper
from pjrt_hub.kit import authoring
from pjrt_hub.kit.authoring import package_files
from pjrt_hub.kit.authoring.identity import LibraryIdentity
from pjrt_hub.kit.authoring.linting import rules
from pjrt_hub.kit.authoring.package import Package
from pjrt_hub.kit.authoring.rules import wheel as wheel_rules
from pjrt_hub.kit.authoring.wheel import platform_tag

ROOT = Path(__file__).parents[2]
ENTRY = "int GetPjrtApi(void) { return 0; } "
LIBRARY = "quux_pjrt/quux_pjrt.so"
MANIFEST = "quux_pjrt/pjrt_plugin.toml"
INFO = "quux_pjrt-1.0.dist-info"
METADATA, TAGS, LICENCE = (f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "licenses/LICENSE"))
ENTRY_POINTS, JAX = f"{INFO}/entry_points.txt", "quux_pjrt/jax_plugin.py"

STREAMS = Option("streams", "int64")
MACHINE = platform.machine()
x86_64 = pytest.mark.skipif(MACHINE != "x86_64", reason="old symbol versions")


class Wheel:
    """A good wheel that a test can spoil: its members, its name, and its library's answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.aborts: list[str] = []
        library = self.compiled(ENTRY)
        path = folder / "quux_pjrt.so"
        sha256, binary = hashlib.sha256(library).hexdigest(), headers.inspect(path)
        told = ("0.81", ("FFI",), "quux", "", (STREAMS,))
        self.identity = LibraryIdentity(path, binary, len(library), sha256, *told)
        tag = platform_tag(self.identity.binary)
        self.name = f"quux_pjrt-1.0-py3-none-{tag}.whl"
        package = Package("quux", "quux", "1.0", "Apache-2.0", self.identity, tag)
        files = {f"quux_pjrt/{name}": text for name, text in package.files().items()}
        self.members: dict[str, bytes] = {
            **{name: text.encode() for name, text in files.items()},
            LIBRARY: library,
            METADATA: package.metadata().encode(),
            TAGS: f"Root-Is-Purelib: false\nTag: py3-none-{tag}\n".encode(),
            ENTRY_POINTS: package.registrations().encode(),
            LICENCE: b"As you like it.",
        }
        self.replace(MANIFEST, 'kind = "always"', 'kind = "files"\nfiles = ["/dev/quux0"]')

    def compiled(self, source: str, *flags: str) -> bytes:
        return compile_library(source, self.folder / "quux_pjrt.so", *flags).read_bytes()

    def compile(self, source: str, *flags: str) -> None:
        """Replace the library, and describe the new one in the manifest."""
        old = hashlib.sha256(self.members[LIBRARY]).hexdigest()
        self.members[LIBRARY] = self.compiled(ENTRY + source, *flags)
        self.replace(MANIFEST, old, hashlib.sha256(self.members[LIBRARY]).hexdigest())

    def replace(self, member: str, old: str, new: str) -> None:
        text = self.members[member].decode()
        assert old in text
        self.members[member] = text.replace(old, new).encode()

    def rename(self, tag: str) -> None:
        """Change the wheel's tag in its name and in its metadata."""
        old = "-".join(self.name.removesuffix(".whl").split("-")[2:])
        self.replace(TAGS, old, tag)
        self.name = self.name.replace(old, tag)

    def write(self) -> Path:
        path = self.folder / self.name
        path.write_bytes(build(self.members))
        return path

    def codes(self) -> list[tuple[str, str]]:
        """The rules that the wheel breaks, each with its text."""
        with package_files.open_package(self.write(), probes=False) as shipped:
            shipped.identities = {shipped.root / LIBRARY: self.identity}
            shipped.hosts = {shipped.root / LIBRARY: self.aborts}
            return [(each.code, text) for each in rules() for _, text in each.look(shipped)]


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    return Wheel(tmp_path)


def test_a_good_wheel_has_no_finding(wheel):
    assert wheel.codes() == []


def spoil(number: int, text: str, spoiled: Callable[[Wheel], object], marks=()):
    """A row of the table: the change of the wheel, the rule that must find it, and its words."""
    name = f"{number}-{text[:24]}"
    return pytest.param(number, text, spoiled, id=name, marks=marks)


def without(*members: str) -> Callable[[Wheel], None]:
    return lambda wheel: [wheel.members.pop(name) for name in members]


def says(**changed: object) -> Callable[[Wheel], None]:
    """The library answers otherwise than when its manifest was written."""

    def change(wheel: Wheel) -> None:
        wheel.identity = dataclasses.replace(wheel.identity, **changed)

    return change


def in_file(member: str, old: str, new: str) -> Callable[[Wheel], None]:
    return lambda wheel: wheel.replace(member, old, new)


def compiled(source: str, *flags: str) -> Callable[[Wheel], None]:
    return lambda wheel: wheel.compile(source, *flags)


def renamed(tag: str) -> Callable[[Wheel], None]:
    return lambda wheel: wheel.rename(tag)


def beside(other: Callable[[bytes], bytes]) -> Callable[[Wheel], None]:
    """Add a second library beside the plugin's, made from the plugin's bytes."""
    return lambda wheel: wheel.members.update({"quux_pjrt/b.so": other(wheel.members[LIBRARY])})


def ends_jax(wheel: Wheel) -> None:
    wheel.aborts = ["JAX 0.12 aborts at jit (SIGABRT): PJRT_Buffer_Delete is NULL", "X aborts at y"]


def crashes(wheel: Wheel) -> None:
    died = {"signal": "SIGSEGV", "returncode": -11, "stderr": ""}
    wheel.identity = errors.PluginCrashedError("it died of SIGSEGV", **died)


def has_no_plugin(wheel: Wheel) -> None:
    wheel.members[LIBRARY] = wheel.compiled("int other(void) { return 0; }")
    wheel.replace(MANIFEST, "sha256", "# sha256")


def has_a_changed_record(wheel: Wheel) -> None:
    path = wheel.folder / "record"
    path.write_bytes(build(wheel.members))
    with zipfile.ZipFile(path) as archive:
        record = archive.read(f"{INFO}/RECORD")
    wheel.members["quux_pjrt/__init__.py"] += b"# changed\n"
    wheel.write = lambda: written(wheel, record)  # type: ignore[method-assign]


def written(wheel: Wheel, record: bytes) -> Path:
    """The wheel with the RECORD of another build."""
    path = wheel.folder / wheel.name
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in {**wheel.members, f"{INFO}/RECORD": record}.items():
            archive.writestr(name, body)
    return path


NEEDS = "-Wl,--no-as-needed"
LABELS = "".join(f'asm("{"x" * 1000}{number}: ");' for number in range(1200))
CALL, LOAD = "initialize()", "import ctypes\nX = ctypes.CDLL('x')\n__all__"
SPOILED = [
    spoil(101, "no library exports GetPjrtApi", has_no_plugin),
    spoil(102, "it is an HTML page", beside(lambda plugin: b"<html>log in first</html>")),
    spoil(102, "is not a 64-bit", beside(lambda plugin: b"\x7fELF\x01" + plugin[5:])),
    spoil(103, "2 libraries export", beside(bytes)),
    spoil(104, "1 more are exported: other", compiled("int other(void) { return 1; }")),
    spoil(105, "'lib' is relative", compiled("", "-Wl,-rpath,lib")),
    spoil(105, "a run path is empty", compiled("", "-Wl,-rpath,$ORIGIN:")),
    spoil(105, "'/tmp/build/lib' may belong", compiled("", "-Wl,-rpath,/tmp/build/lib")),
    spoil(106, "absolute: /opt/quux/lib", compiled("", "-Wl,-rpath,/opt/quux/lib:$ORIGIN/lib")),
    spoil(107, "executable stack", compiled("", "-Wl,-z,execstack")),
    spoil(108, "DT_TEXTREL", compiled('asm(".text\\n.quad GetPjrtApi");', "-Wl,-z,notext")),
    spoil(109, "part of Intel SYCL runtime: pip", lambda wheel: needs(wheel, "libsycl.so.8")),
    spoil(110, "2 MB of debug", compiled('asm(".section .debug_str\\n.zero 2000000");')),
    spoil(111, "are symbols that nothing reads", compiled(LABELS)),
    spoil(201, "Invalid wheel filename", lambda wheel: setattr(wheel, "name", "quux.whl")),
    spoil(201, "Version is '2.0'", in_file(METADATA, "Version: 1.0", "Version: 2.0")),
    spoil(202, "the wheel's tag is any", renamed("py3-none-any")),
    spoil(202, "manylinux_2_17_s390x", renamed("py3-none-manylinux_2_17_s390x")),
    spoil(203, "the wheel's tag is manylinux1_x86_64", lambda wheel: promise(wheel), marks=x86_64),
    spoil(204, "fitting: manylinux_2", renamed(f"py3-none-linux_{MACHINE}")),
    spoil(205, "only for cp311", renamed(f"cp311-cp311-manylinux_2_17_{MACHINE}")),
    spoil(206, "its tags are py2-none", in_file(TAGS, "Tag: py3", "Tag: py2")),
    spoil(207, "Root-Is-Purelib is true", in_file(TAGS, "false", "true")),
    spoil(208, "has ", has_a_changed_record),
    spoil(209, "no License-Expression", in_file(METADATA, "License-Exp", "X-Exp")),
    spoil(209, "no text of a licence", without(LICENCE)),
    spoil(210, " kB", lambda wheel: None),
    spoil(211, "no Requires-Python", in_file(METADATA, "Requires-Python", "X-Python")),
    spoil(301, "there is no pjrt_plugin.toml", without(MANIFEST)),
    spoil(302, "priority", in_file(MANIFEST, "priority = 400", "priority = 4000")),
    spoil(303, "there is no lost.so", in_file(MANIFEST, '= "quux_pjrt.so"', '= "lost.so"')),
    spoil(304, "has the sha256", lambda wheel: swap(wheel)),
    spoil(305, "it died of SIGSEGV", crashes),
    spoil(306, "has PJRT API 0.99", says(api_version="0.99")),
    spoil(307, "has no FFI", says(extensions=())),
    spoil(308, "no option streams", says(options=())),
    spoil(308, "streams is of type bool, not int64", says(options=(Option("streams", "bool"),))),
    spoil(309, "memory (float) is not listed", says(options=(Option("memory", "float"), STREAMS))),
    spoil(310, "the library says 'other'", says(platform="other")),
    spoil(311, "'cuda' is the name of", in_file(MANIFEST, 'name = "quux"', 'name = "cuda"')),
    spoil(311, "mistaken for 'rocm'", in_file(MANIFEST, 'name = "quux"', 'name = "rocrn"')),
    spoil(312, "outbids", in_file(MANIFEST, "priority = 400", "priority = 501")),
    spoil(312, "always there", in_file(MANIFEST, 'kind = "files"\nfiles = ["/dev/quux0"]', "")),
    spoil(401, "'jax_plugins', where JAX", in_file(ENTRY_POINTS, "jax_", "x_")),
    spoil(402, "no module quux_pjrt.jax_plugin", without(JAX)),
    spoil(403, "names an object", in_file(ENTRY_POINTS, "jax_plugin\n", "jax_plugin:f\n")),
    spoil(404, "has no initialize()", in_file(JAX, "def init", "def x_init")),
    spoil(405, "has no Plugin", in_file("quux_pjrt/torch_plugin.py", "class Plugin", "class X")),
    spoil(408, "looks for 'MY'", in_file(ENTRY_POINTS, "quux = quux_pjrt.t", "my_q = quux_pjrt.t")),
    spoil(405, "names no class", in_file(ENTRY_POINTS, ":Plugin", "")),
    spoil(406, "initialize() at import", in_file(JAX, "_loaded: list[Any] = []", CALL)),
    spoil(406, "ctypes.CDLL('x') at import", in_file("quux_pjrt/__init__.py", "__all__", LOAD)),
    spoil(407, "imports jax in line", in_file(JAX, "from typing", "import jax\nfrom typing")),
    spoil(409, "JAX 0.12 aborts at jit", ends_jax),
]  # fmt: skip


def needs(wheel: Wheel, name: str) -> None:
    other = compile_library("int x;", wheel.folder / name, f"-Wl,-soname,{name}")
    wheel.compile("", NEEDS, str(other))


def promise(wheel: Wheel) -> None:
    wheel.compile(
        "void *memcpy(void *, const void *, unsigned long); "
        "static void *(*volatile g)(void *, const void *, unsigned long) = memcpy;",
        "-lc",
    )
    wheel.rename("py3-none-manylinux1_x86_64")


def swap(wheel: Wheel) -> None:
    wheel.members[LIBRARY] = wheel.compiled(ENTRY + "static int x = 1;")


@pytest.mark.parametrize(("number", "text", "spoiled"), SPOILED)
def test_a_defect_is_found(wheel, monkeypatch, number, text, spoiled):
    if number == 210:
        monkeypatch.setattr(wheel_rules, "_LARGE_NBYTES", 1000)
    spoiled(wheel)
    found = wheel.codes()
    assert {code for code, _ in found} == {f"PLG{number}"}, found
    assert any(text in words for _, words in found), found


@pytest.mark.parametrize(
    "name", ["core.so", "core.abi3.so", "core.cpython-311-x86_64-linux-gnu.so"]
)
def test_an_extension_module_binds_a_wheel_to_a_python(wheel, name):
    wheel.rename(f"cp311-cp311-manylinux_2_17_{MACHINE}")
    module = compile_library("void *PyInit_core(void) { return 0; }", wheel.folder / name)
    wheel.members[f"quux_pjrt/sub/{name}"] = module.read_bytes()
    assert "PLG205" not in {code for code, _ in wheel.codes()}


@pytest.mark.parametrize(
    ("library", "who", "how"),
    [
        ("libamdhip64.so.6", "AMD ROCm 6", "install ROCm 6 below /opt/rocm"),
        ("libamdhip64.so.7", "AMD ROCm 7", "install ROCm 7 below /opt/rocm"),
        ("libsycl.so.7", "Intel SYCL runtime", "pip install 'intel-sycl-rt==2024.*'"),
        ("libsycl.so.8", "Intel SYCL runtime", "pip install 'intel-sycl-rt==2025.*'"),
        ("libsycl.so.9", "Intel SYCL runtime", "pip install 'intel-sycl-rt==2026.*'"),
        ("libsycl.so.6", "Intel SYCL runtime", ""),
        ("libsycl.so.80", "Intel SYCL runtime", ""),
        ("libcudart.so.12", "NVIDIA CUDA runtime", "pip install 'pjrt-hub[cuda12]'"),
        ("libcudart.so.13", "NVIDIA CUDA runtime", "pip install 'pjrt-hub[cuda13]'"),
        ("libcudart.so.11.0", "NVIDIA CUDA runtime", ""),
        ("libcublasLt.so.12", "NVIDIA cuBLAS", "pip install 'pjrt-hub[cuda12]'"),
        ("libcusolver.so.11", "NVIDIA cuSOLVER", "pip install 'pjrt-hub[cuda12]'"),
        ("libcufft.so.12", "NVIDIA cuFFT", "pip install 'pjrt-hub[cuda13]'"),
        ("libcudnn.so.8", "NVIDIA cuDNN", ""),
        ("libcudnn_graph.so.9", "NVIDIA cuDNN", "pip install 'pjrt-hub[cuda]'"),
        ("libmkl_core.so.2", "Intel oneMKL", "pip install 'mkl==2025.*'"),
        ("libmkl_core.so.3", "Intel oneMKL", "pip install 'mkl==2026.*'"),
        ("libmkl_sycl_blas.so.5", "Intel oneMKL", "pip install 'pjrt-hub[oneapi]'"),
        ("libmkl_sycl_blas.so.4", "Intel oneMKL", ""),
        ("libpti_view.so.0", "Intel PTI", "pip install 'intel-pti<1'"),
        ("libumf.so.1", "Intel UMF", "pip install 'umf>=1'"),
        ("libtbb.so.2", "Intel TBB", "pip install 'tbb==2020.*'"),
        ("libtbbmalloc.so.2", "Intel TBB", "pip install tbb"),
        ("libnobody.so.1", "", ""),
    ],
)
def test_advice_is_what_packages_were_seen_to_hold(library, who, how):
    assert shipper(library) == (who, how)


def test_every_rule_says_what_must_hold_and_has_a_defect_that_it_finds():
    assert {row.values[0] for row in SPOILED} == {each.number for each in rules()}
    assert {each.severity for each in rules()} == {"error", "warning"}
    assert [each.title for each in rules() if not each.title[0].isupper()] == []


def test_the_page_is_current():
    tool = runpy.run_path(str(ROOT / "tools" / "lint_rules.py"))
    assert tool["PAGE"].read_text("utf-8") == tool["page"](), "python tools/lint_rules.py writes it"


def test_a_bare_library_and_a_folder_are_linted(wheel, tmp_path):
    """Rules about missing parts count as fulfilled."""
    folder = tmp_path / "quux_pjrt"
    folder.mkdir()
    for name, body in wheel.members.items():
        if name.startswith("quux_pjrt/"):
            (tmp_path / name).write_bytes(body)
    assert authoring.lint(folder, probes=False) == []
    assert authoring.lint(folder / "quux_pjrt.so", probes=False) == []


def test_the_command_exits_with_1_where_an_error_is(wheel, capsys):
    path = str(wheel.write())
    assert run(["lint", "--no-probe", path]) == 0
    assert capsys.readouterr().out == f"{path}: 0 errors, 0 warnings\n"
    in_file(METADATA, "Version: 1.0", "Version: 2.0")(wheel)
    assert run(["lint", "--no-probe", "--json", str(wheel.write())]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert (found["rule"], found["severity"], found["where"]) == ("PLG201", "error", "METADATA")


def test_what_is_no_wheel_is_refused(wheel):
    path = wheel.write()
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\3\4") + 6] |= 1  # the member claims to be encrypted
    data[data.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(errors.PjrtHubError, match=r"cannot be read as a wheel: .* is encrypted"):
        authoring.lint(path)
    path.write_bytes(b"no zip")
    with pytest.raises(errors.PjrtHubError, match="cannot be read as a wheel"):
        authoring.lint(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(errors.PjrtHubError, match="is neither a file nor a folder"):
        authoring.lint(path)


@pytest.mark.parametrize("junk", [b"\xff\xfe", b'"' + b"x" * 200_000, b"a,sha256=\0,x\n"])
def test_junk_in_record_is_found(wheel, junk):
    found = authoring.lint(written(wheel, junk), probes=False)
    assert {each.rule.code for each in found} == {"PLG208"}


#: The rules about libraries and wheels. Others do not matter, since these packages do not register.
ASKED = ("PLG1", "PLG202", "PLG203", "PLG205", "PLG207")


def linted(folder: Path, tag: str, members: dict[str, bytes]) -> list[tuple[str, str]]:
    """The rules in ASKED that a wheel breaks, each with its text."""
    path = folder / f"toy_pjrt-1.0-{tag}.whl"
    files = {f"toy_pjrt/{name}": body for name, body in members.items()}
    wheel = f"Root-Is-Purelib: false\nTag: {tag}\n"
    path.write_bytes(build({**files, "toy_pjrt-1.0.dist-info/WHEEL": wheel.encode()}))
    return [
        (each.rule.code, f"{each.where}: {each.text}")
        for each in authoring.lint(path)
        if each.rule.code.startswith(ASKED)
    ]


def needing(*names: str) -> bytes:
    return macho(libraries=[(images.LOAD, name) for name in names])


ARM, X86 = "py3-none-macosx_11_0_arm64", "py3-none-macosx_10_13_x86_64"
WINDOWS = "py3-none-win_amd64"
INTEL = {"machine": X86_64, "systems": (), "version_min": 0x000A0D00}
BOTH = universal(macho(**INTEL), macho())


def macos(version: int) -> bytes:
    return macho(systems=((images.MACOS, version),))


@pytest.mark.parametrize(
    ("tag", "members"),
    [
        (ARM, {"toy.dylib": macho()}),
        (ARM, {"toy.so": macho(kind=images.BUNDLE)}),
        (X86, {"toy.dylib": macho(**INTEL)}),
        ("py3-none-macosx_10_13_intel", {"toy.dylib": macho(**INTEL)}),
        ("py3-none-macosx_10_13_universal2", {"toy.dylib": BOTH}),
        (ARM, {"both.dylib": BOTH}),
        (f"{X86}.macosx_11_0_arm64", {"toy.dylib": BOTH}),
        ("py3-none-macosx_14_0_arm64", {"toy": macos(0x000E0300)}),
        (WINDOWS, {"toy.dll": pe()}),
        ("py3-none-win_arm64", {"toy.dll": pe(machine=images.ARM64_PE)}),
        ("cp312-cp312-win_amd64", {"toy.dll": pe(), "core.pyd": pe(("PyInit_core",))}),
        ("cp312-cp312-macosx_11_0_arm64", {"a.dylib": macho(), "b.so": macho(("_PyInit_b",))}),
    ],
)
def test_a_good_wheel_of_another_system_has_no_finding(tmp_path, tag, members):
    assert linted(tmp_path, tag, members) == []


WITHOUT_PLUGIN = universal(macho(), macho((), machine=X86_64))
NOT_FOUND = ("@rpath/libb.dylib", "/opt/homebrew/lib/libomp.dylib")
RUNTIME = "part of the Microsoft Visual C++ runtime"


@pytest.mark.parametrize(
    ("number", "text", "tag", "members"),
    [
        (101, "no library exports GetPjrtApi; found: toy_pjrt/toy.dylib", ARM,
         {"toy.dylib": macho(("_Other",))}),
        (101, "toy_pjrt/toy.dylib: its part for x86_64 does not export GetPjrtApi",
         "py3-none-macosx_11_0_universal2", {"toy.dylib": WITHOUT_PLUGIN}),
        (102, "toy_pjrt/old.dll: it is not a 64-bit little-endian library", WINDOWS,
         {"toy.dll": pe(), "old.dll": pe((), machine=0x14C, wide=False)}),
        (102, "toy_pjrt/page.dll: it is not a shared library: it is an HTML page", WINDOWS,
         {"toy.dll": pe(), "page.dll": b"<html>"}),
        (103, "2 libraries export GetPjrtApi: toy_pjrt/a.dylib, toy_pjrt/b.dylib", ARM,
         {"a.dylib": BOTH, "b.dylib": macho()}),
        (104, "1 more are exported: x", ARM, {"a.dylib": macho(("_GetPjrtApi", "_x"))}),
        (105, "the run path 'lib' is relative", ARM, {"a.dylib": macho(run_paths=("lib",))}),
        (105, "'/Users/me/lib' may belong to anybody", ARM,
         {"a.dylib": macho(run_paths=("/Users/me/lib",))}),
        (105, "'bazel-out/bin/libb.dylib' is needed, which is relative", ARM,
         {"a.dylib": needing("bazel-out/bin/libb.dylib")}),
        (106, "absolute: /opt/homebrew/lib", ARM,
         {"a.dylib": macho(run_paths=("/opt/homebrew/lib",))}),
        (109, f"toy_pjrt/a.dylib: needed and not found: {', '.join(NOT_FOUND)}", ARM,
         {"a.dylib": needing(*NOT_FOUND, "@loader_path/b.dylib"), "b.dylib": macho(())}),
        (109, f"toy_pjrt/a.dll: needed and not found: msvcp140.dll; {RUNTIME}", WINDOWS,
         {"a.dll": pe(needed=("MSVCP140.dll", "B.dll", "ADVAPI32.dll")), "b.dll": pe(())}),
        (111, "1.12 MB of 1.12 MB are symbols that nothing reads", ARM,
         {"a.dylib": macho(locals_count=70_000)}),
        (111, "1.26 MB of 1.26 MB are symbols that nothing reads", WINDOWS,
         {"a.dll": pe(symbols=70_000)}),
        (202, "built for macos-aarch64, the wheel's tag is macosx_11_0_universal2",
         "py3-none-macosx_11_0_universal2", {"toy.dylib": macho()}),
        (202, "built for macos-x86_64, the wheel's tag is manylinux_2_28_x86_64",
         "py3-none-manylinux_2_28_x86_64", {"toy.so": macho(**INTEL)}),
        (202, "built for windows-x86_64, the wheel's tag is any", "py3-none-any",
         {"toy.dll": pe()}),
        (203, "needs macosx_14_0_arm64, the wheel's tag is macosx_11_0_arm64", ARM,
         {"toy.dylib": macos(0x000E0000)}),
        (203, "needs macosx_10_13_x86_64, the wheel's tag is macosx_10_9_universal2",
         "py3-none-macosx_10_9_universal2", {"toy.dylib": BOTH}),
        (205, "only for cp312, and has no extension module", "cp312-cp312-macosx_11_0_arm64",
         {"toy.dylib": macho()}),
    ],
)  # fmt: skip
def test_a_defect_of_another_system_is_found(tmp_path, number, text, tag, members):
    [(code, told)] = linted(tmp_path, tag, members)
    assert code == f"PLG{number}"
    assert text in told


@pytest.mark.parametrize(("data", "system"), [(macho(), "macOS"), (pe(), "Windows")])
def test_only_libraries_of_other_systems_need_lief(tmp_path, monkeypatch, data, system):
    monkeypatch.setitem(sys.modules, "lief", None)
    assert linted(tmp_path, "py3-none-linux_x86_64", {"toy.so": plugin_bytes()}) == []
    told = f"toy.so is a library for {system}, and lief, which reads those, is not here"
    with pytest.raises(errors.PjrtHubError, match=told) as caught:
        linted(tmp_path, "py3-none-linux_x86_64", {"toy.so": data})
    assert caught.value.hint == "pip install 'pjrt-hub[kit]'"
