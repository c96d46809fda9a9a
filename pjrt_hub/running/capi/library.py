"""The only dlopen, and `Api`: the function table of one loaded plugin.

A library is loaded once for each file and never unloaded: unloading crashes at exit, because the
plugin's threads and static destructors outlive the mapping. Must not search for libraries.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pjrt_hub import errors
from pjrt_hub.base import digest
from pjrt_hub.base.abi import DECLARED, compatible
from pjrt_hub.base.fork import Lock, cached_property
from pjrt_hub.running.capi import hotpath, table, values
from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.call import BoundFunction, interruptible
from pjrt_hub.running.capi.status import (
    FIRST_SLOT,
    answer_or_none,
    lack,
    raise_absent,
    raise_error,
    refuse_answer,
    version_of,
)

hotpath.install(raise_error, raise_absent, refuse_answer, errors.ClosedError)

_MAX_EXTENSIONS = 64  # A longer chain is a cycle or garbage.
_loaded: dict[tuple[int, int], Api] = {}
_loading = Lock()

#: Every plugin must have these, because its errors could be neither read nor freed without them.
REQUIRED = ("PJRT_Error_Destroy", "PJRT_Error_Message", "PJRT_Error_GetCode")
#: The last function that the compiled call path looks up without a check of the table's size,
#: because the tables of all usable versions include it.
REACHED = "PJRT_Buffer_ReadyEvent"


class Api(hotpath.Functions):
    """One loaded and initialized plugin.

    Attributes:
        attributes: what `PJRT_Plugin_Attributes` reports, empty where it is not implemented.
        extensions: name (or number, where unknown) to the node's struct_size.
        identity: of the file that was loaded, as `digest.identity` gives it; empty for a table that
            was loaded already.
    """

    known_sha256: Callable[[], str | None] | None = None  # Returns a digest that is known already.
    is_layered = False  # Whether its calls pass through layers.

    def __init__(self, path: Path, address: int, identity: str = "") -> None:
        self.path = path
        self.identity = identity
        self.address = address
        self._generation = hotpath.generation()
        self._table = ffi.cast("PJRT_Api*", address)
        self.version = version_of(self._table)
        self._size = int(self._table.struct_size)
        self.attributes: Mapping[str, values.NamedValue] = {}
        self._nodes = dict(_extensions(self._table.extension_start))
        self._known: dict[str, Extension] = {}
        self.extensions = {name: int(node.struct_size) for name, node in self._nodes.items()}

    @cached_property
    def sha256(self) -> str:
        """The digest of the library's file, 64 hexadecimal digits."""
        known = self.known_sha256() if self.known_sha256 else None
        return known or digest.of_file(self.path)

    def is_as_loaded(self) -> bool:
        """Tell whether the file at `path` is still the one that was loaded."""
        return digest.identity_if_any(self.path) == self.identity

    def has(self, name: str) -> bool:
        """Tell whether the plugin's table holds the function `name` and the pointer is not NULL."""
        return self.reaches(name) and bool(getattr(self._table, name) != ffi.NULL)

    def reaches(self, name: str) -> bool:
        """Tell whether the plugin's table is long enough for the function."""
        return FIRST_SLOT + 8 * (table.FUNCTIONS[name].slot + 1) <= self._size

    def _bind(self, name: str) -> BoundFunction:
        self._refuse_after_fork()
        self.require(name)
        pointer, struct = getattr(self._table, name), table.FUNCTIONS[name].args
        return BoundFunction(self.address, self.version.minor, name, pointer, struct)

    def give_back(self, name: str, **handle: int) -> None:
        """Free an unneeded object; without a function for that, it stays until the process ends."""
        with suppress(errors.UnsupportedByPluginError, errors.UnimplementedError):
            self.call(name, **handle)

    def require(self, name: str) -> None:
        """Refuse a plugin that lacks the function `name`."""
        if not self.has(name):
            raise lack(name, self.version, self.path.name)

    def extension(self, name: str) -> Extension:
        """Return an extension by its name, such as "Layouts", or raise UnsupportedByPluginError."""
        self._refuse_after_fork()
        known = self._known.get(name)
        if known is None:
            if name not in self._nodes or name not in table.EXTENSIONS:
                raise errors.UnsupportedByPluginError(
                    f"the plugin {self.path.name} lacks the extension {name}: it has "
                    f"{', '.join(self._nodes) or 'none'}",
                    function=name,
                    since="an extension, in no version's promise",
                    have=str(self.version),
                )
            known = self._known[name] = Extension(self, name, self._nodes[name])
        return known

    def _refuse_after_fork(self) -> None:
        if hotpath.generation() != self._generation:
            raise errors.ClosedError(
                f"{self.path.name} was loaded before a fork; its threads do not exist in the child",
                hint="start workers with the 'spawn' method and load the plugin inside them",
            )


class Extension(hotpath.Functions):
    """A node of a plugin's chain, such as "Layouts", with its functions by their C names."""

    def __init__(self, api: Api, name: str, node: Any) -> None:
        self.name = name
        self.size = int(node.struct_size)
        self.address = int(ffi.cast("uintptr_t", node))
        self._api = api
        row = table.EXTENSIONS[name]
        self._node = ffi.cast(f"{row.struct}*", node)
        self._rows = {
            function.args.removesuffix("_Args"): (field, function)
            for field, function in row.functions.items()
        }

    def has(self, name: str) -> bool:
        """Tell whether the node holds the function `name` and the pointer is not NULL."""
        field, function = self._rows[name]
        if function.offset + 8 > self.size:
            return False  # The field lies beyond the node's memory.
        return bool(getattr(self._node, field) != ffi.NULL)

    def _bind(self, name: str) -> BoundFunction:
        self.require(name)
        field, function = self._rows[name]
        pointer, minor = getattr(self._node, field), self._api.version.minor
        return BoundFunction(self._api.address, minor, name, pointer, function.args)

    def require(self, name: str) -> None:
        """Refuse a node that lacks the function `name`."""
        if self.has(name):
            return
        _, function = self._rows[name]
        where = f"it is at byte {function.offset} of the extension {self.name}"
        ends = function.offset + 8 > self.size
        found = f"the plugin's node has {self.size} bytes" if ends else "there the plugin has NULL"
        raise errors.UnsupportedByPluginError(
            f"the plugin {self._api.path.name} lacks {name}: {where}, {found}",
            function=name,
            since=f"{self.name} of {function.offset + 8} bytes",
            have=f"{self.name} of {self.size} bytes",
        )


def load(
    path: str | os.PathLike[str],
    tell: Callable[[str], None] = lambda step: None,
    through: Callable[[int], int] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
    identity: str = "",
) -> Api:
    """Load a plugin and initialize it, once for each file in this process.

    Symbolic links are followed up to the plugin's folder, but not out of it: the library looks for
    others beside its path. `tell` is called with the name of each step's C function before that
    function is called, and `meanwhile` while the main thread would only wait for the loader.
    `through` returns the address of a table to use in place of the plugin's. `identity`, as
    `digest.identity` gives it, is of the file that a pin was compared with; by default of `path`.

    Raises:
        PluginLoadError: dlopen failed, the library has no usable `GetPjrtApi`, or the file is not,
            or at some step no longer, the one with that identity.
        IncompatiblePluginError: the plugin's API version does not fit.
        UnsupportedByPluginError: it lacks a function of `REQUIRED`, or all from `REACHED` on.
        PjrtError: `PJRT_Plugin_Initialize` failed.
    """
    path = Path(path).parent.resolve() / Path(path).name
    try:
        status = path.stat()
    except OSError as exc:
        raise errors.PluginLoadError(f"{path} cannot be read: {exc.strerror}", path=path) from None
    identity = identity or digest.identity_if_any(path)

    def see(step: str) -> None:
        tell(step)
        if digest.identity_if_any(path) != identity:
            raise errors.PluginLoadError(
                f"{path} was changed or removed while it was to be loaded",
                path=path,
                hint="run it again, and let nobody write to it meanwhile",
            )

    with _loading:
        api = _loaded.get((status.st_dev, status.st_ino))
        if api is None:
            api = _read_table(path, _open(path, see, meanwhile), through, identity)
            _start(api, see)
            _loaded[status.st_dev, status.st_ino] = api
    return api


def adopt(address: int, path: str | os.PathLike[str]) -> Api:
    """Use a table that stays loaded, from the file at `path`, and initialize it as `load` does."""
    return _start(_read_table(Path(path).resolve(), address), lambda step: None)


def preload(path: str | os.PathLike[str]) -> None:
    """Load a library that plugins look up by its soname; PluginLoadError if that fails."""
    if not os.path.isabs(path):  # The loader would search its folders for a bare name.
        raise errors.PluginLoadError(
            f"cannot load {path}: the path is not absolute",
            path=path,
            hint="give the whole path of the library",
        )
    try:
        hotpath.preload_library(os.fspath(path))
    except OSError as exc:
        raise errors.PluginLoadError(f"cannot load {path}: {exc}", path=path) from None


def _open(path: Path, tell: Callable[[str], None], meanwhile: Callable[[], None]) -> int:
    """Load the library and return the address of its `PJRT_Api`, without reading any of it."""

    def late(_handle: int) -> None:
        with suppress(errors.PluginLoadError):  # The caller has gone, but `tell` may keep a record.
            tell("GetPjrtApi")

    tell("dlopen")
    try:
        handle = interruptible(
            lambda: hotpath.open_library(os.fspath(path)), late, meanwhile=meanwhile
        )
    except OSError as exc:
        raise errors.PluginLoadError(
            f"the library {path} cannot be loaded: {exc}", path=path, hint=f"pjrt-hub doctor {path}"
        ) from None
    tell("GetPjrtApi")
    address = hotpath.get_pjrt_api(handle)
    if not address:
        what = "exports no GetPjrtApi" if address is None else "returns no table from GetPjrtApi"
        raise errors.PluginLoadError(
            f"{path} is not a PJRT plugin: it {what}",
            path=path,
            hint="give the path of a library that exports the C function GetPjrtApi",
        )
    return address


def _read_table(
    path: Path, address: int, through: Callable[[int], int] | None = None, identity: str = ""
) -> Api:
    size = int(ffi.cast("size_t*", address)[0])
    if size < FIRST_SLOT + 8 or (size - FIRST_SLOT) % 8:
        raise errors.PluginLoadError(
            f"{path} is not a usable PJRT plugin: its function table says that it has {size} bytes",
            path=path,
            hint="install another release of the plugin",
        )
    version = version_of(ffi.cast("PJRT_Api*", address))
    verdict = compatible(DECLARED, version)
    if not verdict:  # In another ABI, the bytes after the version may be anything.
        raise errors.IncompatiblePluginError(
            f"{path} cannot be used: {verdict.reason}",
            need="0.57 or newer, major 0",
            have=str(version),
            hint="install a release of the plugin that fits, or of pjrt-hub",
        )
    api = Api(path, address if through is None else through(address), identity)
    api.is_layered = through is not None
    for name in REQUIRED:
        api.require(name)
    if not api.reaches(REACHED):
        api.require(REACHED)
    return api


def _start(api: Api, tell: Callable[[str], None]) -> Api:
    tell("PJRT_Plugin_Initialize")
    try:
        interruptible(lambda: api.call("PJRT_Plugin_Initialize"), lambda _: None)
    except errors.InvalidArgumentError as exc:
        # Some plugins refuse this if another framework in the process has already done it.
        if "already" not in exc.message.lower():
            raise
    except (errors.UnsupportedByPluginError, errors.UnimplementedError):
        pass  # The plugin has nothing to set up.
    tell("PJRT_Plugin_Attributes")
    api.attributes = dict(answer_or_none(lambda: api.call("PJRT_Plugin_Attributes")) or {})
    return api


def _extensions(first: Any) -> Iterator[tuple[str, Any]]:
    names = {extension.type: name for name, extension in table.EXTENSIONS.items()}
    for node in itertools.islice(chain(first), _MAX_EXTENSIONS):
        yield names.get(int(node.type), f"unknown {int(node.type)}"), node


def chain(node: Any) -> Iterator[Any]:
    """Yield each node of a chain of extensions; a faulty chain may never end."""
    while node:
        yield node
        node = node.next
