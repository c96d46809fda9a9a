"""Compilation: from a program, or from a serialized executable, to one that is loaded.

Owns the steps (options, cache, plugin, loaded executable) with waits that Ctrl-C ends; must not
know how a cache keeps bytes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pjrt_hub import errors
from pjrt_hub.base import log
from pjrt_hub.running.capi.call import interruptible
from pjrt_hub.running.capi.handle import compiler_platform
from pjrt_hub.running.compilation import compile_cache
from pjrt_hub.running.program import partitioning
from pjrt_hub.running.program.compile_options import CompileOptions
from pjrt_hub.running.program.program import Program

if TYPE_CHECKING:
    from pjrt_hub.running.compilation.policy import CompileCache, CompilingClient, Policy
    from pjrt_hub.running.executable.executable import Executable
    from pjrt_hub.running.executable.loaded_executable import LoadedExecutable
    from pjrt_hub.running.program.signature import Signature

T = TypeVar("T")

#: The create option of XLA's CPU plugin that sets its number of devices.
_CPU_DEVICES = "cpu_device_count"


def compile(
    client: CompilingClient,
    program: Program | str | bytes | os.PathLike[str],
    options: CompileOptions | None,
    cache: bool | CompileCache | None,
    isolated: bool | None,
) -> LoadedExecutable:
    """Compile a program and load it, as `Client.compile` says."""
    source = Program.of(program)
    source.require_readable(client.api)
    chosen = partitioning.options_for(
        source, options, len(client.all_devices), client.platform_name, partial(_more, client)
    )
    asked = client._policy.default_flags.over(chosen, source.outline)
    if isolated is None:
        isolated = client._policy.isolates_by_default
    store = compile_cache.choose(client, cache)
    if store is None:
        executable = _compile(client, source, chosen, isolated)
    else:
        with client._in_call():
            key = compile_cache.key(client, source, asked)
            found = _load_from(store, key, client)
            executable = found or _compile(client, source, chosen, isolated)
            if found is None:
                compile_cache.keep(store, key, executable, source)
    executable._given_options = executable._given_options or asked
    if not chosen.parameter_is_tupled_arguments:
        from pjrt_hub.running.executable.loaded_executable import require_arrays

        require_arrays(executable)
    return executable


def _more(client: CompilingClient, devices: int) -> str:
    """Tell how to get that many devices."""
    if compiler_platform(client) == "cpu" and client._policy.takes_option(_CPU_DEVICES):
        return f'make the client with options={{"{_CPU_DEVICES}": {devices}}}'
    return f"the client must have {devices} devices, be it of several processes or machines"


def _load_from(store: CompileCache, key: str, client: CompilingClient) -> LoadedExecutable | None:
    """Load a cached executable; None if the cache has none, or if it can no longer be loaded."""
    blob = compile_cache.read(store, key)
    if blob is None:
        return None
    try:
        return load_bytes(client, blob)
    except (errors.PjrtError, errors.FileFormatError, errors.IncompatiblePluginError) as exc:
        compile_cache.warn(
            f"the cached executable {key} cannot be loaded and is compiled again: {exc}"
        )
        return None


def _compile(
    client: CompilingClient, source: Program, chosen: CompileOptions, isolated: bool
) -> LoadedExecutable:
    ask = _compile_isolated if isolated else _compile_here
    executable, sent = attempt(source, chosen, client._policy, partial(ask, client))
    executable._given_options = sent
    return executable


def attempt(
    source: Program,
    options: CompileOptions,
    policy: Policy,
    compile_: Callable[[Program, CompileOptions], T],
    hint: Callable[[errors.PjrtError], str] = lambda _error: "",
) -> tuple[T, CompileOptions]:
    """Compile a program with a plugin's default flags, without those that the plugin refuses.

    If an MLIR of another age would write the program otherwise, that form is tried, too. Returns
    what `compile_` returned, and the options that it got; none of the user's flags is left out. A
    PjrtError gets a hint on the next step, from `hint` if nothing better is known.
    """
    written = source
    while True:
        sent = policy.default_flags.over(options, written.outline)
        try:
            return compile_(written, sent), sent
        except errors.PjrtError as exc:
            from pjrt_hub.running.program import compile_error

            refused = compile_error.find_refused_flag(exc)
            if policy.default_flags.leave_out(refused, options, sent, exc):
                continue
            other = compile_error.rewrite(exc, source) if written is source else None
            if other is None:
                found = compile_error.hint(exc, source) or policy.compile_hint(exc)
                exc.hint = found or hint(exc) or exc.hint
                raise
        written = other


def _compile_here(
    client: CompilingClient, source: Program, options: CompileOptions
) -> LoadedExecutable:
    from pjrt_hub.running.program import entry

    return obtain(
        client,
        "PJRT_Client_Compile",
        meanwhile=_import_results,
        program_signature=entry.signature(source, options.num_partitions),
        has_devices=not options.compile_portable_executable,
        program={"code": source.code, "format": source.format},
        compile_options=options.serialize(),
    )


def _compile_isolated(
    client: CompilingClient, source: Program, options: CompileOptions
) -> LoadedExecutable:
    """Compile in another process and load it here; if that cannot be, compile here and warn.

    A program of large constants is compiled there without them, and then here: compilers die of
    operations, and constants would be copied back and forth.
    """
    from pjrt_hub.running.compilation import isolation
    from pjrt_hub.running.executable.serialized import Guards
    from pjrt_hub.running.program import bytecode_constants

    client._require_open()
    hoisted = bytecode_constants.hoist(source.code)
    tried = Program(hoisted[0], source.format, source.origin) if hoisted else source
    try:
        code, signature = isolation.compile(client, tried, options, _import_results)
    except isolation.NotIsolatedError as exc:
        why = str(exc)
    else:
        if hoisted:
            return _compile_here(client, source, options)
        try:
            return load_bytes(client, Guards.of(client).seal(code, signature))
        except (errors.PjrtError, errors.UnsupportedByPluginError) as exc:
            why = exc.message
    text = "%s is compiled in this process, which its compiler may end: %s"
    log.warn("pjrt_hub.isolation", text, source.origin, why)
    return _compile_here(client, source, options)


def load(client: CompilingClient, serialized: bytes | Executable) -> LoadedExecutable:
    """Load an executable, as `Client.load` says."""
    from pjrt_hub.running.executable.executable import Executable

    if isinstance(serialized, Executable):
        return load_executable(client, serialized)
    return load_bytes(client, serialized)


def load_bytes(client: CompilingClient, serialized: bytes) -> LoadedExecutable:
    """Load the bytes of `serialize`, once their guards agree with the client's."""
    from pjrt_hub.running.executable.serialized import Guards

    client._require_open()
    if isinstance(serialized, str | os.PathLike):
        raise TypeError(
            f"{os.fspath(serialized)!r} is not the bytes of an executable\n\n"
            "hint: give Path(...).read_bytes(), if it names a file of them"
        )
    # bytes(5) would be five zeros, but memoryview(5) raises; bytes need no copy.
    blob = serialized if type(serialized) is bytes else bytes(memoryview(serialized))
    _, code, signature = Guards.of(client).open(blob)
    function = "PJRT_Executable_DeserializeAndLoad"
    executable = obtain(client, function, signature=signature, serialized_executable=code)
    executable._origin = blob
    return executable


def load_executable(client: CompilingClient, executable: Executable) -> LoadedExecutable:
    """Load an executable of this process (`PJRT_Client_Load`), which consumes it."""
    from pjrt_hub.running.executable.executable import give_away

    client._require_open()
    if executable.api is not client.api:
        raise ValueError(f"{executable!r} is of another plugin than {client!r}")
    client.api.require("PJRT_Client_Load")
    options = executable._given_options or CompileOptions()
    # The plugin may empty the native object even if it fails, so nothing may use it afterwards.
    given, program_signature = give_away(executable)
    loaded = obtain(
        client,
        "PJRT_Client_Load",
        keep=executable,
        program_signature=program_signature,
        executable=given,
        compile_options=options.serialize(),
    )
    loaded._given_options = options
    return loaded


def obtain(
    client: CompilingClient,
    function: str,
    keep: object = None,
    signature: Signature | None = None,
    program_signature: Signature | None = None,
    has_devices: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
    **inputs: Any,
) -> LoadedExecutable:
    """Call a slow C function that gives a loaded executable; Ctrl-C ends the wait.

    `keep` lives until the function has ended, and `meanwhile` is called while it runs. Without a
    signature the plugin is asked, and its answer compared with `program_signature`. `has_devices`
    says that the executable is known not to be portable.
    """

    def call() -> int:
        return int(client.api.call(function, client=client.address, **inputs))

    def discard(late: int, _keep: object = keep) -> None:
        client.api.give_back("PJRT_LoadedExecutable_Destroy", executable=late)

    with client._in_call():
        until_ended = ExitStack()  # The call may outlive an interrupted wait.
        until_ended.enter_context(client._in_call())
        address = interruptible(call, discard, until_ended.close, meanwhile)
        from pjrt_hub.running.executable import loaded_executable

        return loaded_executable.adopt(client, address, signature, program_signature, has_devices)


def _import_results() -> None:
    """Import, while the compiler works, the modules that run the program and read its results."""
    import pjrt_hub.running.executable.loaded_executable  # noqa: F401

    if "numpy" not in sys.modules:
        with suppress(ImportError):  # Code that needs NumPy reports its absence.
            import numpy  # noqa: F401
