"""The machine and the software that figures were taken on, in a few lines."""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("pjrt-hub", "xla-cpu-pjrt", "numpy", "jax", "jaxlib")


@cache
def notes() -> tuple[str, ...]:
    """Says what matters for comparing; read once, before the figures are taken."""
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    installed = ", ".join(f"{package} {_version(package)}" for package in PACKAGES)
    return (
        f"{_cpu()}, {len(os.sched_getaffinity(0))} CPUs, "
        f"{platform.system()} {platform.release()}, load average {load}",
        f"{platform.python_implementation()} {platform.python_version()}, {installed}",
    )


def _cpu() -> str:
    """The processor's name; clouds hide the model's number, so family and model stand beside it."""
    text = Path("/proc/cpuinfo").read_text("utf-8")
    facts = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", text, re.MULTILINE))
    if "model name" not in facts:
        return platform.machine()
    return f"{facts['model name']} (family {facts['cpu family']}, model {facts['model']})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
