"""Libraries of backends in Python leave a Python that is already running as it was."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import pjrt_hub

#: Where the package lies: the built library leads a host without site-packages to it.
PACKAGE = Path(pjrt_hub.__file__).parents[1]
BACKEND = """
import importlib.metadata

import needed
from pjrt_hub.kit.authoring import Backend, Executable, Signature, Slot


class Sum(Executable):
    signature = Signature((Slot.of("f32", (4,)),) * 2, (Slot.of("f32", (4,)),))

    def execute(self, arguments):
        import needed_late

        return [[needed_late.add(*row)] for row in arguments]


class Adder(Backend):
    platform_name = "adder"
    platform_version = importlib.metadata.version("needed")

    def compile(self, program):
        return Sum()
"""
#: A host in Python: it prints what it sees before and after the plugin runs, and the status.
HOST = """
import ctypes, importlib.metadata, json, sys

def seen():
    names = sorted(each.name for each in importlib.metadata.distributions())
    try:
        import unneeded
    except ImportError:
        unneeded = None
    hub = sys.argv[3:] and __import__("pjrt_hub")
    return {
        "path": list(sys.path),
        "distributions": names,
        "entry points": sorted(map(str, importlib.metadata.entry_points())),
        "unneeded": bool(unneeded),
        "plugins": sorted(f"{each.name} {each.origin}" for each in hub.plugins()) if hub else [],
    }

before = seen()
words = (ctypes.c_char_p * 2)(b"host", sys.argv[2].encode())
status = ctypes.CDLL(sys.argv[1]).main(2, words)
print(json.dumps({"status": status, "before": before, "after": seen()}))
"""


@pytest.fixture(scope="session")
def main(compiled) -> Path:
    """The program host.c as a library, whose `main` a host in Python calls."""
    return compiled("m.so", Path(__file__).with_name("host.c"), "-std=gnu2x", "-shared")


@pytest.fixture
def builders(tmp_path: Path) -> Path:
    """A folder with the backend, modules that it needs, and distributions that it does not need."""
    folder = tmp_path / "builders"
    for path, text in {
        "adder.py": BACKEND,
        "needed/__init__.py": "import needed_too",
        "needed_too.py": "",
        "needed_late.py": "def add(first, second):\n    return first + second",
        "needed-2.5.dist-info/METADATA": "Name: needed\nVersion: 2.5",
        "unneeded.py": "",
        "unneeded-1.0.dist-info/METADATA": "Name: unneeded\nVersion: 1.0",
        "unneeded-1.0.dist-info/entry_points.txt": "[jax_plugins]\nunneeded = unneeded",
        "pjrt_plugins/unneeded/pjrt_plugin.toml": 'schema = 1\nname = "unneeded"\n'
        'platform = "unneeded"\n[[library]]\npath = "*.so"',
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture
def library(builders: Path, tmp_path: Path, python) -> Path:
    path = tmp_path / "libadder.so"
    words = ("-m", "pjrt_hub.cli", "build", "adder:Adder", "-o", str(path))
    status, _, errors = python(*words, PYTHONPATH=f"{PACKAGE}:{builders}")
    assert status == 0, errors
    return path


def result(ended: tuple[int, str, str]) -> dict[str, Any]:
    status, printed, errors = ended
    assert status == 0, errors
    assert "2 4 6 8\n" in printed, errors
    (line,) = (line for line in printed.splitlines() if line.startswith("{"))
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_host_with_the_package_sees_nothing_of_the_builders(main, library, builders, python):
    found = result(python("-c", HOST, str(main), str(library), "hub"))
    assert found["status"] == 0
    assert found["after"] == found["before"]
    assert found["before"]["unneeded"] is False
    assert len(found["before"]["plugins"]) > 2
    assert str(builders) not in json.dumps(found)


def test_a_host_without_any_package_runs_it_and_sees_nothing(main, library, python):
    found = result(python("-I", "-S", "-c", HOST, str(main), str(library)))
    assert found["status"] == 0
    assert found["after"] == found["before"]
    assert found["before"]["distributions"] == []


def test_a_host_without_python_runs_it(host, library):
    assert host(library) == (0, "2 4 6 8\n", "")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with modules of the host's own."""
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def test_what_the_host_has_is_the_hosts(main, library, own, python):
    (own / "needed_late.py").write_text("def add(first, second):\n    return 2 * first + second")
    script = f"import sys; sys.path.append({str(own)!r})\n{HOST}"
    status, printed, errors = python("-c", script, str(main), str(library))
    assert (status, "3 6 9 12\n" in printed) == (0, True), errors


@pytest.mark.parametrize("imported", ["", "import adder\n"])
def test_the_hosts_module_of_that_name_is_neither_replaced_nor_taken(
    main, library, builders, own, python, imported
):
    (own / "adder.py").write_text("words = 'of the host'")
    script = f"import sys; sys.path.append({str(own)!r})\n{imported}{HOST}"
    script += "import adder; print(adder.words, len(sys.meta_path))"
    status, printed, errors = python("-c", script, str(main), str(library))
    assert status == 0, errors
    assert '"status": 4' in printed
    assert "of the host" in printed
    assert f"another module 'adder', {own}/adder.py" in errors
    assert f"the backend's is {builders}/adder.py" in errors


def test_one_that_failed_leaves_nothing(main, library, builders, python):
    (builders / "needed/__init__.py").write_text("raise RuntimeError('no cable')")
    script = f"import sys; finders = list(sys.meta_path)\n{HOST}assert sys.meta_path == finders"
    status, printed, errors = python("-c", script, str(main), str(library))
    assert (status, '"status": 4' in printed) == (0, True), errors
    assert "RuntimeError: no cable" in errors


def test_the_reference_plugins_process_finds_what_builders_have(tmp_path, monkeypatch):
    from pjrt_hub.kit.authoring import guest

    finder = guest.Finder([], [], [str(tmp_path), "relative"])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder])
    assert guest.paths()[-1] == str(tmp_path)
    assert guest.paths()[0] == next(each for each in sys.path if each.startswith("/"))
