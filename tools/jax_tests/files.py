"""The chosen test files: the list in suite.toml, and where they lie on this machine."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class TestFile:
    """One file of tests, which runs in a process of its own."""

    file: str
    path: Path
    tree: str
    minutes: float = 30
    x64: bool = False
    one_in: int = 1

    @property
    def name(self) -> str:
        """What its tests' ids begin with."""
        return f"{self.tree}/{self.file}"


def chosen(jax_tests: Path | None) -> Iterator[TestFile]:
    """Yield the files of the list that are here.

    Args:
        jax_tests: JAX's own tests/, or None where the user has not got it.

    Raises:
        SystemExit: a folder was given that holds none of the chosen files.
    """
    rows = tomllib.loads((HERE / "suite.toml").read_text("utf-8"))["group"]
    files = [
        TestFile(name, place / name, **row)
        for row in rows
        if (place := _place(row["tree"], jax_tests))
        for name in row.pop("files")
    ]
    here = [file for file in files if file.path.is_file()]
    if jax_tests and not any(file.tree == "jax" for file in here):
        named = ", ".join(file.file for file in files if file.tree == "jax")
        raise SystemExit(f"{jax_tests} holds none of {named}\nhint: give the folder tests/ of JAX")
    yield from here


def every(folder: Path) -> Iterator[TestFile]:
    """Yield each file of tests below a folder, chosen or not."""
    for path in sorted(folder.rglob("*_test.py")):
        yield TestFile(path.relative_to(folder).as_posix(), path, "jax")


def _place(tree: str, jax_tests: Path | None) -> Path | None:
    if tree == "at_hand":
        return HERE / "at_hand"
    if tree == "jax":
        return jax_tests
    spec = find_spec(tree)
    return Path(spec.origin).parent if spec and spec.origin else None
