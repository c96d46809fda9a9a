"""The common part of children that drive a stub: the stub, its counters, and ways to assert."""

from __future__ import annotations

import ast
import ctypes
import importlib
import inspect
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, KeysView
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # pytest's pythonpath has them, too
    sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("cpu", "unit")]

from children import show

from pjrt_hub import errors
from pjrt_hub.running.capi import table
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin

#: The path of the stub's library; it is empty outside of a child.
path = "".join(sys.argv[1:2])
staying: list[object] = []
ONE_TO_FOUR = np.arange(1, 5, dtype=np.float32)
#: The classes of errors by their codes.
CLASSES = {each.code: each for each in errors.PjrtError.__subclasses__()}


def functions(prefix: str, names: str) -> KeysView[str]:
    """The functions with a prefix and these names: `functions("Buffer_", "Delete Destroy")`."""
    return {f"PJRT_{prefix}{each}": None for each in names.split()}.keys()


def func(words: str) -> str:
    """A program whose words tell the stub what to do."""
    takes = ", ".join(f"%{i}: tensor<4xf32>" for i in range(2 if "add" in words else 1))
    return f"func.func @main({takes}) -> tensor<4xf32> {{ {words} }}"


def live() -> dict[str, int]:
    """How many objects of each kind the stub made that nobody destroyed yet."""
    kinds = ["dead", "error", "event", "buffer", "executable", "view", "client"]
    counts = (ctypes.c_long * 7).in_dll(ctypes.CDLL(path), "stub_live")
    return {kind: count for kind, count in zip(kinds, counts, strict=True) if count}


def destroys() -> int:
    """How often the stub destroyed something."""
    return number("stub_destroys")


def raises(
    cls: type[BaseException], function: Callable[..., object], *args: Any, **kwargs: Any
) -> Any:
    """The exception that a function raises; its class must be exactly this one."""
    try:
        answer = function(*args, **kwargs)
    except cls as exc:
        if type(exc) is not cls:
            raise
        return exc
    line = getattr(getattr(function, "__code__", None), "co_firstlineno", "")
    raise AssertionError(f"{function} {line} gave {answer!r} instead of raising {cls.__name__}")


def soon(condition: Callable[[], object]) -> None:
    """Wait until a condition is true, for a minute at most."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def begin() -> Any:
    """A client of the stub."""
    return Plugin(load(path)).client()


def run(a: Any, words: str) -> Any:
    """The result of a program of these words for one buffer."""
    return a.client.compile(func(words))(a)


def number(name: str) -> int:
    """The value of one of the stub's counters."""
    return ctypes.c_long.in_dll(ctypes.CDLL(path), name).value


def text_of(name: str) -> str:
    """The value of one of the stub's texts."""
    return (ctypes.c_char * 256).in_dll(ctypes.CDLL(path), name).value.decode()


def release() -> None:
    """Let everything go on that the stub holds; from now on it holds nothing."""
    ctypes.c_bool.in_dll(ctypes.CDLL(path), "stub_released").value = True


def traces(folder: Path) -> list[int]:
    """The ids of the processes that loaded a stub, or that a stub left behind."""
    file = folder / "loads"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def is_alive(pid: int) -> bool:
    """Whether a process still runs, and is not only a zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def ends(pid: int) -> bool:
    """Whether a process ends within 20 seconds; if not, it is killed."""
    for _ in range(1000):
        if not is_alive(pid):
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return False


def stay(*things: object) -> None:
    """Keep these objects alive until the process ends, in whatever way."""
    staying.extend(things)


def made_for(body: Callable[..., object]) -> Iterator[Any]:
    """The `client` and the buffer `a`, where the body of a test takes them."""
    wanted = inspect.signature(body).parameters
    if "client" in wanted or "a" in wanted:
        client = begin()
        if "client" in wanted:
            yield client
        if "a" in wanted:
            yield client.buffer_from_host(ONE_TO_FOUR)


def own_table() -> int:
    """The address of the stub's table."""
    library = ctypes.CDLL(path)
    library.GetPjrtApi.restype = ctypes.c_void_p
    return library.GetPjrtApi()


def slot(name: str, address: int | None = None) -> ctypes.c_void_p:
    """The pointer to a function in the table of the stub, or of another plugin."""
    at = (address or own_table()) + 40 + 8 * table.FUNCTIONS[name].slot
    return ctypes.c_void_p.from_address(at)


def replace(name: str, answer: Callable[[Any, int], int | None]) -> None:
    """Replace a function of the stub by `answer(truth, args)`, where `truth` is that function."""
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    at = slot(name)
    truth = function(at.value)
    replacement = function(lambda args: answer(truth, args))
    stay(replacement)
    at.value = ctypes.cast(replacement, ctypes.c_void_p).value


def with_stub(*macros: str, other: str = "", **how: Any) -> Any:
    """Make the body of a test run in a process that has the stub, made with these macros.

    Args:
        macros: those of the stub; `{name}` in one stands for the test's parameter of that name.
        other: the macro of a second stub, whose path the body takes as `other`.
        how: further arguments for `check`.

    The body may take a `client` of the stub and `a`, a buffer there with the values 1 to 4, both
    made in its process, then the test's parameters: values that `repr` tells, and paths as text.
    """

    def decorate(body: Callable[..., object]) -> Callable[..., None]:
        given = list(inspect.signature(body).parameters.values())
        given = [each for each in given if each.name not in ("client", "a", "other")]

        @wraps(body)
        def test(stub: Callable[..., Path], check: Callable[..., None], **values: Any) -> None:
            own = [re.sub(r"\{(\w+)\}", lambda name: values[name[1]], each) for each in macros]
            second = [str(stub(other))] if other else []
            check(stub(*own), body, *second, *(values[each.name] for each in given), **how)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        own = [inspect.Parameter(name, kind) for name in ("stub", "check")]
        test.__signature__ = inspect.Signature([*own, *given])  # type: ignore[attr-defined]
        return test

    return decorate


if __name__ == "__main__":
    module, name, arguments = sys.argv[2:]
    sys.excepthook = show
    function = inspect.unwrap(getattr(importlib.import_module(module), name))
    kept = function(*made_for(function), *ast.literal_eval(arguments))
