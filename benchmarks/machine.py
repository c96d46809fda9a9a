"""The machine and the software that figures were taken on."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pjrt_hub

PACKAGES = ("numpy", "jax", "jaxlib", "pypjrt", "onnxruntime", "torch")
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


@dataclass(frozen=True)
class Machine:
    """What matters for comparing.

    Attributes:
        processor: its name; clouds hide the model's number, so family and model stand beside it.
        cpus: how many there are.
        governor: what sets their clock, empty where the machine does not say.
        system: the kernel.
        python: its implementation and version.
        packages: name -> version, empty where it is not installed.
        load: the averages over 1, 5 and 15 minutes before the figures were taken.
    """

    processor: str
    cpus: int
    governor: str
    system: str
    python: str
    packages: dict[str, str]
    load: tuple[float, ...] = ()

    def lines(self) -> list[str]:
        """The machine and the software, a line each."""
        governor = f", governor {self.governor}" if self.governor else ""
        load = f", load average {', '.join(f'{each:.2f}' for each in self.load)}"
        installed = [f"{name} {held or 'not installed'}" for name, held in self.packages.items()]
        return [
            f"{self.processor}, {self.cpus} CPUs{governor}, {self.system}"
            + (load if self.load else ""),
            ", ".join([self.python, *installed]),
        ]


def this() -> Machine:
    """The machine that this runs on; to be read before the figures are taken."""
    return Machine(
        processor=_processor(),
        cpus=os.cpu_count() or 1,
        governor=GOVERNOR.read_text("utf-8").strip() if GOVERNOR.is_file() else "",
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        packages={"pjrt-hub": pjrt_hub.__version__}
        | _plugin(os.environ.get("TESTED_PLATFORM", "cpu"))
        | {name: _version(name) for name in PACKAGES},
        load=tuple(round(average, 2) for average in os.getloadavg()),
    )


def _plugin(name: str) -> dict[str, str]:
    """The build of the plugin that is measured, which several packages may bring."""
    found = next((each for each in pjrt_hub.plugins() if each.name == name), None)
    version = f"{found.version} of PJRT API {found.api_version}" if found else ""
    return {f"the plugin {name}": version}


def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text("utf-8")
    facts = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", text, re.MULTILINE))
    if "model name" not in facts:
        return platform.machine()
    return f"{facts['model name']} (family {facts['cpu family']}, model {facts['model']})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
