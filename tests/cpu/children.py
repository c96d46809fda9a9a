"""Tests whose body runs in a child process, and helpers that such bodies start with."""

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

#: The plugin under test: the CPU plugin, or one whose hardware this machine has.
PLATFORM = os.environ.get("TESTED_PLATFORM", "cpu")
PROGRAMS = Path(__file__).parents[1] / "programs"
_NAMES = ["discrete", *re.findall(r"platform=(\w+)", os.environ.get("PJRT_HUB_DISCRETE", ""))]
#: Whether the layer `discrete` makes the plugin's devices look like those of an accelerator.
IS_LAYERED = "discrete" in os.environ.get("PJRT_HUB_LAYERS", "").split(",")
#: The platform name that the plugin's clients report.
NAME = _NAMES[-1] if IS_LAYERED else PLATFORM
#: Whether the devices use host memory, so that results can be read at once.
IS_CPU = NAME == "cpu"
#: Whether the plugin stores arrays in tiles.
HAS_TILES = PLATFORM == "tpu" or "tiled" in os.environ.get("PJRT_HUB_DISCRETE", "")
#: Whether the plugin runs on real hardware other than the CPU.
IS_HARDWARE = PLATFORM != "cpu" and not IS_LAYERED
ADD = PROGRAMS / "add.mlir"
#: Function tables, which must stay alive as long as the process.
_TABLES: list[Any] = []
#: A program that runs in the background for `rounds` rounds of 0.2 ms each.
SLOW = programs.SLOW.replace(programs.SLOW_SHAPE, "256x256xf32")


def calling(name: str) -> str:
    """The slow program with a custom call of that name at the end of each round."""
    call = f"""%z = stablehlo.custom_call @{name}(%y) {{api_version = 4 : i32,
        backend_config = {{}}}} : (tensor<256x256xf32>) -> tensor<256x256xf32>
      stablehlo.return %j, %z"""
    return SLOW.replace("stablehlo.return %j, %y", call)


def there(buffer: Any) -> Any:
    """Wait for the buffer's value and return the buffer, so that its repr shows the value."""
    buffer.ready.wait()
    return buffer


def in_child(
    body: Callable[..., object] | None = None, *, stdout: str | None = None, **how: Any
) -> Any:
    """Run the body of a test in a child process, which must exit successfully by itself.

    Args:
        body: takes a `client` of the child, if it wants one, then the test's arguments: values
            that `repr` can write, and paths as text. Its return value lives until the child exits.
        stdout: the exact output of the child; None if any output is allowed.
        how: further arguments of the fixture `child` in conftest.py.
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
    """The command line that calls a function of a test file in a child process; see `child`."""
    given = tuple(str(each) if isinstance(each, Path) else each for each in arguments)
    words = [function.__code__.co_filename, function.__name__, repr(given), "prepared" * prepared]
    # Python 3.12 and newer warn about a fork in a process with threads.
    return [sys.executable, "-W", "ignore:This process", __file__, *words]


def lacking(plugin: Any, *functions: str) -> Plugin:
    """A copy of the plugin that lacks these functions, as plugins of an older PJRT API do."""
    own = plugin.api.address
    size = ctypes.c_size_t.from_address(own).value
    copy = ctypes.create_string_buffer(ctypes.string_at(own, size), size)
    for name in functions:
        at = FIRST_SLOT + 8 * table.FUNCTIONS[name].slot
        copy[at : at + 8] = bytes(8)[: max(size - at, 0)]
    _TABLES.append(copy)
    return Plugin(library.adopt(ctypes.addressof(copy), plugin.path))


def device_count(count: int) -> dict[str, int]:
    """Create options for `count` devices; skips the test unless the CPU plugin is tested."""
    if PLATFORM != "cpu":
        import pytest  # child processes of tests avoid this import

        pytest.skip(f"needs {count} devices")
    return {"cpu_device_count": count}


def refusal(call: Callable[[], object]) -> dict[str, str] | None:
    """The class name and the text of the exception that a call raises, or None."""
    try:
        call()
    except Exception as exc:
        return {"error": type(exc).__name__, "text": str(exc)}
    return None


def ones(client: Any) -> Any:
    """A buffer of eight ones."""
    return client.buffer_from_host(np.ones(8, np.float32))


def adds(executable: Any) -> bool:
    """Whether an executable of programs/add.mlir is right."""
    eight = ones(executable.client)
    return bool(executable(eight, eight).tolist() == [2.0] * 8)


def start(client: Any, rounds: int) -> Any:
    """Start background work and return its still pending result, an identity matrix."""
    identity = client.buffer_from_host(np.eye(256, dtype=np.float32))
    return client.compile(SLOW)(identity, client.buffer_from_host(np.int32(rounds)))


def promise(client: Any) -> tuple[Any, Callable[[], object]]:
    """A pending buffer of an identity matrix, and the function whose call makes it ready.

    Use it where a value must stay pending for the whole test: background work could end early if
    the test's process is paused for a while.
    """
    transfer = pjrt_hub.Transfer(client, [((256, 256), np.float32)])
    value = np.eye(256, dtype=np.float32)
    return transfer.retrieve_buffer(0), lambda: transfer.transfer_data(0, value, is_last=True)


def in_threads(*work: Callable[[], object]) -> None:
    """Call each function in its own thread, all at once, and wait until all have returned."""
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def show(kind: type[BaseException], exc: BaseException, trace: Any) -> None:
    """Print an exception and the variables at a failed assertion, as pytest would show them."""
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
