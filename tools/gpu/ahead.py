"""Compiles small programs for a GPU that is not here, and writes what they must compute."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import pjrt_hub
from pjrt_hub import CompileOptions

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"
ENCODER = ROOT / "examples" / "minilm" / "encoder.mlir"
RANDOM = np.random.default_rng(3)
A, B = RANDOM.standard_normal((2, 64, 64)).astype(np.float32)
V, W = RANDOM.standard_normal((2, 8)).astype(np.float32)
#: Name -> arguments, result. Matrix units keep fewer bits, so products are compared loosely.
CASES = {
    "add": ((V, W), V + W),
    "tanh_mul_add": ((V, W), np.tanh(V * W + 1)),
    "matmul_64": ((A, B), A @ B),
}


def main() -> None:
    """Write each as NAME.pjrt beside NAME.npz into the folder that the command line names."""
    folder, gpu = sys.argv[1:]
    topology = pjrt_hub.topology("cuda13", gpu, offline=True)
    untimed = CompileOptions(flags={"xla_gpu_autotune_level": 0})
    for name, (arguments, result) in CASES.items():
        path = Path(folder, name)
        executable = topology.compile(PROGRAMS / f"{name}.mlir", untimed)
        path.with_suffix(".pjrt").write_bytes(executable.serialize())
        named = {f"argument{i}": each for i, each in enumerate(arguments)}
        np.savez(path.with_suffix(".npz"), result=result, **named)
        print(f"{name}: compiled for {gpu}")
    # The encoder's arguments and results are in minilm.npz.
    encoder = topology.compile(ENCODER, untimed)
    Path(folder, "encoder.pjrt").write_bytes(encoder.serialize())
    print(f"encoder: compiled for {gpu}")


if __name__ == "__main__":
    main()
