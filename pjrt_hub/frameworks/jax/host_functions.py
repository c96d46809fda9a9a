"""The functions that JAX's programs call on the host: LAPACK, and `jax.ffi`'s.

jaxlib keeps them for its own client; here the CPU plugin gets them too, through the compiled entry
points of `capi`. A function that only jaxlib's own client can call is refused, with the reason.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import AlreadyExistsError, UnimplementedError

if TYPE_CHECKING:
    from pjrt_hub.running.client.plugin import Plugin

#: Programs call Python functions through this name. jaxlib's own entry point crashes if another
#: client runs the program, but jaxlib lends the functions to each execution of any client.
PYTHON = "xla_ffi_python_cpu_callback"
#: The functions of these names take arguments of jaxlib's own types.
_REFUSED = ("xla_ffi_partitioned_python_cpu_callback", "xla_buffer_python_cpu_callback")
#: jaxlib attaches the functions under this number, which is XLA's for `FfiLoadedHostCallbacks`.
_LENT = 7357244197867843242
_TYPED = 1  # This is the XLA FFI; the version before it has another calling convention.

_lock = Lock()
_functions: dict[str, object] = {}
_plugins: list[Plugin] = []
_is_listening = False


def listen() -> None:
    """Listen for all functions that JAX registers for the host, before this call or after it.

    jaxlib tells only one listener, so this one also does what jaxlib's own would do.
    """
    global _is_listening
    with _lock:
        if _is_listening:
            return
        _is_listening = True
    from jax._src.lib import xla_client

    xla_client.register_custom_call_handler("cpu", _register_and_record)


def give_to(plugin: Plugin) -> None:
    """Register all known functions with a plugin, and later ones when they are registered."""
    if "FFI" not in plugin.extensions:
        return
    with _lock:
        if any(each.api is plugin.api for each in _plugins):
            return
        _plugins.append(plugin)
        _register(plugin, PYTHON, functools.partial(_call_python, plugin))
        for name in _REFUSED:
            _register(plugin, name, _refuse, instantiate=_refuse)
        for name, function in _functions.items():
            _register(plugin, name, function)


def _register_and_record(
    name: str | bytes, function: Any, platform: str, version: int, traits: Any
) -> None:
    from jax._src.lib import xla_client

    xla_client._xla.register_custom_call_target(name, function, platform, version, traits)
    text = name.decode() if isinstance(name, bytes) else name
    stages = function if isinstance(function, dict) else {"execute": function}
    # If there are other stages, the execution's handler takes a state of jaxlib's types.
    if version != _TYPED or stages.keys() != {"execute"} or text in (PYTHON, *_REFUSED):
        return
    with _lock:
        _functions[text] = stages["execute"]
        for plugin in _plugins:
            _register(plugin, text, stages["execute"])


def _register(plugin: Plugin, name: str, function: Any, **stages: Any) -> None:
    # The program itself, or another registration of the same plugin, may have registered it.
    with contextlib.suppress(AlreadyExistsError):
        plugin.ffi.register(name, function, **stages)


def _call_python(plugin: Plugin, *arrays: Any, index: int) -> None:
    """Call a Python function of JAX with copies of the arguments, because it may keep them.

    A token is None on both sides.
    """
    call = plugin.ffi.current
    function = call.lent(_LENT, index)
    if function is None:
        _refuse()
    else:
        given = arrays[: call.num_arguments]
        results = function(*(each if each is None else each.copy() for each in given))
        for out, result in zip(arrays[len(given) :], results, strict=True):
            if out is not None:
                out[...] = result


def _refuse(*_: object, **__: object) -> None:
    raise UnimplementedError(
        "a plugin cannot call these Python functions of JAX: buffer_callback, those that are "
        "partitioned, and any of a release that does not lend them",
        function="custom call",
        hint="use pure_callback, io_callback or debug.callback instead, or JAX's own CPU client: "
        "with jax.default_device(jax.local_devices(backend='cpu')[0]): ...",
    )
