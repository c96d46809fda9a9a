"""Every rule of `lint` finds the defect that it is for, and nothing in what is as it should be."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import runpy
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from trees import compile_library
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

x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="old symbol versions")


class Wheel:
    """A good wheel, to be spoiled: its members, its name, and what its library would say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.aborts: list[str] = []
        library = self.compiled(ENTRY)
        path = folder / "quux_pjrt.so"
        self.identity = LibraryIdentity(
            path,
            headers.inspect(path),
            len(library),
            hashlib.sha256(library).hexdigest(),
            "0.81",
            ("FFI",),
            "quux",
            options=(Option("streams", "int64"),),
        )
        tag = platform_tag(self.identity.binary)
        self.name = f"quux_pjrt-1.0-py3-none-{tag}.whl"
        package = Package("quux", "quux", "1.0", "Apache-2.0", self.identity, tag)
        files = {f"quux_pjrt/{name}": text for name, text in package.files().items()}
        self.members: dict[str, bytes] = {
            **{name: text.encode() for name, text in files.items()},
            LIBRARY: library,
            f"{INFO}/METADATA": package.metadata().encode(),
            f"{INFO}/WHEEL": f"Root-Is-Purelib: false\nTag: py3-none-{tag}\n".encode(),
            f"{INFO}/entry_points.txt": package.registrations().encode(),
            f"{INFO}/licenses/LICENSE": b"As you like it.",
        }
        self.replace(MANIFEST, 'kind = "always"', 'kind = "files"\nfiles = ["/dev/quux0"]')

    def compiled(self, source: str, *flags: str) -> bytes:
        return compile_library(source, self.folder / "quux_pjrt.so", *flags).read_bytes()

    def compile(self, source: str, *flags: str) -> None:
        """Another library, which the manifest knows."""
        old = hashlib.sha256(self.members[LIBRARY]).hexdigest()
        self.members[LIBRARY] = self.compiled(ENTRY + source, *flags)
        self.replace(MANIFEST, old, hashlib.sha256(self.members[LIBRARY]).hexdigest())

    def replace(self, member: str, old: str, new: str) -> None:
        text = self.members[member].decode()
        assert old in text
        self.members[member] = text.replace(old, new).encode()

    def rename(self, tag: str) -> None:
        """Retags it, inside and outside."""
        old = "-".join(self.name.removesuffix(".whl").split("-")[2:])
        self.replace(f"{INFO}/WHEEL", old, tag)
        self.name = self.name.replace(old, tag)

    def write(self) -> Path:
        path = self.folder / self.name
        path.write_bytes(build(self.members))
        return path

    def codes(self) -> list[tuple[str, str]]:
        """The rules that do not hold, each with its text."""
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
    """A row of the table: what is spoiled, the rule that must find it, its words."""
    name = f"{number}-{text[:24]}"
    return pytest.param(number, text, spoiled, id=name, marks=marks)


def without(*members: str) -> Callable[[Wheel], None]:
    return lambda wheel: [wheel.members.pop(name) for name in members]


def says(**changed: object) -> Callable[[Wheel], None]:
    """The library says something else than when its manifest was written."""

    def change(wheel: Wheel) -> None:
        wheel.identity = dataclasses.replace(wheel.identity, **changed)

    return change


def in_manifest(old: str, new: str) -> Callable[[Wheel], None]:
    return lambda wheel: wheel.replace(MANIFEST, old, new)


def in_file(member: str, old: str, new: str) -> Callable[[Wheel], None]:
    return lambda wheel: wheel.replace(member, old, new)


def compiled(source: str, *flags: str) -> Callable[[Wheel], None]:
    return lambda wheel: wheel.compile(source, *flags)


def ends_jax(wheel: Wheel) -> None:
    wheel.aborts = ["JAX 0.12 aborts at jit (SIGABRT): PJRT_Buffer_Delete is NULL", "X aborts at y"]


def crashes(wheel: Wheel) -> None:
    wheel.identity = errors.PluginCrashedError(
        "it died of SIGSEGV", signal="SIGSEGV", returncode=-11, stderr=""
    )


def has_no_plugin(wheel: Wheel) -> None:
    wheel.members[LIBRARY] = wheel.compiled("int other(void) { return 0; }")
    wheel.replace(MANIFEST, "sha256", "# sha256")


def is_a_page(wheel: Wheel) -> None:
    wheel.members["quux_pjrt/other.so"] = b"<html>log in first</html>"


def is_of_32_bits(wheel: Wheel) -> None:
    wheel.members["quux_pjrt/other.so"] = b"\x7fELF\x01" + wheel.members[LIBRARY][5:]


def has_another(wheel: Wheel) -> None:
    wheel.members["quux_pjrt/other.so"] = wheel.members[LIBRARY]


def has_a_changed_record(wheel: Wheel) -> None:
    path = wheel.folder / "record"
    path.write_bytes(build(wheel.members))
    with zipfile.ZipFile(path) as archive:
        record = archive.read(f"{INFO}/RECORD")
    wheel.members["quux_pjrt/__init__.py"] += b"# changed\n"
    wheel.write = lambda: written(wheel, record)  # type: ignore[method-assign]


def written(wheel: Wheel, record: bytes) -> Path:
    """The wheel with a RECORD of another build."""
    path = wheel.folder / wheel.name
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in {**wheel.members, f"{INFO}/RECORD": record}.items():
            archive.writestr(name, body)
    return path


NEEDS = "-Wl,--no-as-needed"
LABELS = "".join(f'asm("{"x" * 1000}{number}: ");' for number in range(1200))
SPOILED = [
    spoil(101, "no library exports GetPjrtApi", has_no_plugin),
    spoil(102, "it is an HTML page" , is_a_page),
    spoil(102, "is not a 64-bit", is_of_32_bits),
    spoil(103, "2 libraries export", has_another),
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
    spoil(201, "Version is '2.0'", in_file(f"{INFO}/METADATA", "Version: 1.0", "Version: 2.0")),
    spoil(202, "the wheel's tag is any", lambda wheel: wheel.rename("py3-none-any")),
    spoil(
        202, "manylinux_2_17_s390x", lambda wheel: wheel.rename("py3-none-manylinux_2_17_s390x")
    ),
    spoil(203, "the wheel's tag is manylinux1_x86_64", lambda wheel: promise(wheel), marks=x86_64),
    spoil(
        204, "fitting: manylinux_2", lambda wheel: wheel.rename(f"py3-none-linux_{elf_machine()}")
    ),
    spoil(
        205, "only for cp311",
        lambda wheel: wheel.rename(f"cp311-cp311-manylinux_2_17_{elf_machine()}"),
    ),
    spoil(206, "its tags are py2-none", in_file(f"{INFO}/WHEEL", "Tag: py3", "Tag: py2")),
    spoil(207, "Root-Is-Purelib is true", in_file(f"{INFO}/WHEEL", "false", "true")),
    spoil(208, "has ", has_a_changed_record),
    spoil(209, "no License-Expression", in_file(f"{INFO}/METADATA", "License-Exp", "X-Exp")),
    spoil(209, "no text of a licence", without(f"{INFO}/licenses/LICENSE")),
    spoil(210, " kB", lambda wheel: None),
    spoil(211, "no Requires-Python", in_file(f"{INFO}/METADATA", "Requires-Python", "X-Python")),
    spoil(301, "there is no pjrt_plugin.toml", without(MANIFEST)),
    spoil(302, "priority", in_manifest("priority = 400", "priority = 4000")),
    spoil(303, "there is no lost.so", in_manifest('path = "quux_pjrt.so"', 'path = "lost.so"')),
    spoil(304, "has the sha256", lambda wheel: swap(wheel)),
    spoil(305, "it died of SIGSEGV", crashes),
    spoil(306, "has PJRT API 0.99", says(api_version="0.99")),
    spoil(307, "has no FFI", says(extensions=())),
    spoil(308, "no option streams", says(options=())),
    spoil(308, "streams is of type bool, not int64", says(options=(Option("streams", "bool"),))),
    spoil(
        309, "memory (float) is not listed",
        says(options=(Option("memory", "float"), Option("streams", "int64"))),
    ),
    spoil(310, "the library says 'other'", says(platform="other")),
    spoil(311, "'cuda' is the name of", in_manifest('name = "quux"', 'name = "cuda"')),
    spoil(311, "mistaken for 'rocm'", in_manifest('name = "quux"', 'name = "rocrn"')),
    spoil(312, "outbids", in_manifest("priority = 400", "priority = 501")),
    spoil(312, "always there", in_manifest('kind = "files"\nfiles = ["/dev/quux0"]', "")),
    spoil(401, "'jax_plugins', where JAX", in_file(f"{INFO}/entry_points.txt", "jax_", "x_")),
    spoil(402, "no module quux_pjrt.jax_plugin", without("quux_pjrt/jax_plugin.py")),
    spoil(
        403,
        "names an object",
        in_file(f"{INFO}/entry_points.txt", "jax_plugin\n", "jax_plugin:f\n"),
    ),
    spoil(404, "has no initialize()", in_file("quux_pjrt/jax_plugin.py", "def init", "def x_init")),
    spoil(405, "has no Plugin", in_file("quux_pjrt/torch_plugin.py", "class Plugin", "class X")),
    spoil(
        408,
        "looks for 'MY'",
        in_file(f"{INFO}/entry_points.txt", "quux = quux_pjrt.t", "my_quux = quux_pjrt.t"),
    ),
    spoil(405, "names no class", in_file(f"{INFO}/entry_points.txt", ":Plugin", "")),
    spoil(
        406, "initialize() at import",
        in_file("quux_pjrt/jax_plugin.py", "_loaded: list[Any] = []", "initialize()"),
    ),
    spoil(
        406, "ctypes.CDLL('x') at import",
        in_file("quux_pjrt/__init__.py", "__all__", "import ctypes\nX = ctypes.CDLL('x')\n__all__"),
    ),
    spoil(
        407, "imports jax in line",
        in_file("quux_pjrt/jax_plugin.py", "from typing", "import jax\nfrom typing"),
    ),
    spoil(409, "JAX 0.12 aborts at jit", ends_jax),
]  # fmt: skip


def elf_machine() -> str:
    return platform.machine()


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
    wheel.rename(f"cp311-cp311-manylinux_2_17_{elf_machine()}")
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


def test_every_rule_has_a_defect_that_it_finds():
    assert {row.values[0] for row in SPOILED} == {each.number for each in rules()}


def test_rules_say_what_must_hold_and_why():
    for each in rules():
        assert each.severity in ("error", "warning")
        assert each.title[0].isupper()


def test_the_page_is_current():
    tool = runpy.run_path(str(ROOT / "tools" / "lint_rules.py"))
    assert tool["PAGE"].read_text("utf-8") == tool["page"](), "python tools/lint_rules.py writes it"


def test_a_bare_library_and_a_folder_are_linted(wheel, tmp_path):
    """Rules about what is not there hold."""
    folder = tmp_path / "quux_pjrt"
    folder.mkdir()
    for name, body in wheel.members.items():
        if name.startswith("quux_pjrt/"):
            (tmp_path / name).write_bytes(body)
    assert authoring.lint(folder, probes=False) == []
    assert authoring.lint(folder / "quux_pjrt.so", probes=False) == []


def test_what_is_no_wheel_is_refused(tmp_path):
    path = tmp_path / "quux_pjrt-1.0-py3-none-any.whl"
    path.write_bytes(b"no zip")
    with pytest.raises(errors.PjrtHubError, match="cannot be read as a wheel"):
        authoring.lint(path)


def test_the_command_exits_with_1_where_an_error_is(wheel, capsys):
    path = str(wheel.write())
    assert run(["lint", "--no-probe", path]) == 0
    assert capsys.readouterr().out == f"{path}: 0 errors, 0 warnings\n"
    in_file(f"{INFO}/METADATA", "Version: 1.0", "Version: 2.0")(wheel)
    assert run(["lint", "--no-probe", "--json", str(wheel.write())]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert (found["rule"], found["severity"], found["where"]) == ("PLG201", "error", "METADATA")


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "quux_pjrt.so")
    with pytest.raises(errors.PjrtHubError, match="is neither a file nor a folder"):
        authoring.lint(tmp_path / "quux_pjrt.so")


def test_a_wheel_that_wants_a_password_is_refused(wheel):
    path = wheel.write()
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\3\4") + 6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(errors.PjrtHubError, match=r"cannot be read as a wheel: .* is encrypted"):
        authoring.lint(path)


@pytest.mark.parametrize("junk", [b"\xff\xfe", b'"' + b"x" * 200_000, b"a,sha256=\0,x\n"])
def test_junk_in_record_is_found(wheel, junk):
    found = authoring.lint(written(wheel, junk), probes=False)
    assert {each.rule.code for each in found} == {"PLG208"}
