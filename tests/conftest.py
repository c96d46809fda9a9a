"""What is the same for every folder of tests: signals, the header, the faulty plugins."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pjrt_hub
from pjrt_hub.finding.store.catalog import Artifact, Catalog

HERE = Path(__file__).parent
FAULTS = HERE / "fake" / "faults"
PACKAGE = Path(pjrt_hub.__file__).parents[1]


def pytest_configure() -> None:
    """A run in a shell's background ignores Ctrl-C, and so would the children of tests."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def clean_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """This environment with a cache of its own and without the user's choices of a plugin."""
    choices = ("PJRT_", "JAX_", "XLA_", "STUB_", "TPU_", "ALLOW_MULTIPLE_LIBTPU_LOAD")
    if "TESTED_PLATFORM" in os.environ:  # its user says where it is, and how much memory it takes
        choices = ("PJRT_HUB_CACHE", "STUB_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(choices)}
    return {**kept, "PJRT_HUB_CACHE": str(tmp_path_factory.mktemp("clean") / "cache")}


@pytest.fixture(scope="session")
def library() -> Path:
    """The library of the installed CPU plugin, of whichever generation."""
    return pjrt_hub.fetch("cpu", offline=True)


@pytest.fixture(scope="session")
def row(library: Path) -> Artifact:
    """The registry's row of that plugin: its versions, as they were measured."""
    rows = Catalog.read_shipped().rows()
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
    """A copy of the files that belong to the project, in a folder of its name."""
    root = HERE.parent
    listed = ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (root / name).exists():  # else it is deleted and not yet committed
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
def faults(header_folder: Path) -> dict[str, Path]:
    """Every faulty plugin, compiled, by its name."""

    def build(source: Path) -> tuple[str, Path]:
        variable, standard = ("CC", "-std=gnu11") if source.suffix == ".c" else ("CXX", "-xc++")
        compiler = (sysconfig.get_config_var(variable) or variable.lower()).split()
        library = header_folder / f"{source.stem}.so"
        flags = [standard, "-w", "-fPIC", "-shared", "-pthread", f"-I{header_folder}"]
        command = [*compiler, *flags, "-o", str(library), str(source)]
        subprocess.run(command, check=True, timeout=120)
        return source.stem, library

    sources = sorted(path for path in FAULTS.iterdir() if path.suffix in (".c", ".cc"))
    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(build, sources))
