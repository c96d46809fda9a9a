"""What a plugin opens by itself: what a doctor says wins, and what this machine's loader takes."""

from __future__ import annotations

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
from pjrt_hub.errors import FrameworkError
from pjrt_hub.finding.contract import manifest
from pjrt_hub.finding.discovery import library
from pjrt_hub.finding.discovery.installed import Installed
from pjrt_hub.finding.discovery.source import FIRST_PARTY, World
from pjrt_hub.finding.store.catalog import Catalog
from pjrt_hub.running.sandbox import mapped

BLAS, BLAS_LT, DNN = "libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9"
DNN_PART, SPARSE, LINKER = "libcudnn_ops.so.9", "libcusparse.so.12", "libnvJitLink.so.13"
CU13, CUDNN = "nvidia/cu13/lib", "nvidia/cudnn/lib"
#: As XLA's own, which are shorter here.
RUN_PATHS = ":".join(f"$ORIGIN/../../{each}" for each in (CU13, CUDNN))
[CUDA13] = [
    each
    for each in manifest.read(FIRST_PARTY / "pjrt_plugins" / "cuda" / "pjrt_plugin.toml")
    if each.name == "cuda13"
]
REQUIRED = next(
    row.requires for row in Catalog.read_shipped().rows() if row.plugin == "cuda13" and row.requires
)
#: Opens libraries by names: the last of the files is the plugin, and "a:b" is what `a` gets for b.
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
    library = plugin;
    if (part != NULL) {
      *part++ = 0;
      library = dlopen(words[i], RTLD_NOW | RTLD_NOLOAD);
    }
    opened_t opened = library ? (opened_t)dlsym(library, "opened") : NULL;
    puts(opened ? opened(part ? part : words[i]) : "");
  }
}
"""


class Case(NamedTuple):
    """An environment.

    Attributes:
        env: its variables.
        before: what a framework has loaded.
        program: how the host is linked.
        says: what the doctor says of some of it, by words that are in one of its steps.
    """

    env: dict[str, str] = {}
    before: tuple[Path, ...] = ()
    program: tuple[str, ...] = ()
    says: tuple[str, ...] = ()


#: Libraries by all that tells them apart: the compiler takes longer than all else here.
COMPILED: dict[tuple[str, ...], bytes] = {}


def build(path: Path, *needed: Path, flags: tuple[str, ...] = (NEW + "$ORIGIN",)) -> Path:
    """Make a library of that soname, without the number of a release."""
    soname = re.sub(r"(\.so\.\d+).*", r"\1", path.name)  # of libcudnn.so.9.14.0
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
    """libcudnn.so.9 of the release 9.14.0 is libcudnn.so.9.14.0."""
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


def torch(root: Path, *needed: Path, folder: str) -> tuple[Path, ...]:
    """What `import torch` has loaded: its library, and what that needs by its own run path."""
    path = root / "site" / "torch" / "lib" / "libtorch_cuda.so"
    halves = [each.with_name(BLAS_LT) for each in needed if each.name == BLAS]
    return (build(path, *needed, flags=(NEW + folder,)), *needed, *halves)


def wheels_alone(root: Path) -> Case:
    wheels(root)
    return Case(says=("nvidia-cublas 13.1.0.3, loaded before the plugin",))


def nothing(root: Path) -> Case:
    return Case(says=(f"{BLAS}, {BLAS_LT}, {SPARSE}, ",))


def wheels_hide_the_variable(root: Path) -> Case:
    wheels(root)
    return Case(in_path(dnn(root / "other").parent), says=(f"it hides {root}/other/{DNN}",))


def a_preload_brings_what_the_variable_names(root: Path) -> Case:
    """BLAS needs its other half, and the loader looks at the variable first."""
    wheels(root)
    other = build(root / "other" / BLAS_LT)
    says = f"{BLAS_LT}: {other}, LD_LIBRARY_PATH, needed by {BLAS}; it hides {root}/site/{CU13}"
    return Case(in_path(other.parent), says=(says,))


def two_cudnns(root: Path) -> Case:
    """The main library is the wheel's, its parts are the variable's."""
    wheels(root)
    other = dnn(root / "other").parent
    says = f"{DNN} of {root}/site/{CUDNN} gets parts of another one: {other}/{DNN_PART}"
    return Case(in_path(other), says=(f"{says} (LD_LIBRARY_PATH)",))


def two_cudnns_in_the_variable(root: Path) -> Case:
    first, second = dnn(root / "a").parent, dnn(root / "b").parent
    return Case(in_path(first, second), says=(f"LD_LIBRARY_PATH; it hides {second}/{DNN}",))


def the_main_library_alone_is_doubled(root: Path) -> Case:
    wheels(root)
    return Case(in_path(build(root / "other" / DNN).parent))


def torch_first_with_its_own(root: Path) -> Case:
    wheels(root)
    own = dnn(root / "site" / "torch" / "own")
    before = torch(root, own, folder="$ORIGIN/../own")
    says = f"{DNN}: {own}, already loaded by torch; it hides {root}/site/{CUDNN}"
    return Case(before=before, says=(says,))


def torch_first_with_the_same(root: Path) -> Case:
    home = wheels(root)
    before = torch(root, home / CU13 / BLAS, home / CUDNN / DNN, folder=RUN_PATHS)
    return Case(before=before, says=("nvidia-cublas 13.1.0.3, already loaded by torch",))


def torch_first_of_an_older_cuda(root: Path) -> Case:
    """Its libraries have other names."""
    wheels(root)
    older = build(root / "site" / "torch" / "own" / "libcublas.so.12")
    return Case(before=torch(root, older, folder="$ORIGIN/../own"))


def torch_first_with_hidden_names(root: Path) -> Case:
    """As auditwheel renames what it bundles."""
    wheels(root)
    bundled = build(root / "site" / "torch" / "own" / "libcudnn-1a2b3c.so.9")
    return Case(before=torch(root, bundled, folder="$ORIGIN/../own"))


def torch_first_of_the_variable(root: Path) -> Case:
    wheels(root)
    other = dnn(root / "other")
    before = torch(root, other, folder="$ORIGIN/../nowhere")
    return Case(in_path(other.parent), before=before, says=(f"{other}, already loaded by torch",))


def torch_first_without_wheels(root: Path) -> Case:
    own = blas(root / "site" / "torch" / "own")
    return Case(before=torch(root, own, folder="$ORIGIN/../own"))


def conda(root: Path) -> Case:
    """Its Python has a DT_RPATH, its files the numbers of releases."""
    folder = dnn(root / "conda" / "lib", "9.14.0").parent
    blas(folder, "13.1.0.3")
    sparse(folder, "12.6.3")
    return Case(program=(OLD + str(folder),), says=("DT_RPATH of the program",))


def conda_with_wheels(root: Path) -> Case:
    wheels(root)
    folder = dnn(root / "conda" / "lib", "9.14.0").parent
    return Case(program=(OLD + str(folder),))


def conda_by_the_variable(root: Path) -> Case:
    folder = dnn(root / "conda" / "lib", "9.14.0").parent
    return Case(in_path(folder))


def the_systems_cuda(root: Path) -> Case:
    folder = blas(root / "cuda-13.0" / "targets" / "lib", "13.0.2.14").parent
    sparse(folder, "12.6.3")
    (root / "cuda").symlink_to("cuda-13.0")
    return Case(in_path(root / "cuda" / "targets" / "lib"), says=("LD_LIBRARY_PATH",))


def the_systems_older_cuda(root: Path) -> Case:
    folder = build(root / "cuda-12.6" / "lib64" / "libcublas.so.12.6.4.1").parent
    wheels(root)
    return Case(in_path(folder))


def an_old_cudnn(root: Path) -> Case:
    wheels(root, "9.8.0.87")
    says = "it is 9.8.0.87, and the plugin takes <10,>=9.12.0.46 of nvidia-cudnn-cu13"
    return Case(says=(says,))


def an_old_cudnn_by_its_file(root: Path) -> Case:
    folder = dnn(root / "other", "9.8.0").parent
    return Case(in_path(folder), says=("it is 9.8.0, and the plugin takes <10,>=9.12.0.46",))


def a_cudnn_whose_file_tells_less(root: Path) -> Case:
    folder = dnn(root / "other", "9.12.0").parent
    return Case(in_path(folder), says=(f"{DNN}: {folder}/{DNN}, LD_LIBRARY_PATH",))


def half_an_installation(root: Path) -> Case:
    home = wheels(root)
    (home / CU13 / LINKER).unlink()
    return Case(says=(f"{LINKER} (needed by {SPARSE})",))


def half_an_installation_mended_by_the_variable(root: Path) -> Case:
    home = wheels(root)
    other = build(root / "other" / LINKER)
    (home / CU13 / LINKER).unlink()
    return Case(in_path(other.parent), says=(f"{LINKER}: {other}, LD_LIBRARY_PATH",))


def preloaded_by_the_variable(root: Path) -> Case:
    wheels(root)
    return Case({"LD_PRELOAD": str(dnn(root / "other"))}, says=(f"{root}/other/{DNN}, already",))


def for_another_machine(root: Path) -> Case:
    wheels(root)
    path = dnn(root / "other")
    data = bytearray(path.read_bytes())
    data[18:20] = b"\x08\x00"  # MIPS
    path.write_bytes(data)
    return Case(in_path(path.parent))


def links(root: Path) -> Case:
    """As the cache lays out a plugin with what it requires."""
    home = wheels(root, site="store")
    for path in sorted(home.glob("nvidia/*/lib/*")):
        link = root / "site" / path.relative_to(home)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    return Case()


def a_second_site(root: Path) -> Case:
    """The user's own packages stand before the system's."""
    wheels(root)
    dnn(root / "system" / CUDNN)
    return Case()


CASES: list[Callable[[Path], Case]] = [
    wheels_alone,
    nothing,
    wheels_hide_the_variable,
    a_preload_brings_what_the_variable_names,
    two_cudnns,
    two_cudnns_in_the_variable,
    the_main_library_alone_is_doubled,
    torch_first_with_its_own,
    torch_first_with_the_same,
    torch_first_of_an_older_cuda,
    torch_first_with_hidden_names,
    torch_first_of_the_variable,
    torch_first_without_wheels,
    conda,
    conda_with_wheels,
    conda_by_the_variable,
    the_systems_cuda,
    the_systems_older_cuda,
    an_old_cudnn,
    an_old_cudnn_by_its_file,
    a_cudnn_whose_file_tells_less,
    half_an_installation,
    half_an_installation_mended_by_the_variable,
    preloaded_by_the_variable,
    for_another_machine,
    links,
    a_second_site,
]


def make_host(path: Path, flags: tuple[str, ...]) -> Path:
    if flags not in COMPILED:
        command = ["cc", "-x", "c", "-", "-x", "none", "-o", path, "-ldl", *flags]
        subprocess.run(command, input=HOST.encode(), check=True, capture_output=True)
        COMPILED[flags] = path.read_bytes()
    path.write_bytes(COMPILED[flags])
    path.chmod(0o755)
    return path


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
    """What the doctor says, by name."""
    found = {}
    for step in steps:
        if named := re.match(r"(lib\S+): (/[^ ,]+)", step.detail):
            found[named[1]] = Path(named[2])
        if "gets parts of" in step.detail:
            found[DNN_PART] = Path(step.detail.rpartition(": ")[2].partition(" ")[0])
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_winners_are_the_loaders(case, tmp_path, monkeypatch):
    env, before, program, says = case(tmp_path)
    world = world_of(tmp_path, env)
    opening = opening_of(tmp_path, world, before)
    host = make_host(tmp_path / "host", program)
    names = [BLAS, BLAS_LT, SPARSE, LINKER, DNN, f"{DNN}:{DNN_PART}"]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}
    opened = [*before[:1], *opening.preloads, opening.path]
    ran = subprocess.run(
        [host, *opened, "--", *names],
        env={**kept, **env, "LD_DEBUG": "libs"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    search = preflight.search
    monkeypatch.setattr(preflight, "search", lambda *args: search(*args, host))
    steps = list(dependencies.report(opening, world))
    ours = winners(steps)
    for name, theirs in zip(names, ran.stdout.split("\n"), strict=False):
        if name.endswith(DNN_PART):  # told only where it is not the one beside its main library
            mine = ours.get(DNN_PART, ours[DNN].with_name(DNN_PART) if DNN in ours else None)
            mine = mine if mine and mine.exists() else None
        elif name == LINKER and SPARSE not in ours:
            continue  # nothing but cuSPARSE opens it
        else:
            mine = ours.get(name)
        assert (str(mine) if mine else "") == (theirs and os.path.normpath(theirs)), (name, steps)
        assert not theirs or f"calling init: {theirs}\n" in ran.stderr
    told = "\n".join(step.detail for step in steps)
    assert all(words in told for words in says), told


def report(root: Path, env: dict[str, str] | None = None, **more: bool) -> list[Step]:
    world = world_of(root, env or {})
    return list(dependencies.report(opening_of(root, world, (), **more), world))


def test_what_is_missing_is_a_no_where_the_hardware_is(tmp_path):
    home = wheels(tmp_path)
    (home / CUDNN / DNN).unlink()
    for is_present in (False, True):
        [step] = [each for each in report(tmp_path, is_present=is_present) if DNN in each.detail]
        assert step.ok is not is_present
        assert step.hint == "pip install 'pjrt-hub[cuda13]'"


def test_a_version_that_does_not_fit_is_a_no_where_the_hardware_is(tmp_path):
    wheels(tmp_path, "9.8.0.87")
    for is_present in (False, True):
        steps = report(tmp_path, is_present=is_present)
        [step] = [each for each in steps if each.detail.startswith(f"{DNN}: ")]
        assert (step.ok, step.hint) == (not is_present, "pip install 'pjrt-hub[cuda13]'")


@pytest.mark.parametrize(
    ("before", "env", "hint"),
    [
        (True, False, "open the plugin before `import torch`, or install a torch that fits it"),
        (False, True, "take {other} off LD_LIBRARY_PATH"),
    ],
)
def test_the_next_step_is_about_what_wins(tmp_path, before, env, hint):
    other = dnn(tmp_path / "other", "9.8.0")
    world = world_of(tmp_path, in_path(other.parent) if env else {})
    opening = opening_of(tmp_path, world, (other,) if before else ())
    [step] = [each for each in dependencies.report(opening, world) if f"{DNN}: " in each.detail]
    assert step.hint == hint.format(other=other.parent)


def test_two_distributions_of_one_file(tmp_path):
    """PyTorch for CUDA 12 beside a plugin for CUDA 13: what is there, nobody can say."""
    home = wheels(tmp_path)
    installed(home, "nvidia-cudnn-cu12", "9.10.2.21", home / CUDNN / DNN)
    [step] = [each for each in report(tmp_path) if each.detail.startswith(f"{DNN}: ")]
    assert "-cu12 9.10.2.21" in step.detail
    assert "-cu13 9.14.0.64" in step.detail
    assert "brings that file, too, and what was installed last is there" in step.detail
    command = "pip install --force-reinstall --no-deps nvidia-cudnn-cu13==9.14.0.64"
    assert (step.ok, step.hint) == (True, command)


def test_the_command_is_that_of_the_plugins_cuda(tmp_path):
    """Many libraries have one name in each CUDA; the extra `cuda` is that of the newest."""
    world = world_of(tmp_path, {})
    twelve = CUDA13._replace(name="cuda12")
    opening = opening_of(tmp_path, world, ())._replace(manifest=twelve, names=(DNN,))
    [step] = [each for each in dependencies.report(opening, world) if DNN in each.detail]
    assert step.hint == "pip install 'pjrt-hub[cuda12]'"


def test_what_is_fetched_mends_what_was_fetched(tmp_path):
    world = world_of(tmp_path, {})
    opening = opening_of(tmp_path, world, ())._replace(mend="pjrt-hub fetch cuda13")
    hints = {
        each.hint for each in dependencies.report(opening, world) if "not found" in each.detail
    }
    assert hints == {"pjrt-hub fetch cuda13"}


def test_what_an_import_loads(tmp_path):
    """The files of a process that has imported it; a framework that fails is told."""
    own = dnn(tmp_path / "own")
    (tmp_path / "frame.py").write_text(f"import ctypes\nctypes.CDLL({str(own)!r})\n")
    (tmp_path / "broken.py").write_text("raise OSError('no libcudart')\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert own in mapped.code_files_after(["frame"], env, 60)
    with pytest.raises(FrameworkError, match="broken cannot be imported: OSError: no libcudart"):
        mapped.code_files_after(["frame", "broken"], env, 60)
    assert not any(Path(each) == own for each in mapped.code_files())
