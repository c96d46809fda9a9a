"""NVIDIA's driver and compilers: what a plugin takes, and what a doctor says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_dependencies import CU13, LINKER, build, in_path, opening_of, report, wheels, world_of

from pjrt_hub.door import dependencies
from pjrt_hub.door.diagnosis import Step
from pjrt_hub.finding.contract import cuda
from pjrt_hub.finding.store.catalog import Catalog


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("580.65.06", "580.65.06, which runs CUDA up to 13.0; cuda13 needs 580 or newer", ""),
        (
            "570.86.15",
            "570.86.15, which runs CUDA up to 12.8; cuda13 needs 580 or newer",
            "install driver 580 or newer, or use the plugin for an older one: "
            "pjrt-hub fetch cuda12",
        ),
    ],
)
def test_the_driver(tmp_path, text, says, hint):
    file = tmp_path / "machine" / "proc" / "driver" / "nvidia" / "version"
    file.parent.mkdir(parents=True)
    file.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {text}  Tue\n")
    world = world_of(tmp_path, {})._replace(catalog=Catalog.read_shipped())
    steps = list(dependencies.report(opening_of(tmp_path, world, ()), world))
    assert named(steps, "driver") == [Step("driver", not hint, says, hint)]


def named(steps: list[Step], what: str) -> list[Step]:
    return [each for each in steps if each.what == what]


def test_the_driver_of_a_container(tmp_path):
    """Its library is all that there is."""
    library = build(tmp_path / "driver" / "libcuda.so.1")
    library.rename(library.with_name("libcuda.so.550.54.15"))
    library.symlink_to("libcuda.so.550.54.15")
    [step] = named(report(tmp_path, in_path(library.parent), is_present=True), "driver")
    assert not step.ok
    assert step.detail.startswith("550.54.15, which runs CUDA up to 12.4;")
    if not Path("/proc/driver/nvidia").exists():
        [step] = named(report(tmp_path, is_present=True), "driver")
        assert (step.ok, "libcuda.so.1" in step.detail) == (False, True)


@pytest.mark.parametrize(
    ("driver", "newest"),
    [("440.33", ""), ("470.82.01", "11.4"), ("555.42", "12.5"), ("579.1", "12.9"), ("", "")],
)
def test_the_newest_cuda_of_a_driver(driver, newest):
    assert cuda.newest_cuda(driver) == newest


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("", "it tells no version"),
        ("11.7.99", "11.7.99 is older than 11.8"),
        ("11.8.89", ""),
        ("12.3.103", "12.3.103 miscompiles"),
        ("12.3.107", ""),
        ("13.0.88", ""),
    ],
)
def test_which_ptxas_is_passed_over(version, why):
    printed = f"ptxas: assembler\nCuda compilation tools, release 1.0, V{version}\nBuild x\n"
    assert cuda.refusal(cuda.release(printed)) == why


def test_where_compilers_are_looked_for():
    plugin = Path("/site/jax_plugins/xla_cuda13/xla_cuda_plugin.so")
    env = {"PATH": "/a:/b", "XLA_FLAGS": "--xla_x=1 --xla_gpu_cuda_data_dir=/mine"}
    ends = ["/usr/local/cuda", "/opt/cuda", "/site/jax_plugins/nvidia/cu13", "/site/nvidia/cu13"]
    ends += ["/site/jax_plugins/xla_cuda13/cuda"]
    end = [f"{each}/bin/ptxas" for each in ends]

    def places(compiler: cuda.Compiler, *given: str) -> list[str]:
        return [str(each.path) for each in compiler.places(plugin, "13", env, *given)]

    assert places(cuda.PTXAS) == ["/mine/bin/ptxas", "/a/ptxas", "/b/ptxas", *end]
    assert places(cuda.PTXAS, "/jax")[:2] == ["/jax/bin/ptxas", "/a/ptxas"]
    file = "nvvm/libdevice/libdevice.10.bc"
    assert places(cuda.LIBDEVICE) == [f"{each}/{file}" for each in ("/mine", *ends)]
    env.clear()
    assert places(cuda.PTXAS) == ["cuda_sdk_lib/bin/ptxas", *end]


def ptxas(folder: Path, version: str) -> Path:
    path = folder / "bin" / "ptxas"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho Cuda compilation tools, V{version}\n")
    path.chmod(0o755)
    return path


def test_a_ptxas_of_another_cuda_is_told(tmp_path, monkeypatch):
    """It may do, so it is no failure; the way round it is named."""
    monkeypatch.setattr(cuda, "SYSTEM", ())
    old, new = ptxas(tmp_path / "a", "12.6.85"), ptxas(tmp_path / "b", "13.0.88")
    broken = ptxas(tmp_path / "c", "11.2.1")
    path = ":".join(str(each.parent) for each in (broken, old, new))
    first, second = named(report(tmp_path, {"PATH": path}, is_present=True), "compiler")
    assert (first.ok, first.hint) == (True, f"set XLA_FLAGS=--xla_gpu_cuda_data_dir={tmp_path}/b")
    assert first.detail == (
        f"ptxas: {old}, 12.6.85, PATH; it hides {new}; {broken} is passed over: 11.2.1 is older "
        "than 11.8; the plugin was built beside >=13.0.48"
    )
    assert (second.ok, "libdevice not found" in second.detail) == (False, True)


def test_what_lies_in_the_working_directory_is_not_run(tmp_path, monkeypatch):
    """The plugin would run it, so it is told."""
    monkeypatch.chdir(tmp_path)
    path = ptxas(tmp_path / "cuda_sdk_lib", "13.0.88")
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    [step, _] = named(report(tmp_path), "compiler")
    assert step.detail.startswith("ptxas: cuda_sdk_lib/bin/ptxas, the working directory")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("to_run", "is_present", "ok"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_no_compiler_is_a_no_to_compile(tmp_path, monkeypatch, to_run, is_present, ok):
    monkeypatch.setattr(cuda, "SYSTEM", ())
    steps = named(report(tmp_path, to_run=to_run, is_present=is_present), "compiler")
    assert [(each.ok, each.hint) for each in steps] == [(ok, "pip install 'pjrt-hub[cuda13]'")] * 2


def test_a_plugin_that_links_by_itself_needs_no_ptxas(tmp_path, monkeypatch):
    monkeypatch.setattr(cuda, "SYSTEM", ())
    wheels(tmp_path)
    world = world_of(tmp_path, {})
    opening = opening_of(tmp_path, world, ())
    with opening.path.open("ab") as file:
        file.write(b"\0nvJitLinkVersion\0")
    step, *_ = named(dependencies.report(opening, world), "compiler")
    assert step.ok
    assert step.detail.startswith(f"{LINKER}, and no ptxas: {tmp_path}/site/{CU13}/{LINKER}")
