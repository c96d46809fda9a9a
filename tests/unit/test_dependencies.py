"""Libraries that a plugin opens itself: `doctor` must predict what this machine's loader takes."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from trees import NEW, OLD, OPENS, compile_library

from pjrt_hub.base.host import HostTag
from pjrt_hub.door import dependencies, preflight
from pjrt_hub.door.dependencies import Opening
from pjrt_hub.door.diagnosis import Step
from pjrt_hub.finding.contract import cuda, manifest
from pjrt_hub.finding.discovery import library
from pjrt_hub.finding.discovery.installed import Installed
from pjrt_hub.finding.discovery.source import FIRST_PARTY, World
from pjrt_hub.finding.store.catalog import Catalog, shipped_registry

BLAS, BLAS_LT, DNN = "libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9"
DNN_PART, SPARSE, LINKER = "libcudnn_ops.so.9", "libcusparse.so.12", "libnvJitLink.so.13"
CU13, CUDNN = "nvidia/cu13/lib", "nvidia/cudnn/lib"
#: Run paths like those of XLA's own library, but shorter.
RUN_PATHS = ":".join(f"$ORIGIN/../../{each}" for each in (CU13, CUDNN))
[CUDA13] = [
    each
    for each in manifest.read(FIRST_PARTY / "pjrt_plugins" / "cuda" / "pjrt_plugin.toml")
    if each.name == "cuda13"
]
REQUIRED = next(
    row.requires
    for row in Catalog([shipped_registry()]).rows()
    if row.plugin == "cuda13" and row.requires
)
#: A host that opens files, the plugin last, and then names; for "a:b" it prints what `a` gets.
HOST = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
typedef const char *(*opened_t)(const char *);
int main(int count, char **words) {
  int i = 1;
  void *plugin = NULL, *library;
  for (; strcmp(words[i], "--") != 0; i++)
    if ((library = dlopen(words[i], RTLD_NOW | RTLD_GLOBAL)) != NULL) plugin = library;
  for (i++; i < count; i++) {
    char *part = strchr(words[i], ':');
    if (part != NULL) *part++ = 0;
    library = part != NULL ? dlopen(words[i], RTLD_NOW | RTLD_NOLOAD) : plugin;
    opened_t opened = library ? (opened_t)dlsym(library, "opened") : NULL;
    puts(opened ? opened(part ? part : words[i]) : "");
  }
}
"""


class Case(NamedTuple):
    """An environment, made after NVIDIA's packages.

    Attributes:
        env: its environment variables.
        says: words that one of the doctor's steps must contain.
        before: the libraries that a framework has loaded.
        program: linker flags of the host.
    """

    env: dict[str, str] = {}
    says: str = ""
    before: tuple[Path, ...] = ()
    program: tuple[str, ...] = ()


#: Parameters of a library -> its bytes. They are kept because the compiler takes the most time.
COMPILED: dict[tuple[str, ...], bytes] = {}


def build(path: Path, *needed: Path, flags: tuple[str, ...] = (NEW + "$ORIGIN",)) -> Path:
    """Compile a library, with its file name up to the major version as its soname."""
    soname = re.sub(r"(\.so\.\d+).*", r"\1", path.name)  # such as libcudnn.so.9.14.0
    key = (soname, *(each.name for each in needed), *flags)
    if key not in COMPILED:
        whole = ("-lc", "-Wl,--no-as-needed", f"-Wl,-soname,{soname}", *map(str, needed), *flags)
        COMPILED[key] = compile_library(OPENS, path, *whole).read_bytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(COMPILED[key])
    if soname != path.name:
        path.with_name(soname).symlink_to(path.name)
    return path.with_name(soname)


def blas(folder: Path, release: str = "") -> Path:
    return build(named(folder, BLAS, release), build(named(folder, BLAS_LT, release)))


def sparse(folder: Path, release: str = "") -> Path:
    return build(named(folder, SPARSE, release), build(named(folder, LINKER, release)))


def dnn(folder: Path, release: str = "") -> Path:
    build(named(folder, DNN_PART, release))
    return build(named(folder, DNN, release))


def named(folder: Path, name: str, release: str) -> Path:
    """The file name of a release: libcudnn.so.9 in 9.14.0 is libcudnn.so.9.14.0."""
    return folder / (f"{name.partition('.so.')[0]}.so.{release}" if release else name)


def installed(site: Path, name: str, version: str, *files: Path) -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    rows = "".join(f"{file.relative_to(site)},,\n" for file in files)
    info.joinpath("RECORD").write_text(rows)


def wheels(root: Path, cudnn: str = "9.14.0.64", *, site: str = "site") -> Path:
    """NVIDIA's packages, as pip installs them."""
    home = root / site
    found = blas(home / CU13), sparse(home / CU13), dnn(home / CUDNN)
    installed(home, "nvidia-cublas", "13.1.0.3", found[0], found[0].with_name(BLAS_LT))
    installed(home, "nvidia-cusparse", "12.6.3.3", found[1])
    installed(home, "nvidia-nvjitlink", "13.0.88", found[1].with_name(LINKER))
    installed(home, "nvidia-cudnn-cu13", cudnn, found[2], found[2].with_name(DNN_PART))
    return home


def in_path(*folders: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": ":".join(map(str, folders))}


def torch(root: Path, *needed: Path, folder: str = "$ORIGIN/../own") -> tuple[Path, ...]:
    """Libraries that `import torch` has loaded: its own, and those that its run path finds."""
    path = root / "site" / "torch" / "lib" / "libtorch_cuda.so"
    halves = [each.with_name(BLAS_LT) for each in needed if each.name == BLAS]
    return (build(path, *needed, flags=(NEW + folder,)), *needed, *halves)


OWN = Path("site/torch/own")


def torch_first_with_the_same(root: Path) -> Case:
    before = torch(root, root / "site" / CU13 / BLAS, root / "site" / CUDNN / DNN, folder=RUN_PATHS)
    return Case({}, "nvidia-cublas 13.1.0.3, already loaded by torch", before)


def torch_first_of_the_variable(root: Path) -> Case:
    before = torch(root, dnn(root / "other"), folder="$ORIGIN/../nowhere")
    return Case(in_path(root / "other"), f"{root}/other/{DNN}, already loaded by torch", before)


def conda(root: Path) -> Case:
    """A conda environment: its Python has a DT_RPATH, and file names have full versions."""
    folder = in_conda(root)
    sparse(blas(folder, "13.1.0.3").parent, "12.6.3")
    return Case({}, "DT_RPATH of the program", program=(OLD + str(folder),))


def the_systems_cuda(root: Path) -> Case:
    sparse(blas(root / "cuda-13.0" / "targets" / "lib", "13.0.2.14").parent, "12.6.3")
    (root / "cuda").symlink_to("cuda-13.0")
    return Case(in_path(root / "cuda" / "targets" / "lib"), "LD_LIBRARY_PATH")


def half_an_installation(root: Path) -> Case:
    (root / "site" / CU13 / LINKER).unlink()
    return Case({}, f"{LINKER} (needed by {SPARSE})")


def half_an_installation_mended_by_the_variable(root: Path) -> Case:
    (root / "site" / CU13 / LINKER).unlink()
    other = build(root / "other" / LINKER)
    return Case(in_path(other.parent), f"{LINKER}: {other}, LD_LIBRARY_PATH")


def for_another_machine(root: Path) -> Case:
    path = dnn(root / "other")
    data = bytearray(path.read_bytes())
    data[18:20] = b"\x08\x00"  # the number of MIPS
    path.write_bytes(data)
    return Case(in_path(path.parent))


def links(root: Path) -> Case:
    """The plugin and its requirements as links, as the cache lays them out."""
    home = wheels(root, site="store")
    for path in home.glob("nvidia/*/lib/*"):
        link = root / "site" / path.relative_to(home)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    return Case()


def an_old_cudnn(root: Path) -> Case:
    wheels(root, "9.8.0.87")
    return Case({}, "it is 9.8.0.87, and the plugin takes <10,>=9.12.0.46 of nvidia-cudnn-cu13")


def a_second_site(root: Path) -> Case:
    """The user's own packages come before the system's."""
    dnn(root / "system" / CUDNN)
    return Case()


def in_other(root: Path, release: str = "") -> dict[str, str]:
    """An environment whose LD_LIBRARY_PATH names a folder with cuDNN."""
    return in_path(dnn(root / "other", release).parent)


def in_conda(root: Path) -> Path:
    return dnn(root / "conda" / "lib", "9.14.0").parent


WITH_PACKAGES: dict[str, Callable[[Path], Case]] = {
    "packages alone": lambda root: Case({}, "nvidia-cublas 13.1.0.3, loaded before the plugin"),
    "they hide the variable": lambda root: Case(in_other(root), f"it hides {root}/other/{DNN}"),
    # libcublas needs libcublasLt, for which the loader searches the variable first.
    "a preload brings what the variable names": lambda root: Case(
        in_path(build(root / "other" / BLAS_LT).parent),
        f"{BLAS_LT}: {root}/other/{BLAS_LT}, LD_LIBRARY_PATH, needed by {BLAS}; it hides "
        f"{root}/site/{CU13}",
    ),
    # The main library comes from the package, and its parts come from the variable.
    "two cuDNNs": lambda root: Case(
        in_other(root),
        f"{DNN} of {root}/site/{CUDNN} gets parts of another one: {root}/other/{DNN_PART} "
        "(LD_LIBRARY_PATH)",
    ),
    "the main library alone is doubled": lambda root: Case(
        in_path(build(root / "other" / DNN).parent)
    ),
    "torch first with its own": lambda root: Case(
        {},
        f"{DNN}: {root / OWN}/{DNN}, already loaded by torch; it hides {root}/site/{CUDNN}",
        torch(root, dnn(root / OWN)),
    ),
    "torch first with the same": torch_first_with_the_same,
    # An older CUDA's libraries have other names, and auditwheel renames bundled libraries.
    "torch first of an older CUDA": lambda root: Case(
        before=torch(root, build(root / OWN / "libcublas.so.12"))
    ),
    "torch first with hidden names": lambda root: Case(
        before=torch(root, build(root / OWN / "libcudnn-1a2b3c.so.9"))
    ),
    "torch first of the variable": torch_first_of_the_variable,
    "conda with packages": lambda root: Case(program=(OLD + str(in_conda(root)),)),
    "the system's older CUDA": lambda root: Case(
        in_path(build(root / "cuda-12.6" / "lib64" / "libcublas.so.12.6.4.1").parent)
    ),
    "half an installation": half_an_installation,
    "half of one, mended by the variable": half_an_installation_mended_by_the_variable,
    "preloaded by the variable": lambda root: Case(
        {"LD_PRELOAD": str(dnn(root / "other"))}, f"{root}/other/{DNN}, already"
    ),
    "for another machine": for_another_machine,
    "a second site": a_second_site,
}
OTHERS: dict[str, Callable[[Path], Case]] = {
    "nothing": lambda root: Case({}, f"{BLAS}, {BLAS_LT}, {SPARSE}, "),
    "two cuDNNs in the variable": lambda root: Case(
        in_path(dnn(root / "a").parent, dnn(root / "b").parent),
        f"LD_LIBRARY_PATH; it hides {root}/b/{DNN}",
    ),
    "torch first without packages": lambda root: Case(before=torch(root, blas(root / OWN))),
    "conda": conda,
    "conda by the variable": lambda root: Case(in_path(in_conda(root))),
    "the system's CUDA": the_systems_cuda,
    "an old cuDNN": an_old_cudnn,
    "an old cuDNN by its file": lambda root: Case(
        in_other(root, "9.8.0"), "it is 9.8.0, and the plugin takes <10,>=9.12.0.46"
    ),
    "a cuDNN whose file tells less": lambda root: Case(
        in_other(root, "9.12.0"), f"{DNN}: {root}/other/{DNN}, LD_LIBRARY_PATH"
    ),
    "links": links,
}


def make_host(path: Path, flags: tuple[str, ...]) -> Path:
    if flags not in COMPILED:
        command = ["cc", "-x", "c", "-", "-x", "none", "-o", path, "-ldl", *flags]
        subprocess.run(command, input=HOST.encode(), check=True, capture_output=True)
        COMPILED[flags] = path.read_bytes()
    path.write_bytes(COMPILED[flags])
    path.chmod(0o755)
    return path


def traced(command: list[object], env: dict[str, str]) -> tuple[str, str]:
    """The output of a program, and the loader's own trace of its work."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}
    env = {**kept, **env, "LD_DEBUG": "libs"}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, ran.stderr


def make_plugin(root: Path, link: bool) -> Path:
    path = root / "site" / "jax_plugins" / "xla_cuda13" / "xla_cuda_plugin.so"
    place = root / "store" / "jax_plugins" / "xla_cuda13" / path.name if link else path
    build(place, flags=(OLD + RUN_PATHS,))
    if link:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(place)
    return path


def world_of(root: Path, env: dict[str, str]) -> World:
    paths = tuple(str(root / each) for each in ("site", "system"))
    return World(env, HostTag.current(), Installed(paths), root=root / "machine")


def opening_of(root: Path, world: World, before: tuple[Path, ...], **more: bool) -> Opening:
    plugin = make_plugin(root, (root / "store").is_dir())
    found = library.preloads(world, CUDA13, plugin)
    names = (*(each.name for each in found.paths), *found.missing)
    mapped = dict.fromkeys(before, "already loaded by torch")
    given = {"is_present": False, **more}
    return Opening(CUDA13, plugin, names, mapped, found.paths, REQUIRED, **given)


def winners(steps: list[Step]) -> dict[str, Path]:
    """The library that the doctor names for each name."""
    found = {}
    for step in steps:
        if named := re.match(r"(lib\S+): (/[^ ,]+)", step.detail):
            found[named[1]] = Path(named[2])
        if "gets parts of" in step.detail:
            found[DNN_PART] = Path(step.detail.rpartition(": ")[2].partition(" ")[0])
    return found


@pytest.mark.parametrize("name", [*WITH_PACKAGES, *OTHERS])
def test_the_winners_are_the_loaders(name, tmp_path, monkeypatch):
    if name in WITH_PACKAGES:
        wheels(tmp_path)
    env, says, before, program = {**WITH_PACKAGES, **OTHERS}[name](tmp_path)
    world = world_of(tmp_path, env)
    opening = opening_of(tmp_path, world, before)
    host = make_host(tmp_path / "host", program)
    names = [BLAS, BLAS_LT, SPARSE, LINKER, DNN, f"{DNN}:{DNN_PART}"]
    opened = [*before[:1], *opening.preloads, opening.path]
    printed, loader = traced([host, *opened, "--", *names], env)
    search = preflight.search
    monkeypatch.setattr(preflight, "search", lambda *args: search(*args, host))
    steps = list(dependencies.report(opening, world))
    ours = winners(steps)
    for name, theirs in zip(names, printed.split("\n"), strict=False):
        if name.endswith(DNN_PART):  # the doctor names it only if it lies elsewhere
            mine = ours.get(DNN_PART, ours[DNN].with_name(DNN_PART) if DNN in ours else None)
            mine = mine if mine and mine.exists() else None
        elif name == LINKER and SPARSE not in ours:
            continue  # only cuSPARSE opens it
        else:
            mine = ours.get(name)
        assert (str(mine) if mine else "") == (theirs and os.path.normpath(theirs)), (name, steps)
        assert not theirs or f"calling init: {theirs}\n" in loader
    told = "\n".join(step.detail for step in steps)
    assert says in told, told


def report(root: Path, env: dict[str, str] | None = None, **more: bool) -> list[Step]:
    world = world_of(root, env or {})
    return list(dependencies.report(opening_of(root, world, (), **more), world))


def step_about(steps: list[Step], words: str = f"{DNN}: ") -> Step:
    [step] = [each for each in steps if words in each.detail]
    return step


@pytest.mark.parametrize("is_present", [False, True])
def test_a_version_that_does_not_fit_is_a_no_where_the_hardware_is(tmp_path, is_present):
    wheels(tmp_path, "9.8.0.87")
    step = step_about(report(tmp_path, is_present=is_present))
    assert (step.ok, step.hint) == (not is_present, "pip install 'pjrt-hub[cuda13]'")


@pytest.mark.parametrize(
    ("before", "hint"),
    [
        (True, "open the plugin before `import torch`, or install a torch that fits it"),
        (False, "take {other} off LD_LIBRARY_PATH"),
    ],
)
def test_the_next_step_is_about_what_wins(tmp_path, before, hint):
    other = dnn(tmp_path / "other", "9.8.0")
    world = world_of(tmp_path, {} if before else in_path(other.parent))
    opening = opening_of(tmp_path, world, (other,) if before else ())
    step = step_about(list(dependencies.report(opening, world)))
    assert step.hint == hint.format(other=other.parent)


def test_two_distributions_of_one_file(tmp_path):
    """With PyTorch for CUDA 12 beside a plugin for CUDA 13, the file's version is unknown."""
    home = wheels(tmp_path)
    installed(home, "nvidia-cudnn-cu12", "9.10.2.21", home / CUDNN / DNN)
    step = step_about(report(tmp_path))
    assert "-cu12 9.10.2.21" in step.detail
    assert "-cu13 9.14.0.64" in step.detail
    assert "brings that file, too, and what was installed last is there" in step.detail
    command = "pip install --force-reinstall --no-deps nvidia-cudnn-cu13==9.14.0.64"
    assert (step.ok, step.hint) == (True, command)


@pytest.mark.parametrize(
    ("changed", "command"),
    [
        # Many libraries have the same name in every CUDA, and the extra `cuda` is for the newest.
        ({"manifest": CUDA13._replace(name="cuda12")}, "pip install 'pjrt-hub[cuda12]'"),
        ({"mend": "pjrt-hub fetch cuda13"}, "pjrt-hub fetch cuda13"),
    ],
)
def test_the_command_is_that_of_the_plugins_cuda_and_origin(tmp_path, changed, command):
    world = world_of(tmp_path, {})
    opening = opening_of(tmp_path, world, ())._replace(**changed)
    steps = dependencies.report(opening, world)
    assert {each.hint for each in steps if "not found" in each.detail} == {command}


OLDER = "install driver 580 or newer, or use the plugin for an older one: pjrt-hub fetch cuda12"


@pytest.mark.parametrize(
    ("driver", "newest", "hint"),
    [
        ("580.65.06", ", which runs CUDA up to 13.0", ""),
        ("579.1", ", which runs CUDA up to 12.9", OLDER),
        ("570.86.15", ", which runs CUDA up to 12.8", OLDER),
        ("555.42", ", which runs CUDA up to 12.5", OLDER),
        ("470.82.01", ", which runs CUDA up to 11.4", OLDER),
        ("440.33", "", OLDER),
    ],
)
def test_the_driver(tmp_path, driver, newest, hint):
    file = tmp_path / "machine" / "proc" / "driver" / "nvidia" / "version"
    file.parent.mkdir(parents=True)
    file.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue\n")
    world = world_of(tmp_path, {})._replace(catalog=Catalog([shipped_registry()]))
    steps = list(dependencies.report(opening_of(tmp_path, world, ()), world))
    says = f"{driver}{newest}; cuda13 needs 580 or newer"
    assert steps_for(steps, "driver") == [Step("driver", not hint, says, hint)]


def steps_for(steps: list[Step], what: str) -> list[Step]:
    return [each for each in steps if each.what == what]


def test_the_driver_of_a_container(tmp_path):
    """A container only has the driver's library."""
    library = build(tmp_path / "driver" / "libcuda.so.1")
    library.rename(library.with_name("libcuda.so.550.54.15"))
    library.symlink_to("libcuda.so.550.54.15")
    [step] = steps_for(report(tmp_path, in_path(library.parent), is_present=True), "driver")
    assert not step.ok
    assert step.detail.startswith("550.54.15, which runs CUDA up to 12.4;")
    if not Path("/proc/driver/nvidia").exists():
        [step] = steps_for(report(tmp_path, is_present=True), "driver")
        assert (step.ok, "libcuda.so.1" in step.detail) == (False, True)


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
    """It may work, so the step does not fail, but it names a workaround."""
    monkeypatch.setattr(cuda, "SYSTEM", ())
    old, new = ptxas(tmp_path / "a", "12.6.85"), ptxas(tmp_path / "b", "13.0.88")
    broken = ptxas(tmp_path / "c", "11.2.1")
    path = ":".join(str(each.parent) for each in (broken, old, new))
    first, second = steps_for(report(tmp_path, {"PATH": path}, is_present=True), "compiler")
    assert (first.ok, first.hint) == (True, f"set XLA_FLAGS=--xla_gpu_cuda_data_dir={tmp_path}/b")
    assert first.detail == (
        f"ptxas: {old}, 12.6.85, PATH; it hides {new}; {broken} is passed over: 11.2.1 is older "
        "than 11.8; the plugin was built beside >=13.0.48"
    )
    assert (second.ok, "libdevice not found" in second.detail) == (False, True)


def test_what_lies_in_the_working_directory_is_told_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = ptxas(tmp_path / "cuda_sdk_lib", "13.0.88")
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    [step, _] = steps_for(report(tmp_path), "compiler")
    assert step.detail.startswith("ptxas: cuda_sdk_lib/bin/ptxas, the working directory")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("to_run", "is_present", "ok"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_no_compiler_is_a_no_to_compile(tmp_path, monkeypatch, to_run, is_present, ok):
    monkeypatch.setattr(cuda, "SYSTEM", ())
    steps = steps_for(report(tmp_path, to_run=to_run, is_present=is_present), "compiler")
    assert [(each.ok, each.hint) for each in steps] == [(ok, "pip install 'pjrt-hub[cuda13]'")] * 2


def test_a_plugin_that_links_by_itself_needs_no_ptxas(tmp_path, monkeypatch):
    monkeypatch.setattr(cuda, "SYSTEM", ())
    wheels(tmp_path)
    world = world_of(tmp_path, {})
    opening = opening_of(tmp_path, world, ())
    with opening.path.open("ab") as file:
        file.write(b"\0nvJitLinkVersion\0")
    step, *_ = steps_for(dependencies.report(opening, world), "compiler")
    assert step.ok
    assert step.detail.startswith(f"{LINKER}, and no ptxas: {tmp_path}/site/{CU13}/{LINKER}")
