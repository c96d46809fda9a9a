"""Rules about how frameworks find the package, read without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from pjrt_hub.kit.authoring.linting import ERROR, WARNING, Found, rule
from pjrt_hub.kit.authoring.package_files import EntryPoint, PackageFiles

_GROUPS = {
    "pjrt_plugins": "pjrt-hub",
    "jax_plugins": "JAX",
    "torch_xla.plugins": "torch_xla",
}
#: The namespace packages in which JAX and pjrt-hub look without an entry point.
_NAMESPACES = ("jax_plugins", "pjrt_plugins")
_FRAMEWORKS = ("jax", "jaxlib", "torch", "torch_xla", "tensorflow", "numpy")


@rule(401, WARNING)
def every_framework_finds_it(package: PackageFiles) -> Found:
    """There is an entry point for each of pjrt-hub, JAX and torch_xla.

    A framework without an entry point does not know of the plugin, however it is installed.
    """
    if package.info is None or not package.plugins:
        return
    groups = {point.group for point in package.entry_points}
    groups |= {name for name in _NAMESPACES if (package.root / name).is_dir()}
    for group, framework in _GROUPS.items():
        if group not in groups:
            yield package.path.name, f"no entry point in {group!r}, where {framework} looks"


@rule(402, ERROR)
def modules_are_there(package: PackageFiles) -> Found:
    """The module of every entry point is in the package."""
    for point in _points(package):
        folder = package.root.joinpath(*point.module.split("."))
        if _source(package, point.module) is None and not folder.is_dir():
            yield str(point), f"there is no module {point.module}"


@rule(403, ERROR)
def jax_points_at_a_module(package: PackageFiles) -> Found:
    """An entry point of jax_plugins names a module, and no object in it.

    JAX imports the whole value as a module and calls its initialize().
    """
    for point in _points(package, "jax_plugins"):
        if point.attribute:
            yield str(point), f"{point.value!r} names an object; JAX takes {point.module!r}"


@rule(404, ERROR)
def jax_module_has_initialize(package: PackageFiles) -> Found:
    """The module of jax_plugins defines initialize().

    Without it, JAX logs an error at every start and goes on without the plugin.
    """
    for point in _points(package, "jax_plugins"):
        tree = _tree(package, point.module)
        if tree is not None and "initialize" not in _names(tree):
            yield str(point), f"{point.module} has no initialize()"


@rule(405, ERROR)
def torch_xla_points_at_a_class(package: PackageFiles) -> Found:
    """An entry point of torch_xla.plugins names a class that is there.

    `import torch_xla` makes an object of each class; if that fails, the import fails.
    """
    for point in _points(package, "torch_xla.plugins"):
        tree = _tree(package, point.module)
        if not point.attribute:
            yield str(point), f"{point.value!r} names no class"
        elif tree is not None and point.attribute.partition(".")[0] not in _names(tree):
            yield str(point), f"{point.module} has no {point.attribute}"


@rule(406, ERROR)
def nothing_is_initialized_at_import(package: PackageFiles) -> Found:
    """No module calls initialize() or loads a library when it is imported.

    Frameworks import plugins of all vendors at their start, wanted or not: the import must cost
    nothing and must not fail. Make these calls in initialize(), or later.
    """
    for path in _modules(package):
        tree = _parse(path)
        for call in _calls_at_import(tree) if tree else ():
            yield f"{package.name(path)}:{call.lineno}", f"{ast.unparse(call)[:80]} at import"


@rule(407, WARNING)
def no_framework_is_imported_early(package: PackageFiles) -> Found:
    """The modules of pjrt_plugins and jax_plugins import no framework at their top level.

    Users of another framework would wait for the import, which fails if the framework is not
    installed. Import a framework in the function that needs it.
    """
    for point in _points(package, "pjrt_plugins", "jax_plugins"):
        tree = _tree(package, point.module)
        for node in tree.body if tree else ():
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                if name.partition(".")[0] in _FRAMEWORKS:
                    yield str(point), f"{point.module} imports {name} in line {node.lineno}"


@rule(408, ERROR)
def torch_xla_keeps_the_name(package: PackageFiles) -> Found:
    """An entry point of torch_xla.plugins has no underscore in its name.

    torch_xla cuts the device type at the underscore, and then finds no plugin.
    """
    for point in _points(package, "torch_xla.plugins"):
        if "_" in point.name:
            yield str(point), f"torch_xla looks for {point.name.partition('_')[0].upper()!r}"


@rule(409, ERROR)
def jax_does_not_abort(package: PackageFiles) -> Found:
    """A plugin that registers with JAX has the functions without which JAX aborts.

    JAX calls these functions without checking. It ends the user's process if one is NULL, and in
    most cases also if one answers UNIMPLEMENTED; docs/authoring.md lists them.
    """
    if not any(point.group == "jax_plugins" for point in package.entry_points):
        return
    for path, found in package.hosts.items():
        yield from ((package.name(path), each) for each in found if "JAX" in each)


def _points(package: PackageFiles, *groups: str) -> Iterator[EntryPoint]:
    return (each for each in package.entry_points if each.group in (groups or _GROUPS))


def _source(package: PackageFiles, module: str) -> Path | None:
    path = package.root.joinpath(*module.split("."))
    return next(
        (each for each in (path / "__init__.py", path.with_suffix(".py")) if each.is_file()), None
    )


def _tree(package: PackageFiles, module: str) -> ast.Module | None:
    path = _source(package, module)
    return _parse(path) if path else None


def _parse(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_text("utf-8", "replace"))
    except (SyntaxError, ValueError):
        return None


def _modules(package: PackageFiles) -> list[Path]:
    """List the source files that the imports of entry points run, as far as names tell."""
    found = {
        path
        for point in _points(package)
        for module in accumulate(point.module.split("."), "{}.{}".format)
        if (path := _source(package, module)) is not None
    }
    return sorted(found)


def _names(tree: ast.Module) -> set[str]:
    """Collect the names that a module defines or imports at its top level, also in conditions."""
    names: set[str] = set()
    for node in _top(tree.body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names


def _calls_at_import(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls of initialize() and of a loader that run with the import."""
    for node in _top(tree.body):
        if isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign):
            for each in ast.walk(node):
                if isinstance(each, ast.Call) and _callee(each) in ("initialize", "CDLL", "dlopen"):
                    yield each


def _callee(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run with the import, not under `if __name__ == "__main__"`."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "orelse", "finalbody"):
                yield from _top(getattr(node, field, []))
            for each in getattr(node, "handlers", []):
                yield from _top(each.body)
