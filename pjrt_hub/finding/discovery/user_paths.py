"""Plugins that the user names by a path: as an argument, or in an environment variable.

Owns the syntax of `PJRT_HUB_PLUGIN_PATH` and of JAX's `PJRT_NAMES_AND_LIBRARY_PATHS`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from os.path import isdir, isfile
from pathlib import Path

from pjrt_hub.base import digest
from pjrt_hub.errors import ManifestError, PluginLoadError
from pjrt_hub.finding.contract.manifest import FILE_NAME, read
from pjrt_hub.finding.contract.names import is_name
from pjrt_hub.finding.discovery.library import find_described, is_plugin_library, manifest_for
from pjrt_hub.finding.discovery.source import Candidate, Described, Found, Rejection, World

#: The sources of candidates that the caller or the environment names.
EXPLICIT = "explicit"
ENVIRONMENT = "environment"
OURS = "PJRT_HUB_PLUGIN_PATH"
JAX = "PJRT_NAMES_AND_LIBRARY_PATHS"
_NAME_RULE = "a name is of ASCII [a-z0-9_], 1 to 32 characters"


def from_path(path: Path, world: World, described: Sequence[Described]) -> Candidate:
    """Return the candidate for a path: an installed package's, if the path is its library."""
    path = path.absolute()
    if not isfile(path):
        raise PluginLoadError(
            f"{path} is not a file",
            path=path,
            hint="give the path of a plugin's shared library, or a name that `pjrt-hub list` shows",
        )
    real = path.resolve()
    for each in find_described(world, described):
        if isinstance(each, Candidate) and (found := each.library_path) and found.resolve() == real:
            origins = ("the path given", *each.origins)
            return each._replace(source=EXPLICIT, origins=origins, library_path=path)
    manifest, shipped = manifest_for("", path, described), world.installed.owner(path)
    return Candidate.of_file(manifest, EXPLICIT, "the path given", path, shipped)


def from_variables(world: World, described: Sequence[Described]) -> Iterator[Found]:
    """Yield the plugins of both variables, in the order in which they are written."""
    for item in world.env.get(OURS, "").split(os.pathsep):
        if item:
            yield from _ours(world, described, item)
    for item in world.env.get(JAX, "").split(","):
        if item:
            yield _jax(described, item)


def _ours(world: World, described: Sequence[Described], item: str) -> Iterator[Found]:
    called, equals, text = item.rpartition("=")
    path = Path(text)
    if equals and not is_name(called):
        yield Rejection(item, f"${OURS}", f"{called!r} cannot name a plugin: {_NAME_RULE}")
    elif not path.is_absolute():
        yield Rejection(item, f"${OURS}", "the path is not absolute")
    elif isfile(path):
        yield _library(OURS, called, path, described)
    elif not isdir(path):
        yield Rejection(item, f"${OURS}", f"{path} is neither a file nor a folder")
    elif isfile(path / FILE_NAME):
        yield from _folder(world, path / FILE_NAME)
    else:
        libraries = [p for p in sorted(path.glob("*")) if is_plugin_library(p.name, world.host.os)]
        for library in libraries:
            yield _library(OURS, called, library, described)
        if not libraries:
            yield Rejection(item, f"${OURS}", f"{path} holds no {FILE_NAME} and no PJRT library")


def _folder(world: World, path: Path) -> Iterator[Found]:
    try:
        manifests = read(path)
    except ManifestError as exc:
        yield Rejection(path.parent.name, f"${OURS}", exc.message, exc.hint)
        return
    origins = (f"${OURS}", str(path))
    yield from find_described(
        world, [Described(manifest, ENVIRONMENT, origins) for manifest in manifests]
    )


def _jax(described: Sequence[Described], item: str) -> Found:
    # Like JAX, this splits at os.pathsep, which a path therefore cannot hold, and strips nothing.
    parts = item.split(os.pathsep)
    if len(parts) != 2 or not all(parts):
        return Rejection(item, f"${JAX}", "it is not of the form name:path")
    called, path = parts[0], Path(parts[1])
    if not is_name(called):
        return Rejection(item, f"${JAX}", f"{called!r} cannot name a plugin: {_NAME_RULE}")
    options: dict[str, object] = {}
    if path.suffix == ".json":
        import json

        try:
            data = json.loads(digest.content(path))
            path = Path(data["library_path"])
            options = dict(data.get("create_options", {}))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
            return Rejection(
                called,
                f"${JAX}",
                f"{path} cannot be read: {type(exc).__name__}: {exc}",
                'it holds {"library_path": "...", "create_options": {...}}',
            )
    if not path.is_absolute() or not isfile(path):
        return Rejection(called, f"${JAX}", f"{path} is not the absolute path of a file")
    found = _library(JAX, called, path, described)
    try:
        found.manifest.create_options(options)
    except (TypeError, ValueError) as exc:
        return Rejection(called, f"${JAX}", f"the create_options of {parts[1]}: {exc}")
    return found._replace(create_options=tuple(options.items()))


def _library(variable: str, called: str, path: Path, described: Sequence[Described]) -> Candidate:
    manifest = manifest_for(called, path, described)
    return Candidate(manifest, ENVIRONMENT, (f"${variable}",), library_path=path)
