"""The functions that JAX's programs call on the host: LAPACK, and `jax.ffi`'s.

jaxlib keeps them for its own client; here the CPU plugin's get them too, through the compiled entry
points of `capi`. What only jaxlib's own client can call is refused with its reason.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import AlreadyExistsError, UnimplementedError

if TYPE_CHECKING:
    from pjrt_hub.running.client.plugin import Plugin

#: What programs with Python functions call: the functions are in jaxlib's client, which is not the
#: one that runs the program, and its entry point crashes anywhere else.
PYTHON = (
    "xla_ffi_python_cpu_callback",
    "xla_ffi_partitioned_python_cpu_callback",
    "xla_buffer_python_cpu_callback",
)
_TYPED = 1  # the XLA FFI; the version before it has another calling convention

_lock = Lock()
_functions: dict[str, object] = {}
_plugins: list[Plugin] = []
_is_listening = False


def listen() -> None:
    """Hears of every function that is registered in JAX for the host, before or after.

    jaxlib tells one listener, so what it would do itself is done here as well.
    """
    global _is_listening
    with _lock:
        if _is_listening:
            return
        _is_listening = True
    from jax._src.lib import xla_client

    xla_client.register_custom_call_handler("cpu", _register_and_record)


def give_to(plugin: Plugin) -> None:
    """Registers with a plugin what is known, and from now on what comes."""
    if "FFI" not in plugin.extensions:
        return
    with _lock:
        if any(each.api is plugin.api for each in _plugins):
            return
        _plugins.append(plugin)
        for name in PYTHON:
            _register(plugin, name, _refuse, instantiate=_refuse)
        for name, function in _functions.items():
            _register(plugin, name, function)


def _register_and_record(
    name: str | bytes, function: Any, platform: str, version: int, traits: Any
) -> None:
    from jax._src.lib import xla_client

    xla_client._xla.register_custom_call_target(name, function, platform, version, traits)
    text = name.decode() if isinstance(name, bytes) else name
    function = _execute_only(function)
    if version != _TYPED or function is None or text in PYTHON:
        return
    with _lock:
        _functions[text] = function
        for plugin in _plugins:
            _register(plugin, text, function)


def _execute_only(function: Any) -> object | None:
    """Return the handler of the execution; None beside others, whose state has jaxlib's types."""
    stages: dict[str, object] = function if isinstance(function, dict) else {"execute": function}
    return stages["execute"] if stages.keys() == {"execute"} else None


def _register(plugin: Plugin, name: str, function: Any, **stages: Any) -> None:
    # By the program itself, or by another registration of the same plugin.
    with contextlib.suppress(AlreadyExistsError):
        plugin.ffi.register(name, function, **stages)


def _refuse(*_: object, **__: object) -> None:
    raise UnimplementedError(
        "a plugin cannot call Python functions of JAX: pure_callback, io_callback, debug.print, "
        "debug.callback",
        function="custom call",
        hint="leave them out, or run this function on JAX's own CPU client: "
        "with jax.default_device(jax.local_devices(backend='cpu')[0]): ...",
    )
