"""Ways to hand a table that is already loaded to another host in the same process.

One is a library, for hosts that take a path; the other is JAX's capsule. Must not load plugins.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import PluginLoadError

_arming = Lock()
#: The name that JAX expects of the capsule, which keeps a pointer to these bytes.
_NAME = b"pjrt_c_api"
#: What the library keeps pointers to.
_kept: list[object] = []


def library_path() -> Path:
    """Return the path of the library, which forwards to nothing before `forward` is called."""
    return Path(__file__).with_suffix("") / "forward.so"


def forward(address: int, plugin_path: str | os.PathLike[str]) -> Path:
    """Return the path of a library that hosts in this process can open as the plugin.

    Its table is a copy of the one at `address`, which must stay; its `PJRT_Plugin_Initialize` does
    nothing, because the plugin is initialized. The library forwards to one plugin, and a second
    one is a PluginLoadError.
    """
    import ctypes  # Only processes with another host, such as torch_xla, need this import.

    path = library_path()
    with _arming:
        function = ctypes.CDLL(os.fspath(path)).pjrt_hub_forward
        function.restype = ctypes.c_void_p
        function.argtypes = (ctypes.c_void_p,)
        holds = function(address)
    if holds != address:
        raise PluginLoadError(
            f"{plugin_path} cannot be handed on: another plugin was, and one process hands on one",
            path=plugin_path,
            hint="use the other plugin in another process",
        )
    return path


class Changes(NamedTuple):
    """What the plugin gets in place of what the host sends."""

    create_options: str  # Rules of the layer `options`.
    compile_options: bytes  # Part of a CompileOptionsProto, which follows the host's.
    refused: Mapping[str, str]  # A word -> what the host is told if it stands in a program.


def take_over(
    opened: str | os.PathLike[str],
    address: int,
    plugin_path: str | os.PathLike[str],
    changes: Changes,
) -> None:
    """Put the table at `address` into a library that a host has already opened.

    The host must not have called the library yet, and nothing else in this process may use it.
    Functions for which the library's own table has no room are lost.
    """
    import ctypes

    ours = ctypes.CDLL(os.fspath(forward(address, plugin_path)))
    pairs = [word.encode() for pair in changes.refused.items() for word in pair]
    words = (ctypes.c_char_p * len(pairs))(*pairs)
    options, added = changes.create_options.encode(), changes.compile_options
    _kept.append((options, added, words))
    ours.pjrt_hub_change(
        ctypes.c_char_p(options),
        ctypes.c_char_p(added),
        ctypes.c_size_t(len(added)),
        words,
        ctypes.c_size_t(len(pairs) // 2),
    )
    functions = [each.GetPjrtApi for each in (ours, ctypes.CDLL(os.fspath(opened)))]
    for each in functions:
        each.restype = ctypes.c_void_p
    source, target = (each() for each in functions)
    room = [ctypes.c_size_t.from_address(each) for each in (source, target)]
    nbytes = min(each.value for each in room)
    ctypes.memmove(target, source, nbytes)
    room[1].value = nbytes  # A table begins with its size.


def capsule(address: int) -> object:
    """Give a capsule of a `PJRT_Api`, which must stay at `address` for ever, as plugins' do."""
    import ctypes  # Only processes with another host, such as JAX, need this import.

    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    made: object = new(address, _NAME, None)
    return made
