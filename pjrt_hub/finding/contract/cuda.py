"""What XLA's CUDA plugins, NVIDIA's compilers and its driver expect of each other.

Owns where a plugin looks for ptxas and libdevice, which ptxas it takes, and which CUDA a driver
runs. Measured on the releases 0.4.38 to 0.12.0.1 of the plugin; must not run what it finds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from mmap import ACCESS_READ, mmap
from os.path import normpath
from pathlib import Path
from typing import NamedTuple

#: Each branch of the driver runs CUDA up to this version.
_DRIVERS = {
    450: "11.0",
    455: "11.1",
    460: "11.2",
    465: "11.3",
    470: "11.4",
    495: "11.5",
    510: "11.6",
    515: "11.7",
    520: "11.8",
    525: "12.0",
    530: "12.1",
    535: "12.2",
    545: "12.3",
    550: "12.4",
    555: "12.5",
    560: "12.6",
    565: "12.7",
    570: "12.8",
    575: "12.9",
    580: "13.0",
    590: "13.1",
}
#: Each of these extras of pjrt-hub installs the plugin of that name and all that it requires.
EXTRAS = ("cuda12", "cuda13")
#: CUDA is installed here for all users; these paths are built into the plugin.
SYSTEM = ("/usr/local/cuda", "/opt/cuda")
#: The folder in which the vendor's package has the compilers, by CUDA's major version.
_PACKAGES = {"12": "nvidia/cuda_nvcc", "13": "nvidia/cu13"}
_DATA_DIR = re.compile(r"--xla_gpu_cuda_data_dir=['\"]?([^\s'\"]+)")
_OLDEST_PTXAS = (11, 8)
_REFUSED_PTXAS = (12, 3, 103)


class Place(NamedTuple):
    """A file that a plugin looks for, and the reason why it looks there."""

    path: Path
    reason: str


class Compiler(NamedTuple):
    """Something that a plugin compiles with: "ptxas" or "libdevice"."""

    name: str
    file: str  # The compiler's path below a folder of CUDA.
    is_program: bool  # Whether it is also looked for on PATH, and has to print a version.

    def places(
        self, library: Path, cuda: str, env: Mapping[str, str], root: str = ""
    ) -> Iterator[Place]:
        """Yield where a plugin looks for this compiler, in the plugin's order.

        `library` is the path that the plugin is loaded from, and `cuda` the version that it was
        built for, "13". `root` is a folder of CUDA that a framework names in the options of a
        compilation; it replaces the one in XLA_FLAGS.
        """
        flag = _DATA_DIR.search(env.get("XLA_FLAGS", ""))
        if root:
            yield Place(Path(root, self.file), "the options of JAX")
        elif flag:
            yield Place(Path(flag[1], self.file), "XLA_FLAGS")
        else:
            yield Place(Path("cuda_sdk_lib", self.file), "the working directory")
        if self.is_program:
            for folder in filter(None, env.get("PATH", "").split(os.pathsep)):
                yield Place(Path(folder, self.name), "PATH")
        for folder in SYSTEM:
            yield Place(Path(folder, self.file), "where the system has CUDA")
        package = _PACKAGES.get(cuda, "")
        for above in ("..", "../..") if package else ():
            beside = Path(normpath(library.parent / above / package), self.file)
            yield Place(beside, "beside the plugin")
        yield Place(library.parent / "cuda" / self.file, "beside the plugin")


PTXAS = Compiler("ptxas", "bin/ptxas", True)
LIBDEVICE = Compiler("libdevice", "nvvm/libdevice/libdevice.10.bc", False)


def opens_linker(library: Path) -> bool:
    """Check whether a plugin compiles with libnvJitLink, if it finds that, and so needs no ptxas.

    Plugins before 0.11 were built without this; only the code of a plugin tells.
    """
    with library.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return content.find(b"nvJitLinkVersion") >= 0


def release(text: str) -> str:
    """Return the version in what `ptxas --version` prints; empty if there is none."""
    found = re.search(r"\bV(\d+\.\d+\.\d+)", text)
    return found[1] if found else ""


def refusal(version: str) -> str:
    """Return why a plugin passes over the ptxas of a version, or an empty string."""
    if not version:
        return "it tells no version"
    numbers = tuple(map(int, version.split(".")))
    if numbers[:2] < _OLDEST_PTXAS:
        return f"{version} is older than 11.8"
    return f"{version} miscompiles" if numbers == _REFUSED_PTXAS else ""


def newest_cuda(driver: str) -> str:
    """Return the newest CUDA, "12.8", that a driver is known to run; empty if none is."""
    number, _, _ = driver.partition(".")
    older = [branch for branch in _DRIVERS if number.isdigit() and branch <= int(number)]
    return _DRIVERS[max(older)] if older else ""
