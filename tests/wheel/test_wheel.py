"""The built wheel: what is in it, and that it works by itself on every Python that is here."""

from __future__ import annotations

import json
import sys
import sysconfig
import zipfile
from email import message_from_bytes, policy
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from pjrt_hub.finding.contract import headers

MODULES = {"_pjrt", "_plugin", "hotpath"}
LIBRARIES = {*MODULES, "forward", "lapack", "launcher", "preload", "processors"}
KIT = Path(__file__).parents[2] / "pjrt_hub" / "kit" / "authoring" / "c" / "pjrt_plugin"
IMPORT_ALL = """
import importlib, pkgutil, pjrt_hub
of_an_extra = {  # jaxlib, in the reference interpreter's own process
    f'pjrt_hub.kit.authoring.{name}'
    for name in ('interpreter', 'partitioning', 'rewrites', 'limitations')
}
of_an_extra |= {'pjrt_hub.frameworks.torch_xla.device_plugin'}  # torch_xla, which alone imports it
of_an_extra |= {f'pjrt_hub.frameworks.torch.{name}' for name in ('exporting', 'kernels')}  # torch
of_an_extra |= {'pjrt_hub.frameworks.pyinstaller.hook-pjrt_hub'}  # PyInstaller, the same
of_an_extra |= {'pjrt_hub.kit.pytest_plugin'}  # pytest, which alone imports it
for module in pkgutil.walk_packages(pjrt_hub.__path__, 'pjrt_hub.'):
    if module.name not in of_an_extra:
        importlib.import_module(module.name)
print(pjrt_hub.__file__)
"""
ADD = """
func.func @main(%a: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<2xf32> {
  %sum = stablehlo.add %a, %b : tensor<2xf32>
  return %sum : tensor<2xf32>
}
"""


def test_one_wheel_serves_every_python(wheel):
    """One wheel serves every Python that has a GIL."""
    python, abi, platform = wheel.stem.split("-")[-3:]
    own = f"cp{sys.version_info.major}{sys.version_info.minor}"
    free = sysconfig.get_config_var("Py_GIL_DISABLED")
    assert (python, abi) == ((own, f"{own}t") if free else ("cp311", "abi3"))
    assert platform.startswith(("linux_", "manylinux"))


def test_the_wheel_holds_what_is_used_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pjrt_hub", "pjrt_plugins"}
    platforms = ("cpu", "cuda", "metal", "rocm", "tpu", "tt", "xpu")
    wanted = {f"pjrt_plugins/{name}/pjrt_plugin.toml" for name in platforms}
    wanted |= {"pjrt_hub/py.typed", "pjrt_hub/__init__.pyi", "pjrt_hub/registry/cpu.toml"}
    wanted |= {"pjrt_hub/finding/contract/parsed.json", "pjrt_hub/running/capi/table.json"}
    assert wanted - set(names) == set()
    kit = {f"pjrt_hub/kit/authoring/c/pjrt_plugin/{path.name}" for path in KIT.glob("*.h")}
    kit.add("pjrt_hub/kit/authoring/c/pjrt_plugin/api.h")  # the build makes it
    assert len(kit) > 10
    assert {name for name in names if name.endswith((".c", ".h", ".o", ".pjrt"))} == kit
    assert "pjrt_plugins/__init__.py" not in names
    assert [name for name in names if name.endswith("licenses/LICENSE")] != []


def test_the_libraries_hold_nothing_for_debuggers(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    libraries = sorted(tmp_path.rglob("*.so"))
    assert {path.name.partition(".")[0] for path in libraries} == LIBRARIES
    for path in libraries:
        names = {section.name for section in headers.sections(path)}
        assert ".dynsym" in names
        assert not {name for name in names if name.startswith((".debug", ".symtab", ".strtab"))}


@pytest.fixture(scope="module")
def metadata(wheel):
    """The metadata of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name), policy=policy.default)


def test_the_extras_are_declared(metadata):
    extras = set(metadata.get_all("Provides-Extra"))
    assert {"cpu", "cuda", "cuda12", "cuda13", "oneapi", "rocm", "tpu"} <= extras
    assert {"jax", "kit", "lapack", "torch", "torch-xla"} <= extras


def test_every_link_of_the_description_works_on_an_indexs_page(metadata):
    text = metadata.get_content()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert text.startswith("# pjrt-hub\n")
    assert "three fifths of `jax.jit`'s: benchmarks." in " ".join(text.split())
    linked = [
        str(child.attrs.get("href") or child.attrs.get("src"))
        for token in MarkdownIt().parse(text)
        for child in token.children or ()
        if child.type in ("link_open", "image")
    ]
    assert [link for link in linked if not link.startswith(("https://", "http://"))] == []


@pytest.mark.slow
def test_every_module_imports(each_python, call):
    where = call(each_python / "python", "-W", "error", "-c", IMPORT_ALL).stdout.strip()
    assert Path(where).is_relative_to(each_python.parent)


@pytest.mark.slow
def test_the_command_lists_the_plugins(each_python, call, tmp_path):
    command = each_python / "pjrt-hub"
    assert call(command, "--version").stdout.startswith("pjrt-hub 0.")
    listed = json.loads(call(command, "list", "--json", PJRT_HUB_CACHE=tmp_path).stdout)
    assert {"cpu", "cuda", "rocm", "tpu"} <= {found["platform"] for found in listed}


@pytest.mark.slow
def test_an_installed_plugin_runs_without_the_network(each_python, call, uv, tmp_path):
    install = (uv, "pip", "install", "-q", "--python", each_python / "python")
    call(*install, "fastatomstruct-xla-cpu==2026.6.23")
    (tmp_path / "add.mlir").write_text(ADD)
    printed = call(
        *(each_python / "pjrt-hub", "run", tmp_path / "add.mlir", "--platform", "cpu"),
        *("--arg", "f32[2]:1,2", "--arg", "f32[2]:10", "--offline", "--json"),
        PJRT_HUB_CACHE=tmp_path / "cache",
    ).stdout
    [result] = json.loads(printed)["results"]
    type_ = {"dtype": "float32", "element_type": "f32", "shape": [2]}
    assert result == {**type_, "data": [11.0, 12.0]}
