"""The source follows the tree and the table of docs/architecture.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[1]

MAP = ROOT / "docs" / "architecture.md"
#: Modules that every room may import.
GROUND = frozenset({"errors", "base"})
READS_ENVIRONMENT = frozenset({"door.process", "door.plugin", "cli"})

#: Modules that are slow to import -> the rooms that may import them outside of functions.
HEAVY = {
    "click": ("cli",),
    "httpx": (),
    "importlib.metadata": (),
    "importlib_metadata": (),
    "lief": (),
    "ml_dtypes": ("running", "frameworks", "kit.conformance"),
    "numpy": (
        "running",
        "frameworks",
        "kit.conformance",
        "kit.tracing.devices",
        "kit.tracing.xspace",
    ),
    "packaging": (),
    "platformdirs": (),
    "redis": (),
    "rich": (),
    "subprocess": ("running.sandbox", "finding.store"),
}
#: Rooms that may open libraries and use native code: the C API's, and those around it.
MAY_BE_NATIVE = ("running.capi", "running.sandbox", "running.interpose")
NATIVE = dict.fromkeys(("_cffi_backend", "cffi", "ctypes", "ffi"), MAY_BE_NATIVE)
#: Only plugin authors need lief, which reads libraries of other systems and is an extra.
NATIVE["lief"] = ("kit.authoring",)
#: Only `safe_path` may start Python or look for a program; `building` only writes the name down
#: for a host without Python.
STARTS = frozenset({"sys.executable", "shutil.which"})
MAY_START = frozenset({"base.safe_path", "kit.authoring.building"})
#: A fork copies a lock even while it is held, so locks come from `base.fork`. Of the exceptions,
#: one runs without the package, and one needs forks to wait.
LOCKS = frozenset({"threading.Lock", "threading.RLock", "functools.cached_property"})
MAY_LOCK = frozenset({"base.fork", "base.native_log", "finding.store.transfer.transport"})
REGISTRATIONS = ("os.register_at_fork(", "hotpath.install(")
#: Importing a file of checks registers them, also those that a loop makes.
CHECKS = "pjrt_hub.kit.conformance.checks."
ENVIRONMENT = frozenset({"environ", "environb", "getenv", "putenv", "unsetenv"})


@dataclass(frozen=True)
class Import:
    """One imported module, or a name imported from it, and the place of the import."""

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

    def stands_in(self, *rooms: str) -> bool:
        return any(is_inside(self.name.partition(".")[2], room) for room in rooms)


def is_inside(name: str, room: str) -> bool:
    return f"{name}.".startswith(f"{room}.")


def table(page: str) -> dict[str, frozenset[str]]:
    """Read the map's table: each room -> what it may import besides GROUND and itself."""
    rows: dict[str, frozenset[str]] = {}
    for line in page.splitlines():
        if line.startswith("| `"):
            rooms, may_import = (re.findall(r"`([\w.]+)`", cell) for cell in line.split("|")[1:3])
            rows |= dict.fromkeys(rooms, frozenset(may_import))
    return rows


def tree(page: str) -> dict[str, str]:
    """Read the map's tree: each folder of the package -> its description."""
    folders: dict[str, str] = {}
    trail: list[str] = []
    block = page.partition("```\npjrt_hub/")[2].partition("```")[0]
    for line in f"pjrt_hub/{block}".splitlines():
        if found := re.match(r"( {0,8})([\w/]+)/ +", line):
            trail = [*trail[: len(found[1]) // 2], found[2]]
            line = line[found.end() :]
        folders["/".join(trail)] = folders.get("/".join(trail), "") + line + "\n"
    return folders


def modules(root: Path) -> dict[str, Module]:
    """Parse every module of `root`/pjrt_hub; for a compiled one, the stub shows its imports."""
    found = {}
    for path in sorted((root / "pjrt_hub").rglob("*.py*")):
        if path.suffix not in (".py", ".pyi") or path.name == "__init__.pyi":
            continue
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Module(name, is_package, ast.parse(path.read_text(encoding="utf-8")))
    return found


def imports(module: Module) -> Iterator[Import]:
    """Yield each import of `module`; `from a import b` gives "a.b"."""

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
    """Turn "pjrt_hub.base.abi.ApiVersion" into "pjrt_hub.base.abi", and foreign names into None."""
    if target.split(".")[0] != "pjrt_hub":
        return None
    while target not in known and "." in target:
        target = target.rpartition(".")[0]
    return target


def wrong_layers(known: dict[str, Module]) -> Iterator[str]:
    rooms = table(MAP.read_text(encoding="utf-8"))

    def room_of(name: str) -> str:
        inside = name.partition(".")[2] or name
        return max((room for room in rooms if is_inside(inside, room)), key=len, default=inside)

    for module in known.values():
        room = room_of(module.name)
        if room not in rooms and not module.is_package:
            yield f"{module.name}: docs/architecture.md has no row for it"
        for found in imports(module):
            target = resolve(found.target, known)
            if target is None or (there := room_of(target)) == room:
                continue
            if not any(is_inside(there, each) for each in GROUND | rooms.get(room, frozenset())):
                yield f"{module.name}:{found.line} imports {target}"


def cycles(known: dict[str, Module]) -> Iterator[str]:
    """Imports in functions and imports for types also count as parts of a cycle."""
    graph = {
        module.name: {
            target for found in imports(module) if (target := resolve(found.target, known))
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
                if is_heavy and not (found.late or found.types_only or module.stands_in(*allowed)):
                    yield f"{module.name}:{found.line} imports {heavy} at its top"


def native_imports(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        for found in imports(module):
            for name in NATIVE.keys() & set(found.target.split(".")):
                if not module.stands_in(*NATIVE[name]):
                    yield f"{module.name}:{found.line} imports {found.target}"


def environment_reads(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        if module.stands_in(*READS_ENVIRONMENT):
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT:
                yield f"{module.name}:{node.lineno} reads os.{node.attr}"
        for found in imports(module):
            if found.target in {f"os.{name}" for name in ENVIRONMENT}:
                yield f"{module.name}:{found.line} reads {found.target}"


def uses(
    known: dict[str, Module], names: Set[str], allowed: Set[str], instead: str
) -> Iterator[str]:
    """Yield the uses of names for which there is a module `instead`, but for the allowed ones."""
    for module in known.values():
        if module.name.partition(".")[2] in allowed:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and (name := ast.unparse(node)) in names:
                yield f"{module.name}:{node.lineno} uses {name}: see {instead}"
        for found in imports(module):
            if found.target in names:
                yield f"{module.name}:{found.line} imports {found.target}: see {instead}"


def unsafe_starts(known: dict[str, Module]) -> Iterator[str]:
    return uses(known, STARTS, MAY_START, "safe_path")


def locks_that_forks_copy(known: dict[str, Module]) -> Iterator[str]:
    return uses(known, LOCKS, MAY_LOCK, "fork")


def work_at_import(known: dict[str, Module]) -> Iterator[str]:
    """Yield the work at a module's top level, which may not have loops, `with` or bare calls.

    A registration is the exception, because it must precede the first fork or the first call.
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


@pytest.fixture(scope="module")
def known():
    """The parsed checkout, shared by all rules."""
    return modules(ROOT)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule, known):
    assert "pjrt_hub.errors" in known
    assert list(rule(known)) == []


def test_every_file_stands_in_the_tree():
    folders = tree(MAP.read_text(encoding="utf-8"))
    missing = []
    for path in sorted((ROOT / "pjrt_hub").rglob("*")):
        if path.suffix in (".py", ".c") and path.stem != "__init__":
            folder = path.relative_to(ROOT).parent.as_posix()
            if not re.search(rf"\b{path.stem}\b", folders.get(folder, "")):
                missing.append(path.relative_to(ROOT).as_posix())
    assert missing == []


def test_every_folder_of_the_tree_is_there():
    gone = [
        folder for folder in tree(MAP.read_text(encoding="utf-8")) if not (ROOT / folder).is_dir()
    ]
    assert gone == []


CACHE, FETCH = "finding/store/cache/cache.py", "finding/store/transfer/fetch.py"
CLIENT = "running/client/client.py"
PLANTED = [
    (wrong_layers, CACHE, "from pjrt_hub.running.client import client", "1 imports"),
    (wrong_layers, CACHE, "from ....running.client import client", "1 imports"),
    (wrong_layers, CLIENT, "def f():\n    import pjrt_hub.finding.store", "2 imports"),
    (wrong_layers, "cli/list.py", "from pjrt_hub.finding.discovery import select", "1 imports"),
    (wrong_layers, "finding/contract/elf.py", "from pjrt_hub import client", "1 imports"),
    (wrong_layers, "running/capi/call.py", "import pjrt_hub.running.client", "1 imports"),
    (wrong_layers, "base/abi.py", "from pjrt_hub.door import client", "1 imports pjrt_hub.door"),
    (wrong_layers, "shared.py", "", "no row for it"),
    (cycles, CACHE, "def f():\n    from pjrt_hub.finding.store import lock", "store.lock ->"),
    (heavy_imports, FETCH, "import httpx", "1 imports httpx at its top"),
    (heavy_imports, FETCH, "import importlib.metadata as m", "imports importlib."),
    (heavy_imports, FETCH, "from packaging.tags import Tag", "imports packaging"),
    (heavy_imports, "cli/list.py", "class A:\n    import rich.table", "2 imports rich"),
    (
        native_imports,
        CLIENT,
        "from pjrt_hub.running.capi.native import ffi",
        "1 imports",
    ),
    (native_imports, CLIENT, "import ctypes", "1 imports ctypes"),
    (native_imports, FETCH, "def f():\n    from lief import PE", "2 imports lief"),
    (environment_reads, CACHE, "import os\nX = os.environ", "2 reads os.environ"),
    (environment_reads, CACHE, "from os import getenv", "1 reads os.getenv"),
    (unsafe_starts, CACHE, "import sys\nX = [sys.executable]", "2 uses sys.exec"),
    (unsafe_starts, CACHE, "from shutil import which", "1 imports shutil.which"),
    (locks_that_forks_copy, CACHE, "import threading\nX = threading.Lock()", "2 uses"),
    (locks_that_forks_copy, CACHE, "from functools import cached_property", "1 imports"),
    (work_at_import, CACHE, "print(1)", "1 works at import time"),
    (work_at_import, CACHE, "for x in ():\n    pass", "1 works at import time"),
]


@pytest.mark.parametrize(("rule", "path", "source", "expected"), PLANTED)
def test_a_planted_violation_is_found(tmp_path, rule, path, source, expected):
    for name, text in {
        "__init__.py": "",
        "errors.py": "",
        CACHE: "",
        "finding/store/lock.py": ""
        if rule is wrong_layers
        else "import pjrt_hub.finding.store.cache.cache",
        CLIENT: "",
        "finding/discovery/select.py": "",
        "door/client.py": "",
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
        from pjrt_hub.finding.contract.elf import read
        from pjrt_hub import errors
        from pjrt_hub.base import abi
        if TYPE_CHECKING:
            import httpx
        def fetch():
            import httpx
        '''
    )
    for name in (
        "__init__",
        "errors",
        "base/abi",
        "finding/contract/elf",
        "finding/store/transfer/fetch",
    ):
        file = tmp_path / "pjrt_hub" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source if name.endswith("fetch") else "")
    known = modules(tmp_path)
    assert [line for rule in RULES for line in rule(known)] == []
