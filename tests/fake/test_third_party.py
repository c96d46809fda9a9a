"""Plugins in packages of others: registered, chosen, initialized, and told of when they fail."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pjrt_hub
from pjrt_hub import errors

MANIFEST = """schema = 1
name = "toy"
platform = "toy"

[[library]]
path = "libtoy.so"
"""


def ask():
    try:
        pjrt_hub.load("toy")
        pjrt_hub.load("toy")
    except errors.PjrtHubError as exc:
        print(type(exc).__name__, exc)
    print(os.environ.get("TOY"), "toy_plugin" in sys.modules)


@pytest.fixture
def install(stub, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Installs a package with the stub into a folder, and gives the variables that add it."""

    def installed(code: str | None, *groups: str, package: str = "toy_plugin") -> dict[str, str]:
        site = tmp_path / "site"
        folder = site / package
        folder.mkdir(parents=True)
        shutil.copy(stub(), folder / "libtoy.so")
        (folder / "pjrt_plugin.toml").write_text(MANIFEST)
        if code is not None:
            (folder / "__init__.py").write_text(code)
        info = site / "toy_plugin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-plugin\nVersion: 1.0\n")
        points = "".join(f"[{group}]\ntoy = toy_plugin\n" for group in groups)
        (info / "entry_points.txt").write_text(points)
        return {"PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}

    return installed


COUNTING = """
import os
assert "JAX_REGISTERED" not in os.environ
def initialize():
    os.environ["TOY"] = os.environ.get("TOY", "") + "x"
"""


@pytest.mark.parametrize(
    ("code", "groups", "package", "said"),
    [
        (COUNTING, ["pjrt_plugins"], "toy_plugin", "x True"),
        (COUNTING, [], "pjrt_plugins/toy", "x False"),
        ("", ["pjrt_plugins"], "toy_plugin", "None True"),
        (None, ["pjrt_plugins"], "toy_plugin", "None False"),
        # A module for JAX as well: its initialize() would register the plugin with JAX.
        (COUNTING, ["pjrt_plugins", "jax_plugins"], "toy_plugin", "None False"),
    ],
)
def test_a_package_is_initialized_once_it_is_chosen(
    install, run, stub, code, groups, package, said
) -> None:
    ended = run(stub(), ask, env=install(code, *groups, package=package))
    assert (ended.stdout.strip(), ended.stderr, ended.returncode) == (said, "", 0)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def initialize(): raise OSError(5, 'no device')", "OSError: [Errno 5] no device"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("def initialize(x): pass", "TypeError: initialize() missing 1 required"),
        ("def", "SyntaxError: invalid syntax"),
    ],
)
def test_what_a_package_raises_is_told(install, run, stub, code: str, said: str) -> None:
    ended = run(stub(), ask, env=install(code, "pjrt_plugins"))
    assert ended.stdout.startswith("PluginLoadError the plugin toy cannot be initialized: toy_pl")
    assert said in ended.stdout
    assert "hint: `python -c 'import toy_plugin; toy_plugin.initialize()'`" in ended.stdout
    assert (ended.stderr, ended.returncode) == ("", 0)


def diagnose():
    steps = {step.what: step.ok for step in pjrt_hub.diagnose("toy").steps}
    assert list(steps)[-2:] == ["library", "initialize"]
    assert (steps["library"], steps["initialize"]) == (True, False)


def test_doctor_initializes_too(install, check, stub) -> None:
    check(stub(), diagnose, env=install("def initialize(): 1 / 0", "pjrt_plugins"))
