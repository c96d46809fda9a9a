"""What weights take from a file to the device, in time and memory, beside safetensors and JAX."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import report
import rounds

#: Name -> tensors of TENSOR_NBYTES, rounds.
FILES = {"256 MB": (4, 5), "2 GB": (32, 5)}
TENSOR_NBYTES = 64 << 20

OURS, THEIRS, FLOOR = "pjrt-hub", "jax", "read"
BARS = tuple(
    bar
    for name in FILES
    for bar in (
        report.Bar(
            f"peak memory of loading {name}, times its size", name, "peak ÷ size", 1.1, 1.03
        ),
        report.Bar(f"loading {name}, times reading it", name, "÷ read", 1.2, 1.0),
        report.Bar(f"loading {name}, times safetensors and JAX", name, "÷ jax", 0.4, 0.2),
    )
)

#: Prints the seconds of LOAD, and the KiB of its peak above what the process held before.
MEASURED = """
import re, sys, time
import numpy
path = sys.argv[1]
PREPARE
def held(field):
    return int(re.search(field + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1])
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before, start = held("VmRSS"), time.perf_counter()
LOAD
print(time.perf_counter() - start, held("VmHWM") - before)
"""
PROGRAMS = {
    FLOOR: (
        "import os, pjrt_hub",
        """
array = pjrt_hub.empty_aligned(os.path.getsize(path), 'uint8')
with open(path, 'rb', buffering=0) as file:
    done = 0
    while done < array.nbytes:
        done += file.readinto(memoryview(array)[done:])
""",
    ),
    OURS: (
        "import pjrt_hub; from pjrt_hub import safetensors; "
        "client = pjrt_hub.client('cpu'); client.buffer_from_host(numpy.ones(8))",
        "buffers = safetensors.load_file(path, client)\nfor b in buffers.values(): b.ready.wait()",
    ),
    THEIRS: (
        "import jax, safetensors.numpy; jax.device_put(numpy.ones(8)).block_until_ready()",
        "arrays = {k: jax.device_put(v) for k, v in safetensors.numpy.load_file(path).items()}\n"
        "jax.block_until_ready(arrays)",
    ),
}


def measure() -> report.Section:
    """The medians of interleaved processes."""
    has_theirs = all(map(importlib.util.find_spec, ("jax", "safetensors")))
    known = [name for name in PROGRAMS if name != THEIRS or has_theirs]
    rows: rounds.Rows = {}
    with TemporaryDirectory() as folder:
        for name, (tensors, times) in FILES.items():
            path = Path(folder, "weights.safetensors")
            _write(path, tensors)
            rows[name] = _row(path, known, times)
            path.unlink()
    return report.Section(
        "Weights",
        f"Milliseconds from a safetensors file of tensors of {TENSOR_NBYTES >> 20} MB to "
        "buffers on the CPU, with the page cache warm, and the peak\nmemory above what the "
        "process held before. The tensors begin where the plugin cannot share the mapped "
        "file. Reading is\n`readinto` of the whole file into huge pages.",
        rows,
        tuple(bar for bar in BARS if bar.column in rows[bar.row]),
    )


def _row(path: Path, known: list[str], times: int) -> dict[str, float]:
    peaks: dict[str, list[float]] = {name: [] for name in known}

    def loading(name: str) -> Callable[[], float]:
        def seconds() -> float:
            prepare, load = PROGRAMS[name]
            code = MEASURED.replace("PREPARE", prepare).replace("LOAD", load)
            done = subprocess.run(
                [sys.executable, "-c", code, str(path)],
                cwd="/",  # In the checkout, a pjrt_hub would be imported that is not compiled.
                stdout=subprocess.PIPE,
                check=True,
                env=os.environ | {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"},
            )
            elapsed, peak_kib = map(float, done.stdout.split())
            peaks[name].append(peak_kib / 1024)
            return elapsed

        return seconds

    seconds = rounds.interleave({name: loading(name) for name in known}, times)
    row = {f"{name} ms": median(each) * 1e3 for name, each in seconds.items()}
    row |= {f"{name} peak MiB": median(each) for name, each in peaks.items()}
    row["÷ read"] = rounds.ratio(seconds, OURS, FLOOR)
    row["peak ÷ size"] = row[f"{OURS} peak MiB"] / (path.stat().st_size >> 20)
    if THEIRS in known:
        row["÷ jax"] = rounds.ratio(seconds, OURS, THEIRS)
    return row


def _write(path: Path, tensors: int) -> None:
    header = {
        f"layer.{number}": {
            "dtype": "F32",
            "shape": [1 << 12, TENSOR_NBYTES >> 14],
            "data_offsets": [number * TENSOR_NBYTES, (number + 1) * TENSOR_NBYTES],
        }
        for number in range(tensors)
    }
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64 + 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for number in range(tensors):
            file.write(bytes([number + 1]) * TENSOR_NBYTES)


if __name__ == "__main__":
    report.main(measure)
