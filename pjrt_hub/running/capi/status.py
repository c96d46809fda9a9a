"""PJRT_Error -> exception: the one place where a plugin's error is read and freed; and back.

Owns the class of each status code, which calls are made again when memory was short, and what a
plugin is told of an exception in a function that it calls (`native/upcall.c`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from pjrt_hub import errors
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.running.capi import hotpath, table
from pjrt_hub.running.capi._pjrt import ffi

T = TypeVar("T")
#: A status code and text, and an interrupt, which the main thread raises once the plugin returns.
Failure = tuple[int, bytes] | tuple[int, bytes, KeyboardInterrupt]

#: The offset in bytes of a table's first function, after struct_size, extensions and version.
FIRST_SLOT = 40

_CLASSES: dict[int, type[errors.PjrtError]] = {
    cls.code: cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, errors.PjrtError) and cls is not errors.PjrtError
}
#: What makes buffers or programs and, when it fails, has taken nothing: memory that runs out may
#: be there once garbage is collected. The compiled call path does so itself, for what it calls.
REPEATABLE = {
    *("PJRT_Buffer_CopyToDevice", "PJRT_Buffer_CopyToMemory", "PJRT_Client_BufferFromHostBuffer"),
    *("PJRT_Client_Compile", "PJRT_Client_CreateBuffersForAsyncHostToDevice"),
    *("PJRT_Client_CreateUninitializedBuffer", "PJRT_Executable_DeserializeAndLoad"),
}
#: Names what holds the memory of a plugin, by the address of its `PJRT_Api`. Set by client.py.
name_holders: Callable[[int], str] | None = None


def raise_error(api: int, error: int, function: str) -> NoReturn:
    """Raise the exception for a `PJRT_Error*` by its status code; it is freed on every path.

    `api` is the address of its `PJRT_Api`; `function` is empty for an asynchronous failure.
    """
    code, message, payloads = hotpath.read_error(api, error, True)
    message = message.strip("\0\n ")
    cls = error_class(code)
    # The messages of some plugins already begin with the function's name.
    where = f"{function}: " if function and not message.startswith(function) else ""
    message = where + (message or cls.__doc__ or "")
    hint = name_holders(api) if cls is errors.ResourceExhaustedError and name_holders else ""
    raise cls(message, code=code, function=function, payloads=payloads, hint=hint)


def raise_absent(api: int, slot: int) -> NoReturn:
    """Raise for a function that the plugin lacks; `slot` is its offset in 8-byte words."""
    have = version_of(ffi.cast("PJRT_Api*", api))
    number = slot - FIRST_SLOT // 8
    raise lack(next(name for name, each in table.FUNCTIONS.items() if each.slot == number), have)


def version_of(api: Any) -> ApiVersion:
    """Return the version that a `PJRT_Api` announces."""
    version = api.pjrt_api_version
    return ApiVersion(version.major_version, version.minor_version)


def lack(function: str, have: ApiVersion, plugin: str = "") -> errors.UnsupportedByPluginError:
    """Return the error for a function that a plugin lacks; `have` is the version it announces."""
    since = ApiVersion(0, table.FUNCTIONS[function].since)
    came = f"came with PJRT API {since}" if since.minor else "is in every PJRT API"
    but = "the plugin has" if have < since else "the plugin leaves it out and has"
    who = f"the plugin {plugin}" if plugin else "the plugin"
    return errors.UnsupportedByPluginError(
        f"{who} lacks {function}: it {came}, {but} {have}",
        function=function,
        since=str(since),
        have=str(have),
    )


def refuse_answer(function: str, what: str) -> NoReturn:
    """Raise PluginError for an impossible answer without an error; `what` was found in it."""
    raise errors.PluginError(
        f"{function}: the plugin answered without an error and gave {what}",
        hint="`pjrt-hub check` with the plugin's library says what else it does wrong; tell its "
        "makers",
    )


def answer_or_none(ask: Callable[[], T]) -> T | None:
    """Return a plugin's answer, or None if the plugin does not implement the function."""
    try:
        return ask()
    except (errors.UnimplementedError, errors.UnsupportedByPluginError):
        return None


def error_class(code: int) -> type[errors.PjrtError]:
    """Return the class of a status code; PjrtError itself for a code without a class."""
    return _CLASSES.get(code, errors.PjrtError)


def failure(exc: BaseException, name: str, depth: int) -> Failure:
    """Return an exception's status code and text; `depth` frames of its traceback are our own."""
    text = f"{name}: {_words(exc, depth)}".encode("utf-8", "replace").replace(b"\0", b"")
    code = _code_of(exc)
    return (code, text, exc) if isinstance(exc, KeyboardInterrupt) else (code, text)


def _code_of(exc: BaseException) -> int:
    if isinstance(exc, errors.PjrtError) and exc.code:
        return exc.code
    if isinstance(exc, NotImplementedError):
        return errors.UnimplementedError.code
    if isinstance(exc, TypeError | ValueError):
        return errors.InvalidArgumentError.code
    is_ordinary = isinstance(exc, Exception)
    return errors.PluginInternalError.code if is_ordinary else errors.CancelledError.code


def _words(exc: BaseException, depth: int) -> str:
    """Return the last line of the traceback, and where in the function it happened."""
    import traceback

    try:
        words = traceback.format_exception_only(exc)[-1].strip()
    except BaseException as failing:  # The exception's __str__ may raise anything.
        words = f"{type(exc).__name__}, whose text raised {type(failing).__name__}"
    places = traceback.extract_tb(exc.__traceback__)
    if len(places) > depth:
        place = places[-1]
        words += f" ({os.path.basename(place.filename)}:{place.lineno})"
    return words
