"""Runs benchmarks, each in a process of its own, and gathers what they kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import record

HERE = Path(__file__).parent
#: The benchmarks in the order of the page; others follow by their names.
ORDER = (
    "call",
    "instructions",
    "small",
    "devices",
    "threads",
    "donation",
    "peers",
    "transfer",
    "weights",
    "start",
    "exported",
    "constants",
    "compile",
    "compute",
    "scale",
    "installed",
    "jax_bridge",
    "serving",
    "store",
    "memory",
    "tracing",
)
#: The benchmarks of the accelerator that TESTED_PLATFORM names.
OF_HARDWARE = {"accelerator"}
DEADLINE = 900.0


def names() -> list[str]:
    """Every benchmark that there is: a file here that is one by itself."""
    found = {path.stem for path in HERE.glob("*.py") if _is_benchmark(path)}
    return in_order(found if "TESTED_PLATFORM" in os.environ else found - OF_HARDWARE)


def in_order(found: Iterable[str]) -> list[str]:
    """Benchmarks as the page shows them."""
    places = {name: place for place, name in enumerate(ORDER)}
    return sorted(found, key=lambda name: (places.get(name, len(ORDER)), name))


def run(name: str) -> record.Part | None:
    """Measure in a fresh process, which prints; None where it ended without figures."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "figures.json")
        begun = monotonic()
        command = [sys.executable, str(HERE / f"{name}.py"), "--json", str(path)]
        try:
            subprocess.run(command, timeout=DEADLINE, check=False)
        except subprocess.TimeoutExpired:
            print(f"{name} did not end within {DEADLINE:.0f} s")
        print(f"--- {name}: {monotonic() - begun:.0f} s\n", flush=True)
        return record.read(path)[name] if path.exists() else None


def _is_benchmark(path: Path) -> bool:
    return bool(re.search(r"^    +report\.main\(", path.read_text("utf-8"), re.MULTILINE))
