"""Processes that have ended by themselves, with what they printed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def run(*words: object, seconds: float = 300, **how: Any) -> subprocess.CompletedProcess[str]:
    """A command line's process, which must end in time."""
    command = [*map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, **how)


def python(*words: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """The same of this interpreter, with these words behind its name."""
    return run(sys.executable, *words, **how)


def cli(*words: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """The same of `pjrt-hub`."""
    return python("-m", "pjrt_hub.cli", *words, **how)
