"""Plugins outside Python's packages, which manifests in standard folders describe.

Owns the rules 1 to 9 of docs/spec/manifest.md: the folders, their order, and whom to trust. An
elevated process has no variables, so that only the system's folder is left.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from os.path import isfile
from pathlib import Path

from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.contract.manifest import read_standalone
from pjrt_hub.finding.contract.names import is_name
from pjrt_hub.finding.discovery.library import preloads
from pjrt_hub.finding.discovery.source import Described, Rejection, World
from pjrt_hub.finding.discovery.user_paths import ENVIRONMENT

#: The source of candidates in folders that `PJRT_PLUGIN_MANIFESTS` does not name.
MANIFESTS = "manifests"
_MOST = 256


def find(world: World) -> Iterator[Described | Rejection]:
    """Yield each manifest, or why it is not used, in the order of the folders and of the names.

    A manifest that is yielded has one library: the first that fits this machine and is there.
    """
    first: dict[str, Path] = {}
    for folder, source in _folders(world):
        try:
            paths = _list(folder)
        except (ManifestError, OSError) as exc:
            if not isinstance(exc, FileNotFoundError):
                yield _reject(str(folder), "a folder of manifests", exc)
            continue
        for path in paths:
            winner = first.setdefault(path.stem, path)
            if winner != path:
                yield Rejection(path.stem, str(path), f"hidden by {winner}", shadowed=True)
            elif reason := world.veto(path.stem):
                yield Rejection(path.stem, str(path), reason)
            else:
                try:
                    yield _read(world, path, source)
                except (ManifestError, OSError) as exc:
                    yield _reject(path.stem, str(path), exc)


def _reject(name: str, origin: str, exc: ManifestError | OSError) -> Rejection:
    if isinstance(exc, OSError):
        return Rejection(name, origin, f"cannot be read: {exc.strerror}")
    return Rejection(name, origin, exc.message.removeprefix(f"{origin}: "), exc.hint)


def _folders(world: World) -> Iterable[tuple[Path, str]]:
    """Return the folders, in order, each once, with the source of its plugins."""
    named = filter(None, world.env.get("PJRT_PLUGIN_MANIFESTS", "").split(os.pathsep))
    paths = [(Path(each), ENVIRONMENT) for each in named]
    paths += [(level.manifests, MANIFESTS) for level in world.levels()]
    folders: dict[object, tuple[Path, str]] = {}
    for path, source in paths:
        folders.setdefault(_identify(path), (path, source))
    return folders.values()


def _identify(folder: Path) -> object:
    """Return what is the same for all paths to a folder; a relative one is refused by its path."""
    try:
        status = os.stat(folder) if folder.is_absolute() else None
    except (OSError, ValueError):
        status = None
    return (status.st_dev, status.st_ino) if status else folder


def read_libraries(path: Path) -> list[Path]:
    """Return the absolute paths of a manifest's libraries."""
    return [path.resolve().parent / each.path for each in read_standalone(path).libraries]


def _list(folder: Path) -> list[Path]:
    """Return the manifests in a folder, by name; raise ManifestError or OSError."""
    if not folder.is_absolute():
        raise ManifestError("it is not an absolute path", hint="name it by an absolute path")
    require_trust(folder)
    split = map(os.path.splitext, sorted(os.listdir(folder)))
    paths = (folder / f"{name}.toml" for name, end in split if end == ".toml" and is_name(name))
    found = list(islice(filter(isfile, paths), _MOST + 1))
    if len(found) > _MOST:
        raise ManifestError(f"it holds more than {_MOST} manifests", hint="use several folders")
    return found


def _read(world: World, path: Path, source: str) -> Described | Rejection:
    require_trust(path)
    manifest, real, tried = read_standalone(path), path.resolve(), []
    for library in manifest.libraries:
        place = real.parent / library.path
        if library.target and world.host.runs(library.target):
            tried.append(f"{place} is for {library.target}, this machine is {world.host}")
        elif fault := _find_fault(place):
            tried.append(f"{place} {fault}")
        else:
            break
    else:
        return Rejection(path.stem, str(path), "; ".join(tried), absent=True)
    manifest = manifest._replace(libraries=(library._replace(path=str(place)),), path=real)
    for each in (place, *preloads(world, manifest, place).paths):
        require_trust(each, f"{each}: ")
    return Described(manifest, source, (str(path),))


def _find_fault(path: Path) -> str:
    """Say why a path is no file that this process may open, or give an empty string."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as exc:
        return f"cannot be read: {exc.strerror}"
    return "" if isfile(path) else "is not a file"


def require_trust(path: Path, name: str = "") -> None:
    """Raise ManifestError if others than root and this process's user can write to a file."""
    if sys.platform == "win32":
        return  # Windows has lists of rights in place of owners and modes.
    status, reason = os.stat(path), ""
    if status.st_uid not in (0, os.geteuid()):
        reason = f"it belongs to user {status.st_uid}"
    elif status.st_mode & stat.S_IWOTH:
        reason = "everybody may write to it"
    # Whose group has the same number as he has is alone in it.
    elif status.st_mode & stat.S_IWGRP and status.st_gid != status.st_uid:
        reason = "its group may write to it"
    if reason:
        raise ManifestError(name + reason, hint="give it to root or yourself, and `chmod go-w` it")
