"""Fixtures of the tests of manifests, and of programs in other languages."""

import subprocess
from pathlib import Path

import pytest
from programs import LOADER, api_folder, compiler
from trees import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The two C files, compiled for hosts in other languages."""
    folder = tmp_path_factory.mktemp("objects")
    line = [*compiler(), "-std=c11", "-O2", "-fPIC", "-pthread", f"-I{api_folder()}", "-c"]
    objects = [folder / f"{name}.o" for name in ("pjrt_loader", "pjrt_program")]
    for out in objects:
        source = LOADER / out.with_suffix(".c").name
        subprocess.run([*line, str(source), "-o", str(out)], check=True)
    return objects
