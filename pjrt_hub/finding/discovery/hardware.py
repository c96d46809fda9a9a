"""Detection of a plugin's hardware, from files only.

Owns `present`; must not load a driver, run a program or open a device.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pjrt_hub.base.abi import Verdict
from pjrt_hub.finding.contract.manifest import FILE_NAME, Probe

# Linux writes less than a page into such a file; the limit keeps a fake tree from costing more.
_MAX_NBYTES = 16384


def present(probe: Probe, root: Path) -> Verdict:
    """Look below `root` for the hardware of `probe`; the reason says what was found or not.

    The verdict is neither yes nor no for a plugin without a manifest.
    """
    if probe.kind == "always":
        return Verdict(True, "needs no special hardware")
    if probe.kind == "unknown":
        return Verdict(None, f"no {FILE_NAME} says what hardware it needs")
    verdict = {"files": _files, "kfd": _kfd, "pci": _pci}[probe.kind](probe, root)
    return _driver(probe, root, verdict) if verdict.ok and probe.driver_file else verdict


def drivers(root: Path) -> str:
    """Name this machine's accelerator drivers, with their versions, and its devices.

    With another driver, a plugin's answers at first contact may differ.
    """
    modules = root / "sys/module"
    versions = [_text(root / "proc/driver/nvidia/version").partition("\n")[0]]
    for module in ("nvidia", "amdgpu", "i915", "xe", "gasket", "apex", "neuron", "tenstorrent"):
        if version := _text(modules / module / "version").strip():
            versions.append(f"{module} {version}")
    for folder in ("dev/accel", "dev/dri", "dev/vfio", "dev/tenstorrent", "sys/class/accel"):
        try:
            versions.append(f"{folder} {' '.join(sorted(os.listdir(root / folder)))}")
        except OSError:
            continue
    return "; ".join(filter(None, versions))


def _files(probe: Probe, root: Path) -> Verdict:
    for path in probe.files:
        if (root / path.lstrip("/")).exists():
            return Verdict(True, f"{path} exists")
    return Verdict(False, f"none of {', '.join(probe.files)} exists")


def _kfd(probe: Probe, root: Path) -> Verdict:
    # The kernel's AMD compute driver lists CPUs as nodes too; those have no SIMD units.
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    for path in sorted(nodes.glob("*/properties")):
        if re.search(r"^simd_count\s+0*[1-9]", _text(path), re.MULTILINE):
            return Verdict(True, f"the AMD compute driver lists node {path.parent.name}")
    return Verdict(False, "the AMD compute driver (kfd) lists no GPU")


def _pci(probe: Probe, root: Path) -> Verdict:
    for path in sorted((root / "sys/bus/pci/devices").glob("*/vendor")):
        if _text(path).strip().lower() != probe.vendor:
            continue
        device = _text(path.with_name("device")).strip().lower()
        if not probe.devices or device in probe.devices:
            return Verdict(True, f"PCI device {probe.vendor}:{device} at {path.parent.name}")
    wanted = f" of {len(probe.devices)} known kinds" if probe.devices else ""
    return Verdict(False, f"no PCI device of vendor {probe.vendor}{wanted}")


def driver_version(probe: Probe, root: Path) -> str:
    """Return the version of the driver, "550.54.15"; empty if its file tells none, as under WSL."""
    # The file says "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  ...".
    text = _text(root / probe.driver_file.lstrip("/")) if probe.driver_file else ""
    found = re.search(r"\s(\d{3,}(?:\.\d+)+)", text)
    return found[1] if found else ""


def _driver(probe: Probe, root: Path, verdict: Verdict) -> Verdict:
    version = driver_version(probe, root)
    if version and int(version.partition(".")[0]) < probe.driver_minimum:
        return Verdict(False, f"the driver is {version}, {probe.driver_minimum} or newer is needed")
    return verdict


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_NBYTES).decode("ascii", "replace")
    except OSError:
        return ""
