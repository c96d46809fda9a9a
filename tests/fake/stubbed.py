"""What children that drive a stub begin with: the stub, what it counts, and ways to assert."""

from __future__ import annotations

import ast
import ctypes
import gc  # noqa: F401
import importlib
import inspect
import os  # noqa: F401
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from pjrt_hub import errors  # noqa: F401
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin

#: The library of the stub; in a child.
path = "".join(sys.argv[1:2])
ONE_TO_FOUR = np.arange(1, 5, dtype=np.float32)


def func(words: str) -> str:
    """A program of what the stub is to do."""
    takes = ", ".join(f"%{i}: tensor<4xf32>" for i in range(2 if "add" in words else 1))
    return f"func.func @main({takes}) -> tensor<4xf32> {{ {words} }}"


def live() -> dict[str, int]:
    """What the stub made and nobody destroyed yet."""
    kinds = ["dead", "error", "event", "buffer", "executable", "view", "client"]
    counts = (ctypes.c_long * 7).in_dll(ctypes.CDLL(path), "stub_live")
    return {kind: count for kind, count in zip(kinds, counts, strict=True) if count}


def destroys() -> int:
    """How often the stub destroyed something."""
    return number("stub_destroys")


def raises(cls: type[Exception], function: Callable[..., object], *args: Any, **kwargs: Any) -> Any:
    """What a function raises, which must be of this class and of none below it."""
    try:
        answer = function(*args, **kwargs)
    except cls as exc:
        if type(exc) is not cls:
            raise
        return exc
    raise AssertionError(f"{function} gave {answer!r} instead of raising {cls.__name__}")


def soon(condition: Callable[[], object]) -> None:
    """Waits until it comes true, five seconds at most."""
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def begin() -> Any:
    """A client of the stub."""
    return Plugin(load(path)).client()


def everything() -> tuple[Any, ...]:
    """A plugin, client, two buffers, executable, result of it, event of that, and device."""
    plugin = Plugin(load(path))
    client = plugin.client()
    a, b = (client.buffer_from_host(ONE_TO_FOUR * each) for each in (1, 10))
    exe = client.compile(func("add"))
    out = exe(a, b)
    return plugin, client, a, b, exe, out, out.ready, client.devices[0]


def number(name: str) -> int:
    """What the stub counts under a name."""
    return ctypes.c_long.in_dll(ctypes.CDLL(path), name).value


def with_stub(*macros: str, **how: Any) -> Any:
    """Makes the body of a test run in a process that has the stub, made with these macros.

    Args:
        macros: of the stub.
        how: as `check` takes it. The body takes what the test is given: values that `repr` tells.
    """

    def decorate(body: Callable[..., object]) -> Callable[..., None]:
        given = list(inspect.signature(body).parameters.values())

        @wraps(body)
        def test(stub: Callable[..., Path], check: Callable[..., None], **values: object) -> None:
            check(stub(*macros), body, *(values[each.name] for each in given), **how)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        own = [inspect.Parameter(name, kind) for name in ("stub", "check")]
        test.__signature__ = inspect.Signature([*own, *given])  # type: ignore[attr-defined]
        return test

    return decorate


if __name__ == "__main__":
    module, name, arguments = sys.argv[2:]
    function = inspect.unwrap(getattr(importlib.import_module(module), name))
    kept = function(*ast.literal_eval(arguments))
