"""What `doctor` says about an installed JAX, compared with what JAX's start really loads."""

import json
import os
import sys
from pathlib import Path

import finished
import pytest
from test_dependencies import CU13, CUDNN, DNN, RUN_PATHS, build, dnn, in_path, installed, traced
from trees import OLD, plugin_bytes

from pjrt_hub.base.host import HostTag
from pjrt_hub.door.diagnosis import Step
from pjrt_hub.finding.discovery.installed import Installed
from pjrt_hub.finding.discovery.source import World
from pjrt_hub.finding.store.catalog import Catalog, shipped_registry
from pjrt_hub.frameworks.jax import diagnosis, start

MODULE = "jax_plugins.xla_cuda13"
#: A module like the vendor's, which loads packages' libraries, registers, and prints its import.
SOURCE = """
import ctypes, importlib, pathlib, sys
print("IMPORTED", file=sys.stderr)
def _load(module, libraries):
    try:
        folder = importlib.import_module(f"nvidia.{module}").__path__[0]
    except ImportError:
        return
    for library in libraries:
        try:
            ctypes.cdll.LoadLibrary(pathlib.Path(folder) / "lib" / library)
        except OSError:
            pass
def _load_all():
    _load("cuda_runtime", ["libcudart.so.12"])
    _load("cu13", ["libcublas.so.13", "libcublasLt.so.13"])
    _load("cudnn", ["libcudnn.so.9"])
def initialize():
    _load_all()
    path = pathlib.Path(__file__).parent / "xla_cuda_plugin.so"
    options = None
    xb.register_plugin(
        "cuda", priority=500, library_path=str(path), options=options)
"""
#: Code that loads what the module loads and prints the file that the plugin gets for each name.
LOADER = """
import ctypes, json, pathlib, sys
import jax_plugins.xla_cuda13 as module
module._load_all()
plugin = ctypes.CDLL(str(pathlib.Path(module.__file__).parent / "xla_cuda_plugin.so"))
plugin.opened.restype = ctypes.c_char_p
print(json.dumps([plugin.opened(name.encode()).decode() for name in sys.argv[1:]]))
"""
JAX = ["jaxlib<=0.10.2,>=0.10.1", 'jaxlib==0.10.1; extra == "minimum-jaxlib"']
JAX += ['jax-cuda13-plugin[with-cuda]<=0.10.2,>=0.10.2; extra == "cuda13"']
PLUGIN = ["jax-cuda13-pjrt==0.10.2", 'nvidia-cudnn-cu13<10.0,>=9.12; extra == "with-cuda"']
PACKAGES = {"jax": JAX, "jaxlib": [], "jax-cuda13-plugin": PLUGIN, "jax-cuda13-pjrt": []}


def jax(site: Path, **versions: str) -> Path:
    """An installed JAX for CUDA 13, of which only the plugin's module can be imported."""
    site.mkdir(parents=True, exist_ok=True)
    folder = site / "jax_plugins" / "xla_cuda13"
    build(folder / "xla_cuda_plugin.so", flags=(OLD + RUN_PATHS,))
    (folder / "__init__.py").write_text(SOURCE)
    for name, requires in PACKAGES.items():
        if version := versions.get(name.replace("-", "_"), "0.10.2"):
            files = [folder / "xla_cuda_plugin.so"] if name == "jax-cuda13-pjrt" else []
            installed(site, name, version, *files)
            info = site / f"{name.replace('-', '_')}-{version}.dist-info"
            with (info / "METADATA").open("a") as metadata:
                metadata.writelines(f"Requires-Dist: {each}\n" for each in requires)
            if files:
                text = f"[jax_plugins]\nxla_cuda13 = {MODULE}\n"
                (info / "entry_points.txt").write_text(text)
    for name in ("jax", "jaxlib"):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("raise SystemExit('JAX was imported')\n")
    return site


NO_ROWS = Catalog([])


def steps_of(root: Path, env: dict[str, str] | None = None, catalog: Catalog = NO_ROWS):
    paths = (str(root / "user"), str(root / "site"))
    world = World(env or {}, HostTag.current(), Installed(paths), catalog, root=root / "machine")
    return list(diagnosis.report(world))


def say(steps: list[Step], what: str) -> list[tuple[bool, str]]:
    return [(step.ok, step.detail) for step in steps if step.what == what]


def add_gpu(root: Path) -> None:
    (root / "machine" / "dev").mkdir(parents=True)
    (root / "machine" / "dev" / "nvidia0").touch()


def test_without_jax(tmp_path):
    step = Step("jax", False, "JAX is not installed here", "pip install jax")
    assert steps_of(tmp_path) == [step]


FITTING = "jax 0.10.2, jaxlib 0.10.2, jax-cuda13-plugin 0.10.2, jax-cuda13-pjrt 0.10.2"


@pytest.mark.parametrize(
    ("versions", "says", "hint"),
    [
        ({}, FITTING, ""),
        (
            {"jaxlib": "0.11.0"},
            "jaxlib 0.11.0, of which jax 0.10.2 takes <=0.10.2,>=0.10.1",
            "pip install 'jax==0.10.2'",
        ),
        (
            {"jax_cuda13_plugin": "0.10.1"},
            "jaxlib 0.10.2 leaves out the kernels of jax-cuda13-plugin 0.10.1, because its version "
            "is another",
            "pip install 'jax[cuda13]==0.10.2'",
        ),
        (
            {"jax_cuda13_pjrt": "0.9.0"},
            "jax-cuda13-pjrt 0.9.0, of which jax-cuda13-plugin 0.10.2 takes ==0.10.2",
            "pip install 'jax==0.10.2'",
        ),
        ({"jaxlib": ""}, "jax 0.10.2 without jaxlib", "pip install 'jax==0.10.2'"),
    ],
)
def test_packages_that_fit_and_do_not(tmp_path, versions, says, hint):
    jax(tmp_path / "site", **versions)
    steps = [step for step in steps_of(tmp_path) if step.what == "jax"]
    assert Step("jax", not hint, says, hint) in steps
    assert hint or len(steps) == 1


def test_what_is_registered(tmp_path):
    site = jax(tmp_path / "site")
    other = site / "jax_plugins" / "toy"
    other.mkdir()
    (other / "__init__.py").write_text("def initialize(): register_plugin(name(), priority=9)\n")
    toy = (
        "jax_plugins.toy registers a platform that its source does not name, priority 9, and has "
        "no library for this machine in its folder"
    )
    cuda = (
        f"{MODULE} of jax-cuda13-pjrt 0.10.2 registers cuda, priority 500, and loads "
        f"{site}/jax_plugins/xla_cuda13/xla_cuda_plugin.so"
    )
    assert say(steps_of(tmp_path), "registers") == [(True, toy), (True, cuda)]


def test_two_modules_of_one_platform(tmp_path):
    other = jax(tmp_path / "site") / "jax_plugins" / "xla_cuda12"
    build(other / "xla_cuda_plugin.so")
    (other / "__init__.py").write_text(SOURCE)
    both = f"jax_plugins.xla_cuda12 and {MODULE} register 'cuda': JAX takes the one or the other"
    assert (False, both) in say(steps_of(tmp_path), "registers")


def test_a_variable_that_names_no_library(tmp_path):
    jax(tmp_path / "site")
    steps = steps_of(tmp_path, {"PJRT_NAMES_AND_LIBRARY_PATHS": "toy:/nowhere/toy.so"})
    says = "PJRT_NAMES_AND_LIBRARY_PATHS registers toy, and loads /nowhere/toy.so, which is no file"
    assert (False, says) in say(steps, "registers")
    assert say(steps, "variables") == [(True, "PJRT_NAMES_AND_LIBRARY_PATHS=toy:/nowhere/toy.so")]


LEFT_OUT = "cuda is left out: none of /dev/nvidia0, /dev/nvidiactl, /dev/dxg exists"
FAILS = "JAX_PLATFORMS={} fails: nothing registers {}; there are cpu, cuda"
FIRST = "the first is the default"


@pytest.mark.parametrize(
    ("said", "has_gpu", "says"),
    [
        ("", True, [(True, f"cuda, cpu, by priority: {FIRST}")]),
        ("", False, [(True, LEFT_OUT), (True, f"cpu, by priority: {FIRST}")]),
        ("cpu,cuda", True, [(True, f"cpu, cuda, by JAX_PLATFORMS: {FIRST}")]),
        ("cuda", False, [(False, LEFT_OUT)]),
        ("metal", False, [(False, FAILS.format("metal", "metal"))]),
        (
            "gpu",
            True,
            [
                (False, FAILS.format("gpu", "rocm, oneapi")),
                (True, f"cuda, by JAX_PLATFORMS: {FIRST}"),
            ],
        ),
    ],
)
def test_platforms(tmp_path, said, has_gpu, says):
    jax(tmp_path / "site")
    if has_gpu:
        add_gpu(tmp_path)
    steps = steps_of(tmp_path, {"JAX_PLATFORMS": said} if said else {})
    assert say(steps, "platforms") == says


def ours(root: Path, asked: str, platforms: str = "") -> list[Step]:
    """The steps where pjrt-hub's own entry point is installed too, and asked for platforms."""
    site = jax(root / "site")
    installed(site, "pjrt-hub", "0.1")
    points = "[jax_plugins]\npjrt_hub = pjrt_hub.frameworks.jax\n"
    (site / "pjrt_hub-0.1.dist-info" / "entry_points.txt").write_text(points)
    return steps_of(root, {"PJRT_HUB_JAX": asked, "JAX_PLATFORMS": platforms})


def first_lines(steps: list[Step], what: str) -> list[tuple[bool, str]]:
    return [(ok, text.partition("\n")[0]) for ok, text in say(steps, what)]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("{}", ["toy"]),
        ("{}, mine = {},{}", ["toy", "mine"]),
        ("jax={}", ["jax"]),
    ],
)
def test_what_pjrt_hub_registers(tmp_path, asked, names):
    library = tmp_path / "libtoy.so"
    library.write_bytes(plugin_bytes())
    steps = ours(tmp_path, asked.replace("{}", str(library)))
    told = [each for each in say(steps, "registers") if "PJRT_HUB_JAX" in each[1]]
    assert told == [
        (True, f"PJRT_HUB_JAX registers {name}, priority {1000 - i}, and loads {library}")
        for i, name in enumerate(names)
    ]
    assert say(steps, "platforms")[-1] == (True, f"{', '.join(names)}, cpu, by priority: {FIRST}")


FAILING = "nope fails, and with it JAX's start: no plugin for 'nope', which $PJRT_HUB_JAX asks for"


@pytest.mark.parametrize(
    ("platforms", "says"),
    [
        ("", [(True, LEFT_OUT), (False, FAILING)]),
        ("nope", [(False, FAILING)]),
        ("cpu", [(True, f"cpu, by JAX_PLATFORMS: {FIRST}")]),
    ],
)
def test_a_platform_that_pjrt_hub_cannot_open(tmp_path, platforms, says):
    assert first_lines(ours(tmp_path, "nope", platforms), "platforms") == says


def test_a_library_that_is_none(tmp_path):
    file = tmp_path / "libtoy.so"
    file.write_text("int main;")
    [*_, last] = say(ours(tmp_path, str(file)), "platforms")
    assert not last[0]
    assert f"{file} is not a shared library" in last[1]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("A=cpu", "PJRT_HUB_JAX is 'A=cpu', in which 'A=cpu' is not a platform"),
        ("cuda=nope", "the platform nope cannot be called 'cuda' in JAX: that name is another"),
    ],
)
def test_a_request_that_pjrt_hub_refuses(tmp_path, asked, says):
    [wrong] = [each for each in ours(tmp_path, asked) if each.what == "registers" and not each.ok]
    assert wrong.detail.startswith(says)
    assert wrong.hint.startswith(("write platforms", "leave the name out"))


def test_what_is_missing_is_a_no_where_a_gpu_is(tmp_path):
    jax(tmp_path / "site")
    assert say(steps_of(tmp_path), "opens")[-1][0]
    add_gpu(tmp_path)
    [missing] = [step for step in steps_of(tmp_path) if "not found: " in step.detail]
    assert (missing.ok, missing.hint) == (False, "pip install 'jax[cuda13]==0.10.2'")
    assert DNN in missing.detail


def test_versions_are_compared_with_those_of_the_release(tmp_path):
    """The registry pins another release, so the vendor's package tells what this one requires."""
    site = jax(tmp_path / "site")
    installed(site, "nvidia-cudnn-cu13", "9.8.0.87", dnn(site / CUDNN))
    installed(site, "nvidia-cublas", "12.0", build(site / CU13 / "libcublas.so.13"))
    told = "\n".join(
        step.detail for step in steps_of(tmp_path, catalog=Catalog([shipped_registry()]))
    )
    assert "it is 9.8.0.87, and the plugin takes <10.0,>=9.12 of nvidia-cudnn-cu13" in told
    assert "nvidia-cublas 12.0, loaded before the plugin\n" in told


#: Environment -> its folders with cuDNN, and other files.
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "one site": (f"site/{CUDNN}",),
    # The module only searches a package's first folder, which has no library here.
    "two sites": (f"site/{CUDNN}", "user/nvidia/cudnn/include/x.h"),
    "the user's first": (f"site/{CUDNN}", f"user/{CUDNN}"),
    # A regular package hides all namespace folders of the same name.
    "a regular package": (f"site/{CUDNN}", f"user/{CUDNN}", "site/nvidia/__init__.py"),
    "the variable": ("other",),
    "the variable beside packages": (f"site/{CUDNN}", "other"),
    "the variable where the first folder is empty": (
        *(f"site/{CUDNN}", "user/nvidia/cudnn/include/x.h", "other"),
    ),
}


@pytest.mark.parametrize("made", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_the_winners_are_those_of_jaxs_start(made, tmp_path):
    for each in made:
        if Path(each).suffix:
            (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / each).touch()
        else:
            dnn(tmp_path / each)
    env = in_path(tmp_path / "other") if "other" in made else {}
    jax(tmp_path / "site")
    path = os.pathsep.join([str(tmp_path / "user"), str(tmp_path / "site")])
    command = [sys.executable, "-S", "-c", LOADER, DNN]  # -S hides installed packages
    printed, loader = traced(command, {**env, "PYTHONPATH": path})
    [theirs] = json.loads(printed)
    assert f"calling init: {theirs}\n" in loader
    told = [step.detail for step in steps_of(tmp_path, env) if step.what == "opens"]
    [ours] = [detail for detail in told if detail.startswith(f"{DNN}: ")]
    assert ours.partition(": ")[2].partition(",")[0] == os.path.normpath(theirs)


def test_nothing_of_jax_is_imported(tmp_path):
    jax(tmp_path / "site")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PJRT_HUB_LOCK": "0"}
    ran = finished.cli("doctor", "--jax", "--json", seconds=120, env=env)
    steps = json.loads(ran.stdout)
    registers = next(step["detail"] for step in steps if step["what"] == "registers")
    assert registers.startswith(MODULE)
    assert "IMPORTED" not in ran.stderr
    assert (ran.returncode, ran.stderr) == (0 if all(step["ok"] for step in steps) else 1, "")


def test_the_folder_of_compilers(tmp_path):
    site = str(tmp_path / "site")
    folder = tmp_path / "site" / "nvidia" / "cu13"

    def found(**env: str) -> str:
        return start.compiler_root(World(env, HostTag.current(), Installed((site,))))

    assert found() == ""
    assert found(CUDA_ROOT="/opt/mine") == "/opt/mine"
    folder.mkdir(parents=True)
    assert found() == "None"
    (folder / "bin").mkdir()
    (folder / "bin" / "ptxas").touch()
    assert found() == str(folder)
