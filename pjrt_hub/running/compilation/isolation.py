"""Isolated compilations: a compiler in a process of its own, whose death is an exception.

Owns both sides. The program goes there in a file without a name, and the compiled code comes back
in another. Must not load that code, nor know who wants a compilation isolated.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from pjrt_hub.errors import PjrtError, PjrtHubError, PluginTimeoutError
from pjrt_hub.running.capi import irregular, library, status
from pjrt_hub.running.executable import signature_sources
from pjrt_hub.running.program import entry
from pjrt_hub.running.program.program import Program
from pjrt_hub.running.program.signature import Signature
from pjrt_hub.running.sandbox import watch
from pjrt_hub.running.sandbox.child import Child, crash, describe_end, listen

if TYPE_CHECKING:
    from pjrt_hub.running.compilation.policy import CompilingClient
    from pjrt_hub.running.program.compile_options import CompileOptions

_COMPILE = "PJRT_Client_Compile"
_TO_BEGIN = 30.0  # Seconds for a process to load the plugin and make a client.
_DETAILS = ("message", "code", "function", "hint")
_HINT = (
    "docs/executables.md lists what compilers die of: write the program otherwise, or try "
    "another release of the plugin"
)


class NotIsolatedError(Exception):
    """No other process can compile the program, or hand over the result; the text says why."""


def compile(
    client: CompilingClient,
    program: Program,
    options: CompileOptions,
    meanwhile: Callable[[], None],
) -> tuple[bytes, Signature | None]:
    """Compile in a separate process, which ends on Ctrl-C or when this process ends.

    Gives the plugin's own bytes of the executable, and its signature, or None if the plugin must be
    asked for it after loading. `meanwhile` is called while it compiles. NotIsolatedError: the
    program must be compiled here.
    """
    workplace, path = client._policy.workplace(), client.api.path
    if workplace is None:
        raise NotIsolatedError(f"{path} was not loaded by pjrt_hub.client() or load()")
    if why := _obstacle(client):
        raise NotIsolatedError(why)
    with _file() as request, _file() as answer:
        _ask(request, client, program, options)
        files = (request.fileno(), answer.fileno())
        words = [*map(str, files), str(path), client.api.identity, *map(str, workplace.preload)]
        with Child(__name__, words, env=workplace.env, pass_fds=files) as child:
            meanwhile()
            said = _read_answers(child, workplace.seconds)
            late = not child.silent
        if "nbytes" in said:
            answer.seek(0)
            told = said["signature"]
            return answer.read(said["nbytes"]), told and Signature.of_lists(told)
    if refusal := said.get("refusal"):
        payloads = {name: bytes.fromhex(value) for name, value in refusal["payloads"].items()}
        raise status.error_class(refusal["code"])(**{**refusal, "payloads": payloads})
    if late and "step" in said:
        raise PluginTimeoutError(
            f"{path} was not done with compiling {program.origin} within {workplace.seconds:g} s",
            seconds=workplace.seconds,
            hint="set PJRT_HUB_ISOLATE_SECONDS to more",
        )
    code = said.get("status", child.status())
    if said.get("step") == _COMPILE and "error" not in said:
        raise crash(path, f" as it compiled {program.origin}", code, child.words.text(), _HINT)
    why = said.get("error") or (f"it took over {_TO_BEGIN:g} s" if late else describe_end(code))
    if "step" not in said:
        client._why_not_isolated = why  # The next attempt would fail, too.
    raise NotIsolatedError(f"the process for it could not: {why}")


def _read_answers(child: Child, seconds: float) -> dict[str, Any]:
    """Return what the other process says, until nothing more can come, or the time is over."""
    said: dict[str, Any] = {}
    begun = time.monotonic()
    until = begun + min(_TO_BEGIN, seconds)
    while not child.silent and time.monotonic() < until:
        for _, line in listen([child], until):
            said.update(line)
        if "step" in said:
            until = begun + seconds
    return said


def _obstacle(client: CompilingClient) -> str:
    """Return why another process cannot compile for a client; empty if it can."""
    from pjrt_hub.running.extensions import custom_partitioner

    if client.process_count > 1:
        return "the client is one of several processes, which do not know another"
    if custom_partitioner.is_used(client.api):
        return "a custom partitioner is registered, which only this process can ask"
    if not client.api.is_as_loaded():
        return f"{client.api.path} is not the file any more that was loaded"
    return client._why_not_isolated


def _ask(
    file: BinaryIO, client: CompilingClient, program: Program, options: CompileOptions
) -> None:
    """Write the request that `work` reads in the other process."""
    from pjrt_hub.running.extensions.custom_calls import CustomCalls

    message = options.serialize()
    asked = {
        "create_options": dict(
            client._policy.check_create_options(client.options, client.api.version)
        ),
        "custom_calls": CustomCalls(client.api).handlers,
        "format": program.format,
        "options_nbytes": len(message),
    }
    file.write(json.dumps(asked, default=_plain).encode() + b"\n")
    file.write(message)
    file.write(program.code)
    file.flush()


def _plain(option: Any) -> Any:
    return option.decode() if isinstance(option, bytes) else list(option)


def _file() -> BinaryIO:
    """Return a file without a name, in memory if the system supports that."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("pjrt-hub"), "w+b")
    from tempfile import TemporaryFile

    return TemporaryFile()


def work(
    tell: watch.Tell, request: str, answer: str, path: str, identity: str, *preload: str
) -> int:
    """Compile, in the other process, and write the result."""
    with open(int(request), "rb") as file:
        file.seek(0)
        asked = json.loads(file.readline())
        options, source = file.read(asked["options_nbytes"]), file.read()
    try:
        for dependency in preload:
            library.preload(dependency)
        api = library.load(path, identity=identity)
        client = api.call("PJRT_Client_Create", create_options=asked["create_options"])
        _register(api, asked["custom_calls"])
        tell(step=_COMPILE)
        try:
            executable = api.call(
                _COMPILE,
                client=client,
                program={"code": source, "format": asked["format"]},
                compile_options=options,
            )
            view = api.call("PJRT_LoadedExecutable_GetExecutable", loaded_executable=executable)
            said = entry.signature(Program(source, asked["format"]))
            signature, takes_tuple = signature_sources.of_executable(api, view, said)
        except PjrtError as exc:
            details = {name: getattr(exc, name) for name in _DETAILS}
            payloads = {name: value.hex() for name, value in exc.payloads.items()}
            tell(refusal={**details, "payloads": payloads})
            return 0
        tell(step="PJRT_Executable_Serialize")
        code = irregular.serialize_executable(api, view)
    except PjrtHubError as exc:
        tell(error=exc.message)
        return 1
    with open(int(answer), "wb") as file:
        file.write(code)
    tell(
        nbytes=len(code),
        signature=None if takes_tuple or signature is None else signature.to_lists(),
    )
    return 0


def _register(api: library.Api, described: Sequence[tuple[str, str, bool]]) -> None:
    """Register, for the compiler, the asking process's custom calls; nothing calls them here."""
    if described:
        from pjrt_hub.running.extensions.custom_calls import CustomCalls

        for name, platform, recorded in described:
            CustomCalls(api).register(
                name, lambda: None, platform=platform, command_buffer_compatible=recorded
            )
