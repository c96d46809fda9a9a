"""Fixtures and setup that every folder of tests shares: signals, the header, faulty plugins."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from faulty import FAULTS, THROWN

import pjrt_hub
from pjrt_hub.finding.store.catalog import Artifact, Catalog, shipped_registry

HERE = Path(__file__).parent
FAKE = HERE / "fake"
PACKAGE = Path(pjrt_hub.__file__).parents[1]


def pytest_configure() -> None:
    """Restore Ctrl-C, which a shell's background job and the children of its tests would ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def clean_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """This process's environment with a separate cache and without the user's choice of plugin."""
    choices = ("PJRT_", "JAX_", "XLA_", "STUB_", "TPU_", "ALLOW_MULTIPLE_LIBTPU_LOAD")
    if "TESTED_PLATFORM" in os.environ:  # the tester's own variables configure it
        choices = ("PJRT_HUB_CACHE", "STUB_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(choices)}
    return {**kept, "PJRT_HUB_CACHE": str(tmp_path_factory.mktemp("clean") / "cache")}


@pytest.fixture(scope="session")
def library() -> Path:
    """The library of the installed CPU plugin, of whichever generation."""
    return pjrt_hub.fetch("cpu", offline=True)


@pytest.fixture(scope="session")
def row(library: Path) -> Artifact:
    """The registry's row of the installed CPU plugin, with its measured versions."""
    rows = Catalog([shipped_registry()]).rows()
    [row] = (
        each
        for each in rows
        if library.match(each.library) and each.host.arch == platform.machine()
    )
    return row


@pytest.fixture
def environment(clean_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """A process's environment with a cache of its own and none of the user's choices."""
    python_path = os.pathsep.join(filter(None, [str(PACKAGE), clean_env.get("PYTHONPATH", "")]))
    return {**clean_env, "PYTHONPATH": python_path, "PJRT_HUB_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project's own files in a folder named `pjrt-hub`."""
    root = HERE.parent
    listed = ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (root / name).exists():  # git also lists files whose deletion is not committed yet
            target = tmp_path / "pjrt-hub" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target)
    return tmp_path / "pjrt-hub"


@pytest.fixture(scope="session")
def header_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `pjrt_api.h`."""
    folder = tmp_path_factory.mktemp("stubs")
    tools = str(HERE.parent / "tools")
    sys.path.insert(0, tools)
    import capi

    sys.path.remove(tools)
    (folder / "pjrt_api.h").write_text(capi.header(capi.read()))
    return folder


@pytest.fixture(scope="session")
def compiled(header_folder: Path) -> Callable[..., Path]:
    """`compiled("a.so", source, "-shared")` compiles C or C++ to a file beside `pjrt_api.h`."""

    def build(name: str, source: Path, *flags: str) -> Path:
        variable, standard = ("CC", "-std=c11") if source.suffix == ".c" else ("CXX", "-xc++")
        command = (sysconfig.get_config_var(variable) or variable.lower()).split()
        command += [standard, "-Wall", "-Werror", "-Wno-unused", "-g", "-fPIC", "-pthread"]
        command += [f"-I{header_folder}", *flags, "-o", name, str(source), "-ldl"]
        subprocess.run(command, check=True, timeout=60, cwd=header_folder)
        return header_folder / name

    return build


@pytest.fixture(scope="session")
def stub(compiled: Callable[..., Path]) -> Callable[..., Path]:
    """`stub("ON_INITIALIZE=abort()")` compiles a plugin with these macros and gives its path.

    `stub("WHILE_LOADED", source="throws.cc")` compiles that file instead of `plugin.c`.
    """
    built: dict[tuple[str, ...], Path] = {}

    def build(*macros: str, source: str = "plugin.c") -> Path:
        if (source, *macros) not in built:
            flags = ["-shared", *(f"-D{macro}" for macro in macros)]
            library = compiled(f"stub_{len(built)}.so", FAKE / source, *flags)
            built[source, *macros] = library
        return built[source, *macros]

    return build


@pytest.fixture(scope="session")
def faults(stub: Callable[..., Path]) -> Callable[[str], Path]:
    """`faults("exit_3")` compiles that faulty plugin and gives its path."""

    def build(name: str) -> Path:
        if name in THROWN:
            return stub(*THROWN[name], source="throws.cc")
        return stub(*FAULTS[name])

    return build
