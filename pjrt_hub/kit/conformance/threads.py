"""Several threads at once, for checks that call a plugin from all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pjrt_hub.kit.conformance.finding import Hidden

_Answer = TypeVar("_Answer")


def at_once(functions: Sequence[Callable[[], _Answer]]) -> list[_Answer | Exception]:
    """Run each function in its own thread, at once; return results and errors, but raise Hidden."""
    together = threading.Barrier(len(functions))

    def run(function: Callable[[], _Answer]) -> _Answer | Exception:
        together.wait()
        try:
            return function()
        except Hidden:
            raise
        except Exception as exc:
            return exc

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(run, functions))
