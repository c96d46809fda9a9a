"""The files with code in a process: in this one, or in one that has imported modules.

A library that a framework has loaded serves a plugin as well, whichever file the plugin would find.
Must not import the modules into this process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from pjrt_hub.errors import FrameworkError
from pjrt_hub.running.sandbox import watch
from pjrt_hub.running.sandbox.child import Child


def code_files() -> list[str]:
    """Return the files with code in this process, in the order of their addresses."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            rows = [line.rstrip("\n").split(maxsplit=5) for line in file]
    except OSError:
        return []  # Only Linux has this file.
    return list(
        dict.fromkeys(
            row[5] for row in rows if len(row) == 6 and "x" in row[1] and row[5][0] == "/"
        )
    )


def code_files_after(modules: Sequence[str], env: Mapping[str, str], seconds: float) -> list[Path]:
    """Return the files with code in a process that has imported some modules, and only these."""
    deadline = time.monotonic() + seconds
    with Child(__name__, list(modules), env=env) as child:
        answers = list(child.answers(deadline))
    for answer in answers:
        if "files" in answer:
            return [Path(each) for each in answer["files"]]
    said = next((each["error"] for each in answers if "error" in each), child.words.text())
    raise FrameworkError(
        f"{', '.join(modules)} cannot be imported: {said or 'it takes too long'}",
        hint="name modules that can be imported here, such as torch",
    )


def work(tell: watch.Tell, *modules: str) -> int:
    """Import the modules, in the process that `watch.run` forks."""
    try:
        for module in modules:
            import_module(module)
    except Exception as exc:  # An import may raise anything.
        tell(error=f"{type(exc).__name__}: {exc}")
        return 1
    tell(files=code_files())
    return 0
