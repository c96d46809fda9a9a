"""Compilation: from a program, or from a serialized executable, to one that is loaded.

Owns the checks before it and the waiting that Ctrl-C ends; must not know how a cache keeps bytes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pjrt_hub.errors import PjrtError, UnsupportedByPluginError
from pjrt_hub.running.capi.call import interruptible
from pjrt_hub.running.compilation import compile_cache
from pjrt_hub.running.compilation.policy import CompileCache, CompilingClient
from pjrt_hub.running.executable.loaded_executable import LoadedExecutable
from pjrt_hub.running.program import entry, partitioning
from pjrt_hub.running.program.compile_options import CompileOptions
from pjrt_hub.running.program.program import Program

if TYPE_CHECKING:
    from pjrt_hub.running.executable.executable import Executable
    from pjrt_hub.running.program.signature import Signature

T = TypeVar("T")

#: The create option of XLA's CPU plugin.
_CPU_DEVICES = "cpu_device_count"


def compiled(
    client: CompilingClient,
    program: Program | str | bytes | os.PathLike[str],
    options: CompileOptions | None,
    cache: bool | CompileCache | None,
    isolated: bool | None,
) -> LoadedExecutable:
    """What `Client.compile` gives, from the cache where it has an equal compilation."""
    source = Program.of(program)
    source.require_readable(client.api)
    chosen = partitioning.options_for(
        source, options, len(client.all_devices), client.platform_name, partial(_more, client)
    )
    flags = client.compile_flags
    if isolated is None:
        isolated = client.policy.isolates_by_default
    asked = flags.over(chosen, source.outline)

    def compile_() -> LoadedExecutable:
        executable, sent = attempt(
            source,
            lambda program: flags.compiled(
                chosen,
                program.outline,
                lambda options: _compiled(client, program, options, isolated),
            ),
        )
        executable._given_options = sent
        return executable

    kept = compile_cache.chosen(client, cache)
    if kept is None:
        executable = compile_()
    else:
        with client._in_call():
            load = partial(deserialized, client)
            executable = compile_cache.compiled(kept, client, source, asked, load, compile_)
    executable._given_options = executable._given_options or asked
    if executable._takes_tuple and not chosen.parameter_is_tupled_arguments:
        executable.close()
        raise TypeError(
            "the program takes a tuple, and buffers are arrays\n\nhint: let it take arrays, or, of "
            "an HLO proto, compile it with CompileOptions(parameter_is_tupled_arguments=True)"
        )
    return executable


def attempt(
    program: Program,
    compile_: Callable[[Program], T],
    hint: Callable[[PjrtError], str] = lambda _error: "",
) -> T:
    """Compiles a program, once more where an MLIR of another age would have written it otherwise.

    Raises:
        PjrtError: the plugin refuses it; with the next step, else `hint`'s.
    """
    written = program
    while True:
        try:
            return compile_(written)
        except PjrtError as exc:
            from pjrt_hub.running.program import compile_error

            other = compile_error.rewritten(exc, program) if written is program else None
            if other is None:
                exc.hint = compile_error.hint(exc, program) or hint(exc) or exc.hint
                raise
        written = other


def _more(client: CompilingClient, devices: int) -> str:
    """How to get so many devices."""
    if client.platform_name == "cpu" and client.policy.takes_option(_CPU_DEVICES):
        return f'make the client with options={{"{_CPU_DEVICES}": {devices}}}'
    return f"the client must have {devices} devices, be it of several processes or machines"


def deserialized(client: CompilingClient, serialized: bytes) -> LoadedExecutable:
    """What `Client.load` gives, once the guards of the bytes agree with the client's."""
    client._check()
    if isinstance(serialized, str | os.PathLike):
        raise TypeError(
            f"{os.fspath(serialized)!r} is not the bytes of an executable\n\n"
            "hint: give Path(...).read_bytes(), if it names a file of them"
        )
    # bytes(5) would be five zeros, and bytes of a memoryview are a copy.
    blob = serialized if type(serialized) is bytes else bytes(memoryview(serialized))
    _, code, signature = client.guards.open(blob)
    function = "PJRT_Executable_DeserializeAndLoad"
    executable = _loaded(client, function, signature=signature, serialized_executable=code)
    executable._origin = blob
    return executable


def loaded(client: CompilingClient, executable: Executable) -> LoadedExecutable:
    """What `Client.load` gives for an executable of this process, which it ends."""
    client._check()
    if executable._api is not client.api:
        raise ValueError(f"{executable!r} is of another plugin than {client!r}")
    client.api.require("PJRT_Client_Load")
    options = executable._given_options or CompileOptions()
    # The plugin may empty the native object, so nothing may look at it any more, however it goes.
    loaded = _loaded(
        client,
        "PJRT_Client_Load",
        kept=executable,
        said=executable._said,
        executable=executable._give_away(),
        compile_options=options.serialize(),
    )
    loaded._given_options = options
    return loaded


def _compiled(
    client: CompilingClient, source: Program, chosen: CompileOptions, isolated: bool
) -> LoadedExecutable:
    if isolated and (executable := _isolated(client, source, chosen)):
        return executable
    return _loaded(
        client,
        "PJRT_Client_Compile",
        meanwhile=_import_numpy,
        said=entry.signature(source, chosen.num_partitions),
        has_devices=not chosen.compile_portable_executable,
        program={"code": source.code, "format": source.format},
        compile_options=chosen.serialize(),
    )


def _isolated(
    client: CompilingClient, source: Program, chosen: CompileOptions
) -> LoadedExecutable | None:
    """What was compiled elsewhere and loaded here; None where that cannot be, with a warning."""
    from pjrt_hub.running.compilation import isolation

    client._check()
    try:
        code, signature = isolation.compiled(client, source, chosen, _import_numpy)
    except isolation.NotIsolatedError as exc:
        why = str(exc)
    else:
        try:
            return deserialized(client, client.guards.seal(code, signature))
        except (PjrtError, UnsupportedByPluginError) as exc:
            why = exc.message
    import logging

    text = "%s is compiled in this process, which its compiler may end: %s"
    logging.getLogger("pjrt_hub.isolation").warning(text, source.origin, why)
    return None


def _loaded(
    client: CompilingClient,
    function: str,
    kept: object = None,
    signature: Signature | None = None,
    said: Signature | None = None,
    has_devices: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
    **inputs: Any,
) -> LoadedExecutable:
    """Takes what a C function gives after seconds; Ctrl-C ends the waiting.

    `kept` lives until the function has ended; `meanwhile` is called beside it. Without a signature
    the plugin is asked for it, and compared with what the program said of itself. `has_devices`
    says that it is known not to be portable.
    """

    def call() -> int:
        return int(client.api.call(function, client=client._address, **inputs))

    def discard(late: int, _kept: object = kept) -> None:
        client.api.give_back("PJRT_LoadedExecutable_Destroy", executable=late)

    with client._in_call():
        client._enter()  # the call's own, which an interrupted wait does not end
        address = interruptible(call, discard, client._leave, meanwhile)
        return LoadedExecutable._load(client, address, signature, said, has_devices)


def _import_numpy() -> None:
    """Takes the time of a compiler for what reads the results, which is a third of a start."""
    if "numpy" not in sys.modules:
        with suppress(ImportError):  # who needs it is told then
            import numpy  # noqa: F401
