"""The table of environment variables lists all that the source and a real run read."""

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import finished
import pytest

import pjrt_hub
from pjrt_hub.finding.contract import manifest, variables

ROOT = Path(__file__).parents[2]
PACKAGE = Path(pjrt_hub.__file__).parent

#: Expressions that the source uses as keys instead of constant names.
DYNAMIC = {
    "library.variable",  # a manifest gives TPU_LIBRARY_PATH
    "name",  # the rows of COMPILERS give it
}

GETENV = re.compile(r'getenv\("(\w+)"\)')


def is_environment(node: ast.expr) -> bool:
    """Whether an expression is `env`, `world.env`, `os.environ`, `environment()` or the like."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).endswith("environment")
    last = getattr(node, "attr", getattr(node, "id", ""))
    return last in ("env", "environ", "_env", "_environment")


def keys(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the keys that a module looks up in an environment."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=where, attr="get" | "pop" | "setdefault")):
                if is_environment(where) and node.args:
                    yield node.args[0]
            case ast.Call(func=ast.Attribute(attr="getenv"), args=[key, *_]):
                yield key
            case ast.Call(func=ast.Name(id="is_on"), args=[where, key]):
                if is_environment(where):
                    yield key
            case ast.Subscript(value=where, slice=key) if is_environment(where):
                yield key
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[where]):
                if is_environment(where):
                    yield key


def constants(tree: ast.Module) -> dict[str, str]:
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def reads(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module looks up; a composed name is given as `PIP_*`."""
    known = constants(tree)
    for key in keys(tree):
        match key:
            case ast.Constant(value=str(name)):
                yield name
            case ast.Name(id=name) if name in known:
                yield known[name]
            case ast.JoinedStr(values=[ast.Constant(value=str(prefix)), *_]):
                yield f"{prefix}*"
            case _:
                yield ast.unparse(key)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text("utf-8"))


def everything() -> list[tuple[str, str]]:
    """Each name that Python or C code looks up, and the file; only a checkout has the C code."""
    found = [(name, file) for file, tree in modules() for name in reads(tree)]
    for path in sorted((ROOT / "pjrt_hub").rglob("*.c")):
        found += [(name, path.name) for name in GETENV.findall(path.read_text("utf-8"))]
    return found


def test_what_the_source_reads_is_in_the_table_and_the_other_way_round():
    found = [(name, file) for name, file in everything() if name not in DYNAMIC]
    names = {name for name, _ in found}
    assert {"PJRT_HUB_CACHE", "JAX_PLATFORMS", "UV_INDEX", "PIP_*"} <= names
    unknown = [f"{file}: {name}" for name, file in found if variables.find(name) is None]
    assert unknown == []
    assert [row.name for row in variables.OURS if row.name not in names] == []


@pytest.mark.parametrize(
    "source",
    [
        'env.get("PJRT_HUB_SECRET")',
        'world.env["PJRT_HUB_SECRET"]',
        '"PJRT_HUB_SECRET" in os.environ',
        'os.getenv("PJRT_HUB_SECRET", "")',
        'is_on(world.env, "PJRT_HUB_SECRET")',
        'X = "PJRT_HUB_SECRET"\nenvironment().get(X)',
    ],
)
def test_a_planted_read_is_found(source):
    assert list(reads(ast.parse(source))) == ["PJRT_HUB_SECRET"]


#: Code that runs commands and records who reads which environment variable.
RECORD = """
import json, os, sys
asked = {}
class Noting(os._Environ):
    def __getitem__(self, name):
        frame = sys._getframe(1)
        while frame and "<frozen" in frame.f_code.co_filename:
            frame = frame.f_back
        if frame and f"{os.sep}pjrt_hub{os.sep}" in frame.f_code.co_filename:
            asked.setdefault((frame.f_code, frame.f_lasti), set()).add(name)
        return super().__getitem__(name)
os.environ.__class__ = Noting
from pjrt_hub.cli.__main__ import run
for command in (["list"], ["doctor"], ["cache", "list"], ["get", "cpu", "--offline"]):
    run(command)
print()
# A copy for another process asks one place for all of them.
print(json.dumps(sorted({name for names in asked.values() if len(names) < 5 for name in names})))
"""


def test_what_commands_read_is_in_the_table(tmp_path):
    env = {**os.environ, **{f"SOMETHING_ELSE_{count}": "x" for count in range(5)}}
    env |= {"PJRT_HUB_CACHE": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent)}
    done = finished.python("-c", RECORD, seconds=120, env=env)
    asked = json.loads(done.stdout.splitlines()[-1])
    assert {"PJRT_HUB_CACHE", "PJRT_HUB_PLATFORMS", "PJRT_HUB_PLUGIN_PATH"} <= set(asked)
    assert [name for name in asked if variables.find(name) is None] == []


def test_names_of_manifests_are_in_one_group_and_only_the_terminal_is_safe():
    ours = [each for path in ROOT.glob("pjrt_plugins/*/*.toml") for each in manifest.read(path)]
    named = {name for each in ours for option in each.options for name in option.variables}
    assert named == {row.name for row in variables.CREATE_OPTIONS}
    rows = list(variables.rows())
    assert len({row.name for row in rows}) == len(rows)
    assert [row.name for row in rows if row.safe] == [row.name for row in variables.TERMINAL]
    assert variables.is_safe("NO_COLOR")
    assert not variables.is_safe("PJRT_HUB_CACHE")
    assert not variables.is_safe("ANYTHING_ELSE")
    assert variables.find("PIP_CERT") == variables.find("PIP_*")
