"""The public names are fixed, are imported on first use, and cost nothing until then."""

from __future__ import annotations

import ast
import json
import pickle
import subprocess
import sys
from enum import Enum
from pathlib import Path

import pjrt_hub
from pjrt_hub import errors

STUB = Path(pjrt_hub.__file__ + "i")
#: Modules that an import of pjrt_hub must not import.
HEAVY = {"click", "httpx", "importlib.metadata", "ml_dtypes", "numpy", "packaging", "rich"}
HEAVY |= {"importlib_metadata", "platformdirs", "subprocess", "pjrt_hub.running.capi"}


def modules_after(code: str) -> set[str]:
    """The names of the modules that a fresh interpreter has imported after it ran `code`."""
    code = f"{code}\nimport json, sys\nprint('\\n' + json.dumps(list(sys.modules)))"
    # -s leaves out the user's packages and keeps those of the environment.
    child = subprocess.run(
        [sys.executable, "-s", "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    return set(json.loads(child.stdout.splitlines()[-1]))


def test_the_import_alone_imports_next_to_nothing():
    added = modules_after("import pjrt_hub") - modules_after("pass")
    assert {name for name in added if not name.startswith("pjrt_hub")} <= {"__future__"}


def test_the_public_names_are_those_of_the_stub():
    tree = ast.parse(STUB.read_text())
    names = [
        alias.asname
        for each in tree.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    ]
    assert len(names) == len(set(names)) > 40
    assert pjrt_hub.__all__ == sorted([*names, "__version__"])


def test_every_public_name_is_there():
    assert [name for name in pjrt_hub.__all__ if not hasattr(pjrt_hub, name)] == []
    assert set(pjrt_hub.__all__) <= set(dir(pjrt_hub))


def test_messages_and_pickles_name_public_classes_as_users_do():
    public = {name: getattr(pjrt_hub, name) for name in pjrt_hub.__all__}
    classes = {name: each for name, each in public.items() if isinstance(each, type)}
    assert len(classes) > 40
    for name, each in classes.items():
        assert f"{each.__module__}.{each.__qualname__}" == f"pjrt_hub.{name}"
        assert f"'pjrt_hub.{name}'" in repr(each) or issubclass(each, Enum)
        assert pickle.loads(pickle.dumps(each)) is each


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(pjrt_hub, "nonsense")
    program = [sys.executable, "-c", "import pjrt_hub; pjrt_hub.clint"]
    said = subprocess.run(program, capture_output=True, text=True, timeout=60).stderr
    assert said.endswith("has no attribute 'clint'. Did you mean: 'client'?\n")


def test_import_is_cheap():
    assert modules_after("import pjrt_hub") & HEAVY == set()


def test_list_reads_data_only():
    """`list` into a pipe draws no table, and it never loads a native library or opens a socket."""
    code = "import sys; sys.argv[1:] = ['list', '--json']; import pjrt_hub.cli.__main__ as cli\n"
    loaded = modules_after(code + "cli.run(['list'])")
    never = {
        "hashlib",
        "httpx",
        "numpy",
        "rich",
        "subprocess",
        "pjrt_hub.running.capi",
        "pjrt_hub.running",
        "pjrt_hub.finding.store.cache.eviction",
        "pjrt_hub.finding.store.lock",
    }
    assert loaded & never == set()


def test_every_error_stands_in_the_drawn_tree():
    tree = ast.get_docstring(ast.parse(Path(errors.__file__).read_text())) or ""
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.PjrtHubError)
    }
    # The children of PjrtError, one for each status code, share a line of the drawing.
    drawn = {name for name in classes if getattr(errors, name) in errors.PjrtError.__subclasses__()}
    assert classes - drawn - set(tree.split()) == set()


def test_every_error_has_one_root():
    strays = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type)
        and issubclass(value, Exception)
        and not issubclass(value, errors.PjrtHubError)
    ]
    assert strays == []
