"""Takes a walk through a host once for each function that its plugin is made to lack.

The host is imported once. A forked child takes every step that it can, and says how each went, also
by how it ends. Standard library only: it runs beside any release of a host.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

#: Each step, with the names of the steps that it needs.
Steps = dict[Callable[[Any], None], tuple[str, ...]]

RIGHT, EXIT = "right", "exit"
SECONDS = 300  # The seconds after which a child counts as hanging, even on a busy machine.


def main(release: str, steps: Steps, asked_of: dict[str, list[str]] | None = None) -> None:
    """Print a line of JSON for each name given, as `PJRT_HUB_WITHOUT` takes it; "" takes none.

    Args:
        release: of the host.
        steps: the walk, but for those that WALK_LEAVES_OUT names.
        asked_of: a trait -> the functions that the host calls only of plugins that have it.
    """
    left_out = os.environ.get("WALK_LEAVES_OUT", "").split(",")
    steps = {step: needed for step, needed in steps.items() if step.__name__ not in left_out}
    needs = {step.__name__: list(needed) for step, needed in steps.items()}
    head = {"release": release, "steps": needs, "asked_of": asked_of or {}}
    print(json.dumps(head), flush=True)
    for name in sys.argv[1:]:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            signal.alarm(SECONDS)
            os.environ["PJRT_HUB_WITHOUT"] = name
            _silence()
            _take(steps, writer)
            return  # The child goes on through the shutdown of the interpreter.
        os.close(writer)
        with os.fdopen(reader, "rb") as told:
            said = dict(json.loads(line) for line in told)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"without": name, "status": status, "steps": said}), flush=True)


def _silence() -> None:
    """What hosts and plugins write is no answer."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def _take(steps: Steps, writer: int) -> None:
    def tell(step: str, how: str) -> None:
        os.write(writer, json.dumps([step, how[:300]]).encode() + b"\n")

    at = SimpleNamespace()
    taken: set[str] = set()
    for step, needed in steps.items():
        if not taken.issuperset(needed):
            continue
        tell(step.__name__, "")
        try:
            step(at)
        except Exception as exc:
            tell(step.__name__, f"{type(exc).__module__}.{type(exc).__name__}: {exc}")
        else:
            taken.add(step.__name__)
            tell(step.__name__, RIGHT)
    tell(EXIT, "")
