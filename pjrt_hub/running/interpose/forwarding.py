"""Ways to hand a table that is already loaded to another host in the same process.

One is a library, for hosts that take a path; the other is JAX's capsule. Must not load plugins.
"""

from __future__ import annotations

import os
from pathlib import Path

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import PluginLoadError

_arming = Lock()
#: The name that JAX expects of the capsule, which keeps a pointer to these bytes.
_NAME = b"pjrt_c_api"


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


def capsule(address: int) -> object:
    """Give a capsule of a `PJRT_Api`, which must stay at `address` for ever, as plugins' do."""
    import ctypes  # Only processes with another host, such as JAX, need this import.

    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    made: object = new(address, _NAME, None)
    return made
