"""Exported functions with large constants: the time to a first result, and the memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

import report
import rounds

ROUNDS = 3
#: The size of the constants -> their number and their width, in float32.
SIZES = {"0.4 GB": (4, 5000), "2.0 GB": (4, 11180)}
PAGE = os.sysconf("SC_PAGE_SIZE")

#: The codes take the file, and leave the result beside it.
EXPORT = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax import export
file, count, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random = np.random.default_rng(0)
def constant():
    return random.standard_normal((width, width), np.float32) / np.float32(width**0.5)
constants = [jnp.asarray(constant()) for _ in range(count)]
def function(x):
    for each in constants:
        x = jnp.tanh(x @ each)
    return x
x = random.standard_normal((4, width), np.float32)
np.save(f"{file}.x.npy", x)
exported = export.export(jax.jit(function))(jax.ShapeDtypeStruct(x.shape, x.dtype))
open(file, "wb").write(exported.serialize())
"""
OURS = """
import sys
import numpy as np, pjrt_hub
file = sys.argv[1]
with pjrt_hub.load_exported(file, platform="cpu", cache={cache}) as function:
    np.save(f"{{file}}.ours.npy", function(np.load(f"{{file}}.x.npy")))
"""
JAX = """
import sys
import jax, numpy as np
from jax import export
file = sys.argv[1]
function = export.deserialize(open(file, "rb").read())
np.save(f"{file}.jax.npy", jax.jit(function.call)(np.load(f"{file}.x.npy")))
"""
VARIANTS = {
    "pjrt-hub": OURS.format(cache=False),
    "pjrt-hub, from its cache": OURS.format(cache=True),
    "jax": JAX,
}
BARS = tuple(
    report.Bar(f"{size} of constants, isolated: {column}", f"{size}, pjrt-hub", column, 1.1)
    for size in SIZES
    for column in ("time ÷ jax", "memory ÷ jax")
)


def measure() -> report.Section:
    """The medians of interleaved processes; the first round fills the compile cache."""
    import numpy as np

    rows: rounds.Rows = {}
    for size, sizes in SIZES.items():
        with TemporaryDirectory() as folder:
            file = Path(folder) / "function.jaxexport"
            env = {**os.environ, "PJRT_HUB_CACHE": f"{folder}/cache", "JAX_PLATFORMS": "cpu"}
            _run(EXPORT, env, file, *sizes)
            turns = [
                {name: _run(code, env, file) for name, code in VARIANTS.items()}
                for _ in range(ROUNDS + 1)
            ]
            ours, theirs = (np.load(f"{file}.{name}.npy") for name in ("ours", "jax"))
            np.testing.assert_allclose(ours, theirs, atol=1e-4)
        for name in VARIANTS:
            seconds, nbytes = zip(*(turn[name] for turn in turns[1:]), strict=True)
            pairs = [(turn[name], turn["jax"]) for turn in turns[1:]]
            rows[f"{size}, {name}"] = {
                "seconds": median(seconds),
                "MB": median(nbytes) / 1e6,
                "time ÷ jax": median(one[0] / other[0] for one, other in pairs),
                "memory ÷ jax": median(one[1] / other[1] for one, other in pairs),
            }
    return report.Section(
        "Large constants",
        "Whole processes from their start to the first result of a function that JAX exported with"
        " such constants, and the most\nmemory that they and their children hold together, in"
        f" {ROUNDS} interleaved rounds with a warm page cache.",
        rows,
        BARS,
    )


def _run(code: str, env: dict[str, str], *words: object) -> tuple[float, float]:
    """Run a process; give its seconds, and the most resident bytes of it and its children."""
    start, most = perf_counter(), 0
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, words)], env=env, cwd="/")
    while process.poll() is None:
        most = max(most, _resident(process.pid))
        sleep(0.01)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return perf_counter() - start, float(most)


def _resident(process: int) -> int:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
        threads = Path(f"/proc/{process}/task").iterdir()
        children = [child for each in threads for child in (each / "children").read_text().split()]
    except (OSError, IndexError):  # It has ended.
        return 0
    return pages * PAGE + sum(_resident(int(child)) for child in children)


if __name__ == "__main__":
    report.main(measure)
