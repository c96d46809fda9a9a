"""A library whose `GetPjrtApi` gives a table that is in this process already.

For hosts that take the path of a library and no table. Must not load plugins.
"""

from __future__ import annotations

import os
from pathlib import Path

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import PluginLoadError

_arming = Lock()


def library_path() -> Path:
    """The library, which forwards to nothing before `forward`."""
    return Path(__file__).with_suffix("") / "forward.abi3.so"


def forward(address: int, plugin_path: str | os.PathLike[str]) -> Path:
    """Gives the path of a library that is the plugin to whoever opens it in this process.

    Its table is a copy, in which `PJRT_Plugin_Initialize` does nothing: the plugin is initialized.

    Args:
        address: of an initialized plugin's `PJRT_Api`, which must stay there for ever.
        plugin_path: where that plugin came from, for the error.

    Raises:
        PluginLoadError: the library forwards to another plugin already.
    """
    import ctypes  # only here: a process without such a host does not pay for it

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
