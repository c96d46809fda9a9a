"""Libraries of backends in Python, under hosts with Python and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.finding.contract import headers
from pjrt_hub.kit import authoring
from pjrt_hub.kit.authoring import building

BACKEND = """
import os
import numpy as np
from pjrt_hub.kit.authoring import Backend, Executable, Signature, Slot


class Sum(Executable):
    signature = Signature((Slot.of("f32", (4,)),) * 2, (Slot.of("f32", (4,)),))

    def execute(self, arguments):
        return [[first + second] for first, second in arguments]


class Adder(Backend):
    platform_name = "adder"

    def compile(self, program):
        return Sum()


class Broken(Backend):
    def __init__(self):
        raise RuntimeError("there is no cable")


words = "not a backend"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that holds the module `adder`."""
    (tmp_path / "adder.py").write_text(BACKEND)
    return tmp_path


@pytest.fixture
def build(folder, python):
    """`build("adder:Adder")` makes the library and returns its path."""

    def made(backend: str) -> Path:
        words = ("-m", "pjrt_hub.cli", "build", backend, "-o", "libadder.so")
        status, printed, errors = python(*words, cwd=folder)
        assert (status, printed) == (0, f"{folder / 'libadder.so'}\n"), errors
        return folder / "libadder.so"

    return made


def test_a_host_without_python_adds(build, host):
    assert building._libpython()  # without it, no library can load this Python
    assert host(build("adder:Adder")) == (0, "2 4 6 8\n", "")


def test_jax_finds_its_devices(build, python):
    library = build("adder:Adder")
    status, printed, errors = python(
        "-c",
        "import jax; print(jax.devices())",
        JAX_PLATFORMS="adder",
        PJRT_NAMES_AND_LIBRARY_PATHS=f"adder:{library}",
    )
    assert (status, printed) == (0, "[adder:0]\n"), errors


def test_what_the_backend_raises_is_said(build, host):
    status, printed, errors = host(build("adder:Broken"))
    assert (status, printed) == (4, "")
    assert "the plugin in Python cannot start: it failed in adder:Broken" in errors
    assert "RuntimeError: there is no cable" in errors


def test_what_is_not_there_any_more_is_said(build, host):
    library = build("adder:Adder")
    (library.parent / "adder.py").unlink()
    status, _, errors = host(library)
    assert status == 4
    assert "names no backend, as module:Class does: No module named 'adder'" in errors


def test_it_has_no_run_path_and_is_not_for_other_machines(build, tmp_path):
    library = build("adder:Adder")
    assert headers.inspect(library).run_paths == ()
    out = tmp_path / "out"
    for wrap in (
        lambda: authoring.pack(library, "mychip", out=out),
        lambda: authoring.new("mychip", library=library, into=out),
    ):
        with pytest.raises(PjrtHubError, match="starts adder:Adder where this machine") as refused:
            wrap()
        assert "package the Python project" in refused.value.hint
    assert not out.exists()


def test_the_launcher_itself_is_no_plugin(host):
    (launcher,) = Path(building.__file__).parent.glob("native/launcher.*so")
    status, _, errors = host(launcher)
    assert status == 4
    assert "no backend is written into the library: use pjrt-hub build" in errors


@pytest.mark.parametrize("backend", ["adder", "adder:Nothing", "nothing:Adder", "adder:words"])
def test_what_is_no_backend_is_refused(folder, python, backend):
    words = ("-m", "pjrt_hub.cli", "build", backend, "-o", "libadder.so")
    status, _, errors = python(*words, cwd=folder)
    assert status == 2
    assert backend in errors
    assert not (folder / "libadder.so").exists()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("def (", "SyntaxError"),
        ("raise RuntimeError('no cable')", "RuntimeError: no cable"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_fails_is_said(tmp_path, monkeypatch, body, why):
    (tmp_path / "failing.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=f"module of 'failing:X' cannot be imported: {why}"):
        building.build("failing:X", tmp_path / "lib.so")
