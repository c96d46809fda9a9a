"""The table of docs/architecture.md, enforced by reading the source without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[1]

#: What each part of the package may import of ours, itself apart. "" is `pjrt_hub` itself, whose
#: names are public, as those of `errors` and of the bridges are.
FOUNDATION = frozenset(
    {
        "errors",
        "frozen",
        "fork",
        "abi",
        "digest",
        "host",
        "log",
        "native_log",
        "safe_path",
        "terminal",
    }
)
FINDING = frozenset({"contract", "store", "discovery"})
RUNNING = frozenset({"_capi", "runtime", "bridges"})
BELOW = FOUNDATION | FINDING | RUNNING
#: The kit of those who make plugins sees the contract, the C API, and the door; none sees another.
ABOVE = FOUNDATION | RUNNING | {"", "contract", "connect", "contact", "opening", "surroundings"}
MAY_IMPORT = {
    "errors": frozenset[str](),
    "frozen": frozenset[str](),
    "fork": frozenset[str](),
    "abi": frozenset({"frozen"}),
    "host": frozenset({"frozen"}),
    "log": frozenset[str](),
    "native_log": frozenset[str](),
    "digest": frozenset[str](),
    "safe_path": frozenset[str](),
    "terminal": frozenset[str](),
    "contract": FOUNDATION,
    "store": FOUNDATION | {"contract"},
    "discovery": FOUNDATION | {"contract", "store"},
    "_capi": frozenset({"errors", "frozen", "fork", "abi", "digest", "safe_path"}),
    "runtime": frozenset({"errors", "frozen", "fork", "abi", "_capi"}),
    "bridges": frozenset({"errors", "frozen", "fork", "digest", "runtime", "safe_path"}),
    "contact": BELOW,
    "elevation": frozenset[str](),
    "surroundings": BELOW | {"elevation"},
    "opening": BELOW | {"contact", "elevation", "surroundings"},
    "bundling": BELOW | {"surroundings"},
    "connect": BELOW | {"contact", "opening", "surroundings"},
    "diagnosis": BELOW | {"contact", "connect", "opening", "surroundings"},
    "exported": BELOW | {"connect", "surroundings"},
    "locking": BELOW | {"contact", "surroundings"},
    "older_framework": BELOW | {"surroundings"},
    "registries": BELOW | {"locking", "surroundings"},
    "repairing": BELOW | {"elevation", "surroundings"},
    "conformance": ABOVE,
    "authoring": ABOVE | {"conformance"},
    "tracing": FOUNDATION | {"_capi"},
    "jax": ABOVE | {"discovery", "older_framework"},
    "torch_xla": ABOVE | {"discovery", "older_framework"},
    "cli": frozenset({"", "errors", "bridges", "exported", "conformance", "authoring", "tracing"}),
    "": BELOW
    | {
        "bundling",
        "connect",
        "diagnosis",
        "exported",
        "locking",
        "registries",
        "repairing",
        "surroundings",
    },
}
READS_ENVIRONMENT = frozenset({"surroundings", "opening", "cli"})

#: Costly to import, so imported in the function that needs it; and who may import it at the top.
HEAVY = {
    "click": frozenset({"cli"}),
    "httpx": frozenset[str](),
    "importlib.metadata": frozenset[str](),
    "importlib_metadata": frozenset[str](),
    "ml_dtypes": frozenset({"runtime", "bridges", "conformance"}),
    "numpy": frozenset({"runtime", "bridges", "conformance"}),
    "packaging": frozenset[str](),
    "platformdirs": frozenset[str](),
    "redis": frozenset[str](),
    "rich": frozenset[str](),
    "subprocess": frozenset({"_capi", "store"}),
}
NATIVE = frozenset({"_cffi_backend", "cffi", "ctypes", "ffi"})
#: What starts a Python or looks for a program goes through `safe_path`; of the others, one starts
#: a file with -I and -S, and one writes the name down for a host without Python.
STARTS = frozenset({"sys.executable", "shutil.which"})
MAY_START = frozenset({"safe_path", "native_log", "authoring.building"})
#: A fork copies a lock as it is, so locks and what holds one come from `fork`. Of the others one
#: runs without the package, and one wants forks to wait.
LOCKS = frozenset({"threading.Lock", "threading.RLock", "functools.cached_property"})
MAY_LOCK = frozenset({"fork", "native_log", "store.transport"})
REGISTRATIONS = ("os.register_at_fork(", "hotpath.install(")
#: To import a file of checks is to register them, those that a loop makes among them.
CHECKS = "pjrt_hub.conformance.checks."
ENVIRONMENT = frozenset({"environ", "environb", "getenv", "putenv", "unsetenv"})


@dataclass(frozen=True)
class Import:
    """One imported module, or a name of one, and where it stands."""

    target: str
    line: int
    late: bool
    types_only: bool


@dataclass(frozen=True)
class Module:
    """One source file of the package, parsed."""

    name: str
    is_package: bool
    tree: ast.Module

    @property
    def part(self) -> str:
        """The part of the package that the table names: "store", "cli", or "" for the top."""
        return part_of(self.name)


def part_of(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def modules(root: Path) -> dict[str, Module]:
    """Parses every module of `root`/pjrt_hub."""
    found = {}
    for path in sorted((root / "pjrt_hub").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Module(name, is_package, ast.parse(path.read_text(encoding="utf-8")))
    return found


def imports(module: Module) -> Iterator[Import]:
    """Yields each import of `module`; `from a import b` gives "a.b"."""

    def walk(node: ast.AST, late: bool, types_only: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, late, types_only)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    package = module.name.split(".")
                    up = child.level - module.is_package
                    base = ".".join([*package[: len(package) - up], *filter(None, [base])])
                for alias in child.names:
                    yield Import(f"{base}.{alias.name}", child.lineno, late, types_only)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from walk(child, True, types_only)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                yield from walk(child, late, True)
            else:
                yield from walk(child, late, types_only)

    return walk(module.tree, False, False)


def resolve(target: str, known: dict[str, Module]) -> str | None:
    """Turns "pjrt_hub.abi.ApiVersion" into "pjrt_hub.abi"; None for what is not ours."""
    if target.split(".")[0] != "pjrt_hub":
        return None
    while target not in known and target.count(".") > 1:
        target = target.rpartition(".")[0]
    return target if target in known or part_of(target) in MAY_IMPORT else "pjrt_hub"


def wrong_layers(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        if module.part not in MAY_IMPORT:
            yield f"{module.name}: no layer is named {module.part!r} in docs/architecture.md"
            continue
        for found in imports(module):
            target = resolve(found.target, known)
            if target is None:
                continue
            part = part_of(target)
            if part != module.part and part not in MAY_IMPORT[module.part]:
                yield f"{module.name}:{found.line} imports {target}"


def cycles(known: dict[str, Module]) -> Iterator[str]:
    """Late imports count: a cycle that is put off is still a cycle. Imports for types do not."""
    graph = {
        module.name: {
            target
            for found in imports(module)
            if not found.types_only and (target := resolve(found.target, known))
        }
        - {module.name}
        for module in known.values()
    }
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> Iterator[str]:
        if name in trail:
            yield " -> ".join([*trail[trail.index(name) :], name])
        elif name not in done:
            for target in sorted(graph.get(name, ())):
                yield from visit(target, [*trail, name])
            done.add(name)

    for name in sorted(graph):
        yield from visit(name, [])


def heavy_imports(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        for found in imports(module):
            for heavy, allowed in HEAVY.items():
                is_heavy = f"{found.target}.".startswith(f"{heavy}.")
                if is_heavy and not (found.late or found.types_only or module.part in allowed):
                    yield f"{module.name}:{found.line} imports {heavy} at its top"


def native_imports(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        for found in imports(module):
            if module.part != "_capi" and NATIVE & set(found.target.split(".")):
                yield f"{module.name}:{found.line} imports {found.target}"


def environment_reads(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        if module.part in READS_ENVIRONMENT:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT:
                yield f"{module.name}:{node.lineno} reads os.{node.attr}"
        for found in imports(module):
            if found.target in {f"os.{name}" for name in ENVIRONMENT}:
                yield f"{module.name}:{found.line} reads {found.target}"


def unsafe_starts(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        if module.name.partition(".")[2] in MAY_START:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and (name := ast.unparse(node)) in STARTS:
                yield f"{module.name}:{node.lineno} uses {name}: see safe_path"
        for found in imports(module):
            if found.target in STARTS:
                yield f"{module.name}:{found.line} imports {found.target}: see safe_path"


def locks_that_forks_copy(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        if module.name.partition(".")[2] in MAY_LOCK:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and (name := ast.unparse(node)) in LOCKS:
                yield f"{module.name}:{node.lineno} uses {name}: see fork"
        for found in imports(module):
            if found.target in LOCKS:
                yield f"{module.name}:{found.line} imports {found.target}: see fork"


def work_at_import(known: dict[str, Module]) -> Iterator[str]:
    """A module's top level holds names: no loops, no `with`, no bare calls.

    A registration is the exception: it has to be there before the first fork, or the first call.
    """
    for module in known.values():
        if module.name.startswith(CHECKS):
            continue
        for node in module.tree.body:
            bare = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
            registers = bare and ast.unparse(node).startswith(REGISTRATIONS)
            if (bare and not registers) or isinstance(node, ast.For | ast.While | ast.With):
                yield f"{module.name}:{node.lineno} works at import time"


RULES = [
    wrong_layers,
    cycles,
    heavy_imports,
    native_imports,
    environment_reads,
    unsafe_starts,
    locks_that_forks_copy,
    work_at_import,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule):
    known = modules(ROOT)
    assert "pjrt_hub.errors" in known
    assert list(rule(known)) == []


PLANTED = [
    (wrong_layers, "store/cache.py", "from pjrt_hub.runtime import client", "1 imports"),
    (wrong_layers, "store/cache.py", "from ..runtime import client", "1 imports"),
    (wrong_layers, "runtime/client.py", "def f():\n    import pjrt_hub.store", "2 imports"),
    (wrong_layers, "cli/list.py", "from pjrt_hub.discovery import select", "1 imports"),
    (wrong_layers, "contract/elf.py", "from pjrt_hub import client", "1 imports"),
    (wrong_layers, "abi.py", "from .errors import PjrtHubError", "1 imports pjrt_hub.errors"),
    (wrong_layers, "shared.py", "", "no layer is named 'shared'"),
    (cycles, "store/cache.py", "def f():\n    from pjrt_hub.store import lock", "store.lock ->"),
    (heavy_imports, "store/fetch.py", "import httpx", "1 imports httpx at its top"),
    (heavy_imports, "store/fetch.py", "import importlib.metadata as m", "imports importlib."),
    (heavy_imports, "store/fetch.py", "from packaging.tags import Tag", "imports packaging"),
    (heavy_imports, "cli/list.py", "class A:\n    import rich.table", "2 imports rich"),
    (native_imports, "runtime/client.py", "from pjrt_hub._capi.native import ffi", "1 imports"),
    (native_imports, "runtime/client.py", "import ctypes", "1 imports ctypes"),
    (environment_reads, "store/cache.py", "import os\nX = os.environ", "2 reads os.environ"),
    (environment_reads, "store/cache.py", "from os import getenv", "1 reads os.getenv"),
    (unsafe_starts, "store/cache.py", "import sys\nX = [sys.executable]", "2 uses sys.exec"),
    (unsafe_starts, "store/cache.py", "from shutil import which", "1 imports shutil.which"),
    (locks_that_forks_copy, "store/cache.py", "import threading\nX = threading.Lock()", "2 uses"),
    (locks_that_forks_copy, "store/cache.py", "from functools import cached_property", "1 imports"),
    (work_at_import, "store/cache.py", "print(1)", "1 works at import time"),
    (work_at_import, "store/cache.py", "for x in ():\n    pass", "1 works at import time"),
]


@pytest.mark.parametrize(("rule", "path", "source", "expected"), PLANTED)
def test_a_planted_violation_is_found(tmp_path, rule, path, source, expected):
    for name, text in {
        "__init__.py": "",
        "errors.py": "",
        "store/__init__.py": "",
        "store/cache.py": "",
        "store/lock.py": "from pjrt_hub.store import cache",
        "runtime/client.py": "",
        path: source,
    }.items():
        file = tmp_path / "pjrt_hub" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = list(rule(modules(tmp_path)))
    assert len(found) == 1
    assert expected in found[0]


def test_what_is_allowed_is_not_reported(tmp_path):
    source = dedent(
        '''
        """A module."""
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from pjrt_hub.contract.elf import read
        from pjrt_hub import abi, errors
        if TYPE_CHECKING:
            import httpx
        def fetch():
            import httpx
        '''
    )
    for name in ("__init__", "errors", "abi", "contract/headers", "store/fetch"):
        file = tmp_path / "pjrt_hub" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source if name == "store/fetch" else "")
    known = modules(tmp_path)
    assert [line for rule in RULES for line in rule(known)] == []
