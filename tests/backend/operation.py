"""Programs of one operation, run by the reference plugin."""

from __future__ import annotations

from typing import Any

from composition import Array, tensor


def run(client: Any, text: str, *arrays: Array) -> Any:
    """Run a whole program, and return its array, or a list with one for each output."""
    found = client.compile(text)(*map(client.buffer_from_host, arrays))
    if isinstance(found, (list, tuple)):
        return [each.to_numpy() for each in found]
    return found.to_numpy()


def on(client: Any, line: str, *arrays: Array, gives: str = "") -> Any:
    """Run one operation on %0 and %1; $F stands for the function's type, $T for that of %0.

    By default it gives an array of the type of %0.
    """
    kinds = [tensor(each) for each in arrays]
    gives = gives or kinds[0]
    function = f"({', '.join(kinds)}) -> {gives}"
    parameters = ", ".join(f"%{i}: {kind}" for i, kind in enumerate(kinds))
    body = f"%r = {line.replace('$F', function).replace('$T', kinds[0])} return %r : {gives}"
    return run(client, f"func.func @main({parameters}) -> {gives} {{ {body} }}", *arrays)
