"""A built backend in a Python that another program started, and that must stay as it was.

The launcher runs this file by its path, before anything of the package can be imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

_PACKAGE = "pjrt_hub"
#: On the call stack, these packages stand between a module and the finder that it asks.
_MACHINERY = frozenset({"importlib", "importlib_metadata"})


class Finder:
    """A finder of modules in the builder's folders, which comes after all other finders.

    It serves only modules that it found itself: others see no module and no distribution that the
    host does not have.
    """

    def __init__(self, needed: Iterable[str], ours: Iterable[str], folders: list[str]) -> None:
        """Take the modules needed, those that the host has, too, and the builder's `sys.path`."""
        self.pjrt_hub_folders = folders
        self._needed = frozenset(needed)
        self._ours = set(ours)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`; Python itself finds what is inside a package."""
        if path is not None or not (name in self._needed or self._is_asked_by_ours()):
            return None
        spec = PathFinder.find_spec(name, self.pjrt_hub_folders, target)
        if spec is not None:
            self._ours.add(name)
        return spec

    def find_distributions(self, context: DistributionFinder.Context) -> Iterable[Distribution]:
        """See `importlib.metadata.DistributionFinder`: packages ask for their own version."""
        if "path" in vars(context) or not self._is_asked_by_ours():
            return ()
        from importlib.metadata import DistributionFinder, MetadataPathFinder

        there = DistributionFinder.Context(name=context.name, path=self.pjrt_hub_folders)
        return MetadataPathFinder.find_distributions(there)

    def _is_asked_by_ours(self) -> bool:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and _asker(frame) in _MACHINERY:
            frame = frame.f_back
        return frame is not None and _asker(frame) in self._ours


def table(backend: str, lines: str, started: int) -> int:
    """Return the address of the PJRT_Api of a backend, "module:Class".

    The `lines` are the builder's `sys.path`, which a Python that was `started` for the backend gets
    as its own. ImportError: the host has another module of the backend's name.
    """
    folders = lines.splitlines()
    if started:
        sys.path[:] = folders
        return _table(backend)
    module = _top(backend.partition(":")[0])
    ours = [module] if _has(module, folders) else []
    finder = Finder({module, _PACKAGE}, ours, folders)
    sys.meta_path.append(finder)
    try:
        return _table(backend)
    except BaseException:
        sys.meta_path.remove(finder)
        raise


def paths() -> list[str]:
    """List where a backend's own process finds modules: this process's folders, then builders'."""
    folders = [each for one in sys.meta_path for each in getattr(one, "pjrt_hub_folders", ())]
    return list(dict.fromkeys(filter(os.path.isabs, [*sys.path, *folders])))


def _table(backend: str) -> int:
    address: int = import_module(f"{_PACKAGE}.kit.authoring.bridge").table_of(backend)
    return address


def _has(module: str, folders: Sequence[str]) -> bool:
    """Say whether the host has the backend's module as well, the very same one."""
    theirs = find_spec(module)
    ours = PathFinder.find_spec(module, folders)
    if module == _PACKAGE or theirs is None or ours is None:
        return False
    if _place(theirs) != _place(ours):
        raise ImportError(
            f"this process has another module {module!r}, {_place(theirs)}: "
            f"the backend's is {_place(ours)}"
        )
    return True


def _place(spec: ModuleSpec) -> str:
    places = [spec.origin] if spec.origin else spec.submodule_search_locations or ()
    return ", ".join(map(os.path.realpath, places))


def _asker(frame: FrameType) -> str:
    return _top(str(frame.f_globals.get("__name__")))


def _top(module: str) -> str:
    return module.partition(".")[0]
