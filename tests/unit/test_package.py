"""The files of the package that `new` and `pack` write around a library agree with each other."""

import ast
import configparser
import importlib.util
import tomllib
from email.parser import Parser
from pathlib import Path

import pytest
from trees import plugin_bytes

from pjrt_hub.errors import PjrtHubError, PluginLoadError
from pjrt_hub.finding.contract import headers, manifest
from pjrt_hub.finding.contract.binary import Binary
from pjrt_hub.finding.contract.option import OPTION_TYPES, Option
from pjrt_hub.kit import authoring
from pjrt_hub.kit.authoring.identity import LibraryIdentity
from pjrt_hub.kit.authoring.package import Package, license_expression, platform_name, refuse_name
from pjrt_hub.kit.authoring.wheel import Wheel, platform_tag

OPTIONS = tuple(Option(f"an_{kind}", kind, doc='it\'s "quoted" \\ ü') for kind in OPTION_TYPES)


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """A package whose library accepts an option of each type."""
    path = tmp_path / "quux.so"
    path.write_bytes(plugin_bytes())
    binary = headers.inspect(path)
    identity = LibraryIdentity(path, binary, 1, "ab" * 32, "0.81", ("FFI",), "quux", "", OPTIONS)
    return Package("quux", "quux", "1.0", "MIT", identity, platform_tag(binary))


@pytest.fixture
def written(package: Package, tmp_path: Path) -> Path:
    """The folder of the written package."""
    folder = tmp_path / "quux_pjrt"
    folder.mkdir()
    for name, text in package.files().items():
        (folder / name).write_text(text, "utf-8")
    return folder


def test_the_manifest_is_read_as_it_was_meant(written):
    [described] = manifest.read(written / manifest.FILE_NAME)
    assert described.options == tuple(sorted(OPTIONS, key=lambda option: option.name))
    assert described.libraries == (manifest.Library(path="quux_pjrt.so", sha256="ab" * 32),)
    assert str(described.api_minimum) == str(described.api_maximum) == "0.81"
    assert described.extensions == ("FFI",)
    text = (written / manifest.FILE_NAME).read_text("utf-8")
    assert "[options.an_unknown]\n# How the library takes it did not show: write its type" in text
    assert text.count("did not show") == 1


@pytest.mark.parametrize("template", ["conftest", "test_plugin", "setup"])
def test_the_project_is_python(package, template):
    assert ast.parse(package.fill(f"{template}.py.in"))


def test_both_ways_register_the_same(package):
    """A wheel built by setuptools registers like one that we write."""
    project = tomllib.loads(package.fill("pyproject.toml.in"))["project"]
    parser = configparser.ConfigParser(delimiters="=")
    parser.read_string(package.registrations())
    assert project["entry-points"] == {name: dict(parser[name]) for name in parser.sections()}
    metadata = Parser().parsestr(package.metadata())
    assert (project["name"], project["version"]) == (metadata["Name"], metadata["Version"])
    wanted = (metadata["License-Expression"], metadata["Summary"])
    assert (project["license"], project["description"]) == wanted


def test_without_a_library_everything_is_there_but_what_it_says(tmp_path):
    package = Package("quux", "quux", "1.0", "", None, "linux_x86_64")
    (tmp_path / manifest.FILE_NAME).write_text(package.files()[manifest.FILE_NAME])
    [described] = manifest.read(tmp_path / manifest.FILE_NAME)
    assert (described.options, described.api_minimum, described.extensions) == ((), None, ())
    assert "license" not in tomllib.loads(package.fill("pyproject.toml.in"))["project"]
    for name, text in package.files().items():
        assert not name.endswith(".py") or ast.parse(text)


def test_options_come_from_code_then_from_variables_then_from_the_manifest(written, monkeypatch):
    path = written / manifest.FILE_NAME
    path.write_text(path.read_text().replace('"int64"\n', '"int64"\ndefault = 7\n', 1))
    spec = importlib.util.spec_from_file_location("quux_options", written / "options.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert set(module.CreateOptions.__annotations__) == {option.name for option in OPTIONS}
    assert module.create_options() == {"an_int64": 7}
    values = {"string": "x", "int64": "-3", "int64_list": "1,2", "float": "0.5", "bool": "true"}
    for kind, text in values.items():
        monkeypatch.setenv(f"QUUX_AN_{kind.upper()}", text)
    given = {"an_string": "x", "an_int64": -3, "an_int64_list": [1, 2], "an_float": 0.5}
    assert module.create_options() == {**given, "an_bool": True}
    for text, value in {"4": 4, "0.5": 0.5, "true": True, "fast": "fast"}.items():
        monkeypatch.setenv("QUUX_AN_UNKNOWN", text)
        assert module.create_options() == {**given, "an_bool": True, "an_unknown": value}
    monkeypatch.delenv("QUUX_AN_UNKNOWN")
    module.configure(an_int64=5)
    assert module.create_options() == {**given, "an_bool": True, "an_int64": 5}


@pytest.mark.parametrize(
    ("machine", "needed", "tag"),
    [
        ("x86_64", ("GLIBC_2.27", "GLIBC_2.2.5"), "manylinux_2_27_x86_64"),
        ("x86_64", ("GLIBC_2.2.5",), "manylinux_2_5_x86_64"),
        ("x86_64", (), "manylinux_2_5_x86_64"),
        ("aarch64", ("GLIBC_2.17",), "manylinux_2_17_aarch64"),
        ("aarch64", ("GLIBC_2.38",), "manylinux_2_38_aarch64"),
    ],
)
def test_a_tag_is_the_oldest_that_the_library_runs_on(machine, needed, tag):
    versions = tuple(("libc.so.6", version) for version in needed)
    binary = Binary(Path("/x"), "linux", 64, True, machine, True, versions=versions)
    assert platform_tag(binary) == tag


def test_the_same_files_give_the_same_wheel_at_any_time(package, tmp_path):
    """An old wheel is replaced, and a date too early for a zip becomes the earliest possible."""
    texts = (package.metadata(), package.registrations())
    wheel = Wheel("quux-pjrt", "1.0", package.platform_tag, *texts)
    files = {"quux_pjrt/quux_pjrt.so": package.identity.path, "quux_pjrt/py.typed": ""}
    first = wheel.write(tmp_path / "dist", files, seconds=0).read_bytes()
    package.identity.path.touch()
    path = wheel.write(tmp_path / "dist", files, seconds=315532800)
    assert path.read_bytes() == first
    assert [each.name for each in path.parent.iterdir()] == [wheel.file_name]


@pytest.mark.parametrize(
    ("asked", "told", "platform"),
    [("", "", "quux"), ("", "METAL", "metal"), ("", "TPU v5", "quux"), ("mine", "cpu", "mine")],
)
def test_the_platform_is_what_was_asked_for_else_what_the_library_told(asked, told, platform):
    assert platform_name(asked, told, "quux") == platform
    with pytest.raises(PjrtHubError, match="cannot name a platform"):
        platform_name('x"', told, "quux")


def test_a_licence_is_written_as_spdx_does():
    asked = "(mit or LicenseRef-Mine-1.0) and apache-2.0 with llvm-exception"
    wanted = "(MIT OR LicenseRef-Mine-1.0) AND Apache-2.0 WITH LLVM-exception"
    assert license_expression(asked) == wanted
    assert license_expression("") == ""


@pytest.mark.parametrize("asked", ['MIT"\nname = "cuda', "Foo Bar", "MIT AND", "Nobodys-1.0"])
def test_a_licence_that_is_none_is_refused(asked):
    with pytest.raises(PjrtHubError, match="is not an SPDX expression"):
        license_expression(asked)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("acme-cpu", "did you mean 'acme_cpu'? a name is of ASCII"),
        ("Acme Chip.2", "did you mean 'acme_chip_2'? a name is of ASCII"),
        ("1chip", "a name is of ASCII"),
        ("../acme", "a name is of ASCII"),
        ("\u0430cme", "a name is of ASCII"),
        ("class", "it is a word of Python's own"),
        ("", "a name is of ASCII"),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_one_that_was_meant(name, hint):
    with pytest.raises(PjrtHubError, match="cannot name a plugin") as refused:
        refuse_name(name)
    assert refused.value.hint.startswith(hint)


def test_a_library_for_another_machine_is_refused_with_its_name(tmp_path):
    path = tmp_path / "quux.so"
    data = bytearray(plugin_bytes())
    data[18:20] = b"\x15\0"  # the field e_machine
    path.write_bytes(data)
    with pytest.raises(PluginLoadError, match="it is built for ppc64le, this machine is"):
        authoring.pack(path, "quux", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_checked_for_a_project_that_cannot_be_written(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(PjrtHubError, match="is there already"):
        authoring.new("quux", into=tmp_path, known_defects=lambda: pytest.fail("too early"))
