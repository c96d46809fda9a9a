"""Tests whose body runs in a process of its own, and what such bodies begin with."""

from __future__ import annotations

import ast
import ctypes
import importlib
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np

import pjrt_hub
from pjrt_hub.kit.conformance import programs
from pjrt_hub.running.capi import library, table
from pjrt_hub.running.capi.status import FIRST_SLOT
from pjrt_hub.running.client.plugin import Plugin

#: The plugin that is tested: the CPU's, or one whose hardware is here.
PLATFORM = os.environ.get("TESTED_PLATFORM", "cpu")
PROGRAMS = Path(__file__).parents[1] / "programs"
_NAMES = ["discrete", *re.findall(r"platform=(\w+)", os.environ.get("PJRT_HUB_DISCRETE", ""))]
#: Whether its devices are only seen as others, by the layer `discrete`.
IS_LAYERED = "discrete" in os.environ.get("PJRT_HUB_LAYERS", "").split(",")
#: What its clients call their platform.
NAME = _NAMES[-1] if IS_LAYERED else PLATFORM
#: Whether the memory is the host's, and results are there at once.
IS_CPU = NAME == "cpu"
#: Whether it has arrays in tiles.
HAS_TILES = PLATFORM == "tpu" or "tiled" in os.environ.get("PJRT_HUB_DISCRETE", "")
#: Whether it has hardware of its own.
IS_HARDWARE = PLATFORM != "cpu" and not IS_LAYERED
ADD = PROGRAMS / "add.mlir"
#: Tables of functions, each for the life of the process.
_TABLES: list[Any] = []
#: A program that runs in the background for as long as `rounds` says, 0.2 ms each.
SLOW = programs.SLOW.replace(programs.SLOW_SHAPE, "256x256xf32")


def calling(name: str) -> str:
    """The slow program, of which each round ends with a call of a function of that name."""
    call = f"""%z = stablehlo.custom_call @{name}(%y) {{api_version = 4 : i32,
        backend_config = {{}}}} : (tensor<256x256xf32>) -> tensor<256x256xf32>
      stablehlo.return %j, %z"""
    return SLOW.replace("stablehlo.return %j, %y", call)


def there(buffer: Any) -> Any:
    """The buffer, once its value is there: that one prints."""
    buffer.ready.wait()
    return buffer


def in_child(
    body: Callable[..., object] | None = None, *, stdout: str | None = None, **how: Any
) -> Any:
    """Make the body of a test run in a process of its own, which must end well by itself.

    Args:
        body: takes a `client` of that process, if any, then what the test is given: values that
            `repr` tells, and paths, as text. What it returns is alive until the process ends.
        stdout: all that it prints; None where that does not matter.
        how: as `child` of the conftest takes it.
    """
    if body is None:
        return partial(in_child, stdout=stdout, **how)
    given, kept = list(inspect.signature(body).parameters.values()), body
    prepared = given[:1] != [] and given[0].name == "client"
    given = given[prepared:]

    @wraps(kept)
    def test(child: Callable[..., str], **values: object) -> None:
        arguments = [values[each.name] for each in given]
        printed = child(kept, *arguments, prepared=prepared, **how)
        assert stdout in (None, printed)

    own = inspect.Parameter("child", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    test.__signature__ = inspect.Signature([own, *given])  # type: ignore[attr-defined]
    return test


def command(
    function: Callable[..., object], *arguments: object, prepared: bool = True
) -> list[str]:
    """What calls a function of a file of tests in a process of its own, as `child` says."""
    given = tuple(str(each) if isinstance(each, Path) else each for each in arguments)
    words = [function.__code__.co_filename, function.__name__, repr(given), "prepared" * prepared]
    # From 3.12 on Python warns of a fork beside threads.
    return [sys.executable, "-W", "ignore:This process", __file__, *words]


def lacking(plugin: Any, *functions: str) -> Plugin:
    """The plugin without functions, which those before some PJRT API lack."""
    own = plugin.api.address
    size = ctypes.c_size_t.from_address(own).value
    copy = ctypes.create_string_buffer(ctypes.string_at(own, size), size)
    for name in functions:
        at = FIRST_SLOT + 8 * table.FUNCTIONS[name].slot
        copy[at : at + 8] = bytes(8)[: max(size - at, 0)]
    _TABLES.append(copy)
    return Plugin(library.adopt(ctypes.addressof(copy), plugin.path))


def device_count(count: int) -> dict[str, int]:
    """The create options for so many devices; only the CPU plugin makes them of nothing."""
    if PLATFORM != "cpu":
        import pytest  # which processes of tests do without

        pytest.skip(f"needs {count} devices")
    return {"cpu_device_count": count}


def refusal(call: Callable[[], object]) -> dict[str, str] | None:
    """What a call raises: the name of its class, and its text."""
    try:
        call()
    except Exception as exc:
        return {"error": type(exc).__name__, "text": str(exc)}
    return None


def ones(client: Any) -> Any:
    """A buffer of eight ones."""
    return client.buffer_from_host(np.ones(8, np.float32))


def start(client: Any, rounds: int) -> Any:
    """Start work in the background and give its result, the identity, still pending."""
    identity = client.buffer_from_host(np.eye(256, dtype=np.float32))
    return client.compile(SLOW)(identity, client.buffer_from_host(np.int32(rounds)))


def promise(client: Any) -> tuple[Any, Callable[[], object]]:
    """A buffer, the identity, that is pending until the function beside it is called.

    For tests that need a pending value for as long as they take: work may end before, where a
    process is stopped for a while.
    """
    transfer = pjrt_hub.Transfer(client, [((256, 256), np.float32)])
    value = np.eye(256, dtype=np.float32)
    return transfer.retrieve_buffer(0), lambda: transfer.transfer_data(0, value, is_last=True)


def in_threads(*work: Callable[[], object]) -> None:
    """Call each in a thread of its own, all at once, and wait for their ends."""
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def show(kind: type[BaseException], exc: BaseException, trace: Any) -> None:
    """Print an exception, and the variables where an assertion failed, which pytest would show."""
    sys.__excepthook__(kind, exc, trace)
    if kind is AssertionError:
        while trace.tb_next:
            trace = trace.tb_next
        for name, value in trace.tb_frame.f_locals.items():
            print(f"    {name} = {value!r}"[:500], file=sys.stderr)


if __name__ == "__main__":
    sys.excepthook = show
    file, name, arguments, prepared = sys.argv[1:]
    sys.path.insert(0, str(Path(file).parent))
    function = inspect.unwrap(getattr(importlib.import_module(Path(file).stem), name))
    given = ast.literal_eval(arguments)
    if prepared:
        client = pjrt_hub.client(PLATFORM, offline=True)
        given = (client, *given)
    kept = function(*given)
