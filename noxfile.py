"""The checks of the project: `nox` before a commit, `nox -s unit` for one part, `nox -l` to list.

`nox -t long` runs the others that every change must pass; what is left is for the night.

The tests run against the built wheel, never against the source tree: what they pass is what ships.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import nox
from nox.command import CommandFailed
from packaging.requirements import Requirement

nox.needs_version = ">=2025.10.16"
nox.options.default_venv_backend = "uv|virtualenv"  # uv installs in seconds what takes pip minutes
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"
# uv compiles no bytecode. Each of the thousands of child processes would compile what it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).parent
GROUPS = nox.project.load_toml("pyproject.toml")
REPORTS = ROOT / ".nox" / "reports"
WHEELS = ROOT / ".nox" / "dist"
#: `wheels` leaves the files of a release here. `.nox/release` is the environment of that session.
RELEASE = ROOT / ".nox" / "wheelhouse"
built: list[Path] = []
#: The options of tests without timing, which mostly wait for compilers and child processes.
SPREAD = (f"--numprocesses={min(max(os.cpu_count() or 2, 2), 8)}", "--dist=loadfile")
#: The tests that run on every release of JAX.
JAX_TESTS = (
    *("jax/test_programs.py", "jax/test_linear_algebra.py", "jax/test_registering.py"),
    *("jax/test_exporting.py", "-k", "three_programs or own_client or wins or first_one or give"),
)
#: A JAX whose XLA is as old as the CPU plugin's; it needs Python 3.12 or newer.
SAME_XLA = ("flatbuffers>=24", "jax==0.11.2")
#: The generations of the CPU plugin: PJRT API -> its dependency group. Other sessions use the
#: first.
GENERATIONS = {"0.115": "cpu", "0.106": "cpu_0_106", "0.81": "cpu_0_81"}
#: The forge's files, by the schema that checks them.
FORGE = {
    "github-workflows": ".github/workflows/*.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "dependabot": ".github/dependabot.yml",
}
#: The parts that also run on other systems, except `native_log`, which belongs to the runtime.
PORTABLE = "pjrt_hub/errors.py pjrt_hub/base pjrt_hub/finding pjrt_hub/door pjrt_hub/cli"
#: What the sessions for every change leave to the session `night`.
BY_DAY = "not night"
TYPE_CHECKS = ("mypy", "mypy benchmarks", "mypy tests/cpu/test_typed_calls.py")
#: mypy as on macOS and Windows, where Python's library has other contents.
FOREIGN_TYPE_CHECKS = tuple(
    f"mypy --platform={system} --cache-dir=.mypy_cache/{system} --follow-imports=silent "
    f"--exclude=native_log {PORTABLE}"
    for system in ("darwin", "win32")
)
#: What pytest runs for each part that is not simply a folder, named from tests/. Each part has a
#: process of its own, since a part may hold a client, fork, or look at its process.
PARTS = {
    "layers": (*SPREAD, *sorted(path.name for path in ROOT.glob("tests/test_*.py"))),
    "unit": (*SPREAD, "unit", "fuzz"),
    "fake": (*SPREAD, "fake"),
    "cpu": (*SPREAD, "cpu"),
    "loader": (*SPREAD, "loader"),
    "cpu_older": (*SPREAD, "cpu", "--ignore-glob=cpu/test_discrete*"),
    "cpu_discrete": (
        *SPREAD,
        *sorted(f"cpu/{path.name}" for path in ROOT.glob("tests/cpu/test_discrete*")),
    ),
    "absent_functions": ("cpu/test_absent_functions.py",),
    "docs": (*SPREAD, "docs"),
    "examples": (
        *("examples", "--ignore=examples/test_serve.py", "--ignore=examples/test_cluster.py"),
    ),
    "jax": ("jax", "--ignore=jax/test_jax_tests.py", "authoring/test_native.py::test_jax_runs_it"),
    "jax_bridge": ("jax", "--ignore=jax/test_jax_tests.py", "--ignore=jax/test_topologies.py"),
    "jax_releases": JAX_TESTS,
    "jax_tests": ("jax/test_jax_tests.py",),
    "jax_topologies": ("jax/test_topologies.py",),
    "hosts": ("hosts", "-k", "JAX or pypjrt"),
    "hosts_jax": ("hosts", "-k", "JAX"),
    "backend": (*SPREAD, "backend", "docs/test_python_plugins.py"),
    "vendor": (
        *("vendor", "examples/test_ahead_of_time.py"),
        "faults/test_archives.py::test_no_wheel_of_a_vendor_is_refused",
    ),
    "authoring": (*SPREAD, "authoring"),
    "conformance": (*SPREAD, "conformance", "--ignore=conformance/test_discrete.py"),
    "check": ("conformance/test_discrete.py",),
    "conformance_cpu": ("conformance/test_cpu_plugin.py",),
    "benchmarks": (*SPREAD, "docs/test_entered_benchmarks.py"),
    "wheel": ("wheel", "--ignore=wheel/test_freezing.py"),
    "freezing": ("wheel/test_freezing.py",),
    "serving": (
        *("examples/test_serve.py", "examples/test_cluster.py"),
        "docs/test_entered_benchmarks.py::test_it_runs[serving]",
    ),
    "foreign": ("-rA", "foreign"),
    "torch": ("torch", "--ignore=torch/test_operations.py"),
    "torch_operations": (*SPREAD, "torch/test_operations.py"),
    "hosts_torch_tpu": ("hosts/test_profiles.py::test_the_profile_is_what_is_measured[TorchTPU]",),
    "torch_xla": (
        *("torch_xla", "authoring/test_new.py::test_torch_xla_registers_it"),
        "tracing/test_torch_xla.py",
    ),
    "hosts_torch_xla": ("hosts/test_profiles.py::test_the_profile_is_what_is_measured[torch_xla]",),
}

#: The sessions that run the part of their name -> its groups beside `test`, and what it is.
SINGLE = {
    "layers": ("", "Layers, the rules of the house, the public names, the order of the C files."),
    "unit": ("", "Everything that needs no native plugin."),
    "fake": ("", "Plugins made of a few lines of C, one fault each."),
    "cpu": ("cpu weights", "The real XLA CPU plugin."),
    "examples": (
        "cpu exported weights",
        "The examples as a user runs them, but for the server's and the cluster's.",
    ),
    "exported": ("cpu exported", "Functions that JAX and torch_xla exported, run without them."),
    "jax": ("cpu bench weights", "JAX on the real XLA CPU plugin, as pjrt-hub registers it."),
    "hosts": (
        "cpu bench hosts",
        "JAX and pypjrt without each function of a plugin, as their profiles say; three minutes.",
    ),
    "vendor": ("cpu vendor", "Real CUDA and TPU plugins, without their hardware."),
    "wheel": (
        "uv",
        "The wheel by itself, installed in a clean environment of each Python that is here.",
    ),
    "freezing": (
        "uv",
        "Programs that PyInstaller and cx_Freeze make of the wheel and a plugin; for the night.",
    ),
    "conformance": (
        "cpu vendor corpus",
        "The suite for plugins: on the CPU plugin, on defects, and on vendors' without hardware.",
    ),
    "tracing": (
        "cpu bench",
        "JAX and pjrt-hub itself seen through the layers, with a hundred exits; two minutes.",
    ),
    "backend": (
        "cpu bench",
        "Plugins in Python under JAX, the suite, a host in C and random programs; four minutes.",
    ),
    "authoring": (
        "cpu vendor",
        "A plugin's package from an empty folder to JAX's devices, as docs/authoring.md says.",
    ),
    "serving": (
        "cpu serving weights",
        "MiniLM behind HTTP and on a Dask cluster, under load and with processes that die.",
    ),
    "foreign": (
        "cpu bench",
        "Plugins built elsewhere, TESTED_PLUGINS=name=/path/lib.so,..., and the CPU plugin as one.",
    ),
}


def group(*names: str) -> list[str]:
    """Give the requirements of dependency groups."""
    return list(nox.project.dependency_groups(GROUPS, *names))


def unpinned(*names: str) -> list[str]:
    """Give the requirements of dependency groups without their versions.

    The plugin of CUDA 12 stays out: beside one of 2024 JAX's own discovery crashes.
    """
    wanted = [Requirement(each) for each in group(*names)]
    kept = [each for each in wanted if "cuda12" not in each.name]
    return sorted({f"{each.name}[{','.join(each.extras)}]" for each in kept})


def wheel(session: nox.Session) -> Path:
    """Build the wheel once per run of nox, unless TESTED_WHEEL names one."""
    if named := os.environ.get("TESTED_WHEEL"):
        return Path(named)
    if not built:
        for old in WHEELS.glob("*.whl"):
            old.unlink()
        session.install("pip")  # uv's environments come without it
        pip = ("python", "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={WHEELS}")
        session.run(*pip, ".")
        built.extend(WHEELS.glob("*.whl"))
    return built[0]


def install_wheel(session: nox.Session, *requirements: str) -> None:
    """Install the wheel, even where an older build of the same version is there.

    The newest CPU plugin says that it requires JAX, which it does not, and few tests want; and the
    weights what trains and downloads them.
    """
    alone = {each for each in requirements if each.startswith("lammps-jax-pjrt-cpu")}
    alone |= {*group("weights")} & {*requirements}
    session.install(str(wheel(session)), *(each for each in requirements if each not in alone))
    session.install("--force-reinstall", "--no-deps", str(wheel(session)), *sorted(alone))


def pytest(session: nox.Session, *parts: str, only: str = "", **env: str) -> None:
    """Run each part, and fail at the end; none collected is a failure (pytest's status 5).

    Args:
        session: the session.
        parts: names of PARTS, or folders; what follows `--` on nox's command line stands for all.
        only: which tests of them, as pytest's `-m` says it.
        env: variables of the tests.
    """
    runs = {part: PARTS.get(part, (part,)) for part in parts}
    if session.posargs:
        runs = {"asked": tuple(session.posargs)}
    chosen = ("-m", only) if only and not session.posargs else ()
    tested = env if "TESTED_WHEEL" in env else {"TESTED_WHEEL": str(wheel(session)), **env}
    failed = []
    # From there, neither a test nor its child sees the checkout's pjrt_hub, which is not compiled.
    # Of two sessions at once that share pytest's folder in /tmp, one may fail as it cleans up.
    with session.chdir("tests"), TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tested["PYTEST_DEBUG_TEMPROOT"] = folder
        for part, tests in runs.items():
            name = "-".join(filter(None, (session.name, part, env.get("PJRT_HUB_LAYERS"))))
            report = f"--junit-xml={REPORTS / name}.xml"
            try:
                session.run("pytest", report, *chosen, *tests, env=tested)
            except CommandFailed:
                failed.append(part)
    if failed:
        session.error(f"failed: {', '.join(failed)}")


def check_style(session: nox.Session) -> None:
    """Run ruff and typos."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("typos")


@contextmanager
def check_types(session: nox.Session) -> Iterator[None]:
    """Run mypy, which uses one core for a while, beside the body."""
    path = os.pathsep.join((session.bin, os.environ["PATH"]))
    command = ["sh", "-ec", "\n".join(TYPE_CHECKS)]
    mypy = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PATH": path})
    try:
        yield
    finally:
        failed = mypy.wait()
    if failed:
        session.error("failed: mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """What to run before each commit: style, types, and every test that is quick."""
    install_wheel(session, *group("style", "types", "test", "cpu"))
    if session.posargs:
        pytest(session)
        return
    check_style(session)
    with check_types(session):  # Tests that only read files run meanwhile.
        pytest(session, "layers", "docs", "wheel", only="not slow")
    pytest(session, "unit", "loader", "fake", "cpu", only="not slow")


@nox.session(default=False, tags=["long"])
def slow(session: nox.Session) -> None:
    """What `tests` leaves out of `unit`, `fake` and `cpu`; other sessions run the rest."""
    install_wheel(session, *group("test", "cpu", "notebook", "weights"), "uv")
    pytest(session, "unit", "fake", "cpu", only=f"slow and {BY_DAY}")


@nox.session(default=False)
def night(session: nox.Session) -> None:
    """The tests that the sessions for every change leave out, as they take long."""
    install_wheel(session, *group("test", "cpu", "bench", "exported", "weights"))
    parts = ("unit", "fake", "cpu", "exported", "jax", "tracing", "backend", "conformance")
    pytest(session, *parts, only="night")


@nox.session(default=False, tags=["long"])
def beside_jax(session: nox.Session) -> None:
    """The parts beside JAX: exported, examples, jax, tracing, backend, benchmarks."""
    install_wheel(session, *group("test", "cpu", "bench", "exported", "weights"))
    pytest(session, "exported", "examples", "jax", "tracing", "backend", "benchmarks", only=BY_DAY)


@nox.session(default=False, tags=["long"])
def beside_vendors(session: nox.Session) -> None:
    """The parts on vendors' plugins: vendor, conformance, authoring."""
    install_wheel(session, *group("test", "cpu", "vendor", "corpus"))
    pytest(session, "vendor", "conformance", "authoring", only=BY_DAY)


@nox.session(default=False)
@nox.parametrize("api", ["0.106", nox.param("0.81", tags=["long"])])
def generations(session: nox.Session, api: str) -> None:
    """What of cpu and conformance is not about one build or `discrete`, on older CPU plugins."""
    install_wheel(session, *group("test", GENERATIONS[api], "corpus", "weights"))
    pytest(session, "cpu_older", "conformance_cpu", only="not slow")


@nox.session(default=False)
@nox.parametrize("api", [nox.param("0.115", tags=["long"]), *list(GENERATIONS)[1:]])
def discrete(session: nox.Session, api: str) -> None:
    """What is not about the CPU alone, on an accelerator in software: the layer `discrete`."""
    install_wheel(session, *group("test", GENERATIONS[api], "weights"))
    on = {"TESTED_PLATFORM": "cpu", "PJRT_HUB_LAYERS": "discrete"}
    pytest(session, "cpu", "check", only="not slow", **on)


@nox.session(default=False)
@nox.parametrize("api", list(GENERATIONS))
def bridges(session: nox.Session, api: str) -> None:
    """JAX, exported functions and `discrete` on older CPU plugins; and absent functions."""
    install_wheel(session, *group("test", GENERATIONS[api], "exported", "weights"))
    on = {"TESTED_PLATFORM": "cpu", "PJRT_HUB_LAYERS": "discrete"}
    pytest(session, "exported", only="not slow", **on)
    # JAX is older than the plugin, which expects structs of its own sizes.
    pytest(session, "jax_bridge", only="not slow", **on | {"PJRT_HUB_LAYERS": "discrete,pad"})
    if api != "0.115":  # Other sessions run this on the newest.
        pytest(session, "exported", "jax_bridge", "cpu_discrete", only="not slow")
        pytest(session, "absent_functions")


@nox.session(default=False, tags=["long"], python="3.11")
def wheels(session: nox.Session) -> None:
    """Every wheel of a release, audited, into .nox/wheelhouse; the one for here in use."""
    # This is the oldest supported Python, because its headers are those of the stable ABI.
    shutil.rmtree(RELEASE, ignore_errors=True)
    session.install(*group("test", "wheels"), "uv")
    session.run("python", "tools/wheels.py", str(RELEASE))
    [here] = RELEASE.glob(f"*manylinux*_{platform.machine()}.whl")
    session.install("--force-reinstall", "--no-deps", str(here))
    session.install(str(here))
    pytest(session, "release", "wheel", TESTED_RELEASE=str(RELEASE), TESTED_WHEEL=str(here))


@nox.session(default=False, tags=["long"])
def clusters(session: nox.Session) -> None:
    """The parts that start servers and clusters: dask, ray, serving."""
    install_wheel(session, *group("test", "cpu", "dask", "ray", "serving", "weights"))
    pytest(session, "dask", "ray", "serving")


@nox.session(default=False, tags=["long"])
def lint(session: nox.Session) -> None:
    """Style and format of the Python files, spelling everywhere, workflows, and the Dockerfile."""
    session.install(*group("style", "lint"))
    check_style(session)
    session.run("zizmor", "--offline", "--quiet", "--strict-collection", ".")
    session.run("hadolint", "Dockerfile")
    for schema, files in FORGE.items():
        found = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(files))
        session.run("check-jsonschema", "--quiet", "--builtin-schema", f"vendor.{schema}", *found)


@nox.session(default=False)
def actionlint(session: nox.Session) -> None:
    """The forge's workflows, by actionlint, whose package downloads it from the forge."""
    session.install(*group("actionlint"))
    session.run("actionlint")


@nox.session(default=False, tags=["long"])
def types(session: nox.Session) -> None:
    """Types, strictly, here and as on macOS and Windows."""
    install_wheel(session, *group("types"))
    for command in (*TYPE_CHECKS, *FOREIGN_TYPE_CHECKS):
        session.run(*command.split())


@nox.session(default=False, tags=["long"])
def faults(session: nox.Session) -> None:
    """Kills, power cuts, failing disks and servers, hostile archives; prints its counts."""
    install_wheel(session, *group("test", "cpu"))
    pytest(session, "faults")


@nox.session(default=False, tags=["long"])
def loader(session: nox.Session) -> None:
    """The loader in C: its specification, plugins, fuzzing, other systems, models in its hosts."""
    install_wheel(session, *group("test", "cpu", "clang", "exported", "weights"))
    pytest(session, "loader", TESTED_SECONDS="20")


@nox.session(default=False, tags=["long"])
def interop(session: nox.Session) -> None:
    """Frameworks beside the real XLA CPU plugin, sharing memory."""
    install_wheel(session, *group("test", "cpu", "interop"))
    pytest(session, "interop")


@nox.session(default=False)
@nox.parametrize("release", [nox.param("0.4.33", tags=["long"]), "0.4.38", "0.6.2", "0.8.3"])
def jax_releases(session: nox.Session, release: str) -> None:
    """The same programs and linear algebra on older releases, the oldest that runs among them."""
    # These existed when those releases appeared; the newest are built for another numpy.
    older = ["absl-py", "numpy<2.1", "scipy<1.15"] if release.startswith("0.4") else []
    install_wheel(session, *group("test", "cpu"))
    session.install(f"jax=={release}", f"jaxlib=={release}", "flatbuffers>=24", *older)
    pytest(session, "jax_releases", only=BY_DAY)


@nox.session(default=False, python="3.13")
@nox.parametrize("release", ["0.11.2", nox.param("0.12.0.1", tags=["long"])])
def jax_newest(session: nox.Session, release: str) -> None:
    """The same on newer ones, skipped where Python 3.13 is not; `newest` runs all on the newest."""
    install_wheel(session, *group("test", "cpu"))
    session.install(f"jax=={release}", f"jaxlib=={release}", "flatbuffers>=24")
    pytest(session, "jax_releases", only=BY_DAY)


@nox.session(default=False)
@nox.parametrize("release", ["0.4.38", "0.6.2", "0.8.3"])
def hosts_releases(session: nox.Session, release: str) -> None:
    """The same of older releases of JAX, three minutes each; for the night."""
    older = ["numpy<2.1", "scipy<1.15"] if release.startswith("0.4") else []
    install_wheel(session, *group("test", "cpu", "hosts"))
    session.install(f"jax=={release}", f"jaxlib=={release}", *older)
    pytest(session, "hosts_jax")


@nox.session(default=False, tags=["long"])
def jax_topologies(session: nox.Session) -> None:
    """Vendors' plugins without their hardware under JAX's ahead-of-time compilation."""
    # JAX's own discovery crashes if the plugin of 2024 is installed beside a current JAX.
    vendors = [each for each in group("vendor") if "cuda12" not in each]
    install_wheel(session, *group("test", "cpu", "bench"), *vendors)
    pytest(session, "jax_topologies")


@nox.session(default=False, python="3.11")
def aarch64(session: nox.Session) -> None:
    """The parts unit and fake, and a program on the CPU plugin, on an emulated aarch64; as root."""
    session.install(*group("wheels"))
    session.run("python", "tools/wheels.py", str(RELEASE), "manylinux_2_17_aarch64")
    [path] = RELEASE.glob("*manylinux*_aarch64.whl")
    session.run("python", "tools/aarch64.py", str(path), *(session.posargs or ("unit", "fake")))


@nox.session(default=False, tags=["long"])
def docs(session: nox.Session) -> None:
    """The site, built into .nox/site; links, the generated pages, docstrings, the pages' code."""
    install_wheel(session, *group("docs", "cpu"))
    session.run("mkdocs", "--quiet", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})
    pytest(session, "docs", TESTED_SITE=str(ROOT / ".nox" / "site"))


@nox.session(default=False, python="3.11")
def lowest(session: nox.Session) -> None:
    """The oldest release of each dependency that pyproject.toml allows."""
    install_wheel(session, *group("test", "cpu"), "uv")
    oldest = Path(session.create_tmp()) / "oldest.txt"
    solve = ("uv", "pip", "compile", "--quiet", "--resolution=lowest-direct", "--python", "3.11")
    session.run(*solve, "--output-file", str(oldest), "pyproject.toml")
    session.run("uv", "pip", "install", "--requirements", str(oldest))
    pytest(session, "unit", "fake", "cpu", only="not slow")


@nox.session(default=False, python="3.13")
def newest(session: nox.Session) -> None:
    """The newest release of each dependency and framework, whatever the groups pin."""
    install_wheel(session, *group("cpu", "weights"))
    session.install("--upgrade", *unpinned("test", "interop", "exported", "dask", "ray", "hosts"))
    pytest(session, "unit", "interop", "exported", "jax", "dask", "ray", "hosts_jax")
    # These come last: beside them, JAX reports for each plugin that its hardware is absent.
    session.install("--upgrade", *unpinned("vendor"))
    pytest(session, "jax_topologies")
    session.run("python", "-m", "pip", "list")


@nox.session(default=False)
def faults_full(session: nox.Session) -> None:
    """The same with every number as large as docs/reliability.md says, and with the CPU plugin."""
    install_wheel(session, *group("test", "cpu"))
    pytest(session, "faults", TESTED_FAULTS="full")


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """The real XLA CPU plugin in random and in endless use, half an hour; for the night."""
    install_wheel(session, *group("test", "cpu"))
    pytest(session, "soak")


@nox.session(default=False)
def closures(session: nox.Session) -> None:
    """CUDA's plugins and all that they require, in bundles; 6 GB of downloads, for the night."""
    install_wheel(session, *group("test"))
    pytest(session, "closures")


@nox.session(default=False)
def fuzz(session: nox.Session) -> None:
    """Every parser of what others wrote, for ten minutes or the seconds given; for the night."""
    install_wheel(session, *group("test", "fuzz"))
    session.run("python", "tests/fuzz", f"{ROOT}/.nox/fuzz", *(session.posargs or ["600"]))


@nox.session(default=False)
def gpu(session: nox.Session) -> None:
    """The NVIDIA GPU that is here: tests, checks and figures, beside JAX on it."""
    install_wheel(session, *group("test", "exported"), "jax[cuda13]")
    session.run("python", "tools/gpu/run.py", *session.posargs)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure against raw C, JAX and others; `nox -s bench -- --page` rewrites the page."""
    install_wheel(session, *group("bench", "cpu", "serving", "peers", "charts", "weights"))
    session.install(*group("interop"))  # Calls and the server are measured beside torch.
    session.run("python", "benchmarks", *session.posargs)


@nox.session(default=False, python="3.13")
def bench_same_xla(session: nox.Session) -> None:
    """Measure calls and programs beside the JAX of the plugin's own XLA, and rewrite the page."""
    install_wheel(session, *group("cpu", "charts"), *SAME_XLA)
    session.run("python", "benchmarks", "--same-xla", *(session.posargs or ("call", "compute")))


@nox.session(default=False, python="3.13")
def bench_gate(session: nox.Session) -> None:
    """Judge what must hold of calls, transfer, starts and programs, beside that JAX."""
    install_wheel(session, *group("cpu"), *SAME_XLA)
    session.run("python", "benchmarks/gate.py", *session.posargs)


@nox.session(default=False)
def jax_tests(session: nox.Session) -> None:
    """JAX's own test cases on the CPU plugin; `nox -s jax_tests -- jax/tests` adds JAX's files."""
    install_wheel(session, *group("cpu", "jax_tests", "test"))
    if not session.posargs:
        pytest(session, "jax_tests")  # They test the tool itself.
    session.run("python", "tools/jax_tests", f"--json={REPORTS}/jax_tests.json", *session.posargs)


@nox.session(default=False, python="3.13")
@nox.parametrize("release", ["torch", "torch_oldest"], ids=["newest", "oldest"])
def torch(session: nox.Session, release: str) -> None:
    """TorchTPU on the CPU plugin and on `discrete`: operations and models; 5 GB a release."""
    install_wheel(session, *group("test", "cpu", release, "weights"))
    pytest(session, "torch", "torch_operations")
    pytest(session, "torch", "torch_operations", PJRT_HUB_LAYERS="discrete")
    if release == "torch":
        pytest(session, "hosts_torch_tpu")


@nox.session(default=False)
@nox.parametrize("release", ["torch_xla", "torch_xla_oldest"], ids=["newest", "oldest"])
def torch_xla(session: nox.Session, release: str) -> None:
    """torch_xla on found plugins, on authors', and seen through the layers; 7 GB a release."""
    install_wheel(session, *group("test", "cpu_0_81", release, "weights"))
    profiled = ["hosts_torch_xla"] if release == "torch_xla" else []
    pytest(session, "torch_xla", *profiled)


@nox.session(default=False)
def release(session: nox.Session) -> None:
    """Make a release: `nox -s release -- 0.2.0`, with `--dry-run` to undo it all in the end."""
    session.install(*group("release"))
    session.run("python", "tools/release.py", *session.posargs)


def run_part(session: nox.Session) -> None:
    """Run the part that has the session's name."""
    name = session.name
    install_wheel(session, *group("test", *SINGLE[name][0].split()))
    pytest(session, name)


for part, (_, what) in SINGLE.items():
    nox.session(run_part, name=part, default=False).__doc__ = what
