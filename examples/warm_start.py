"""Weights from a file straight into buffers, and a second start that compiles nothing.

pip install 'pjrt-hub[cpu]'
python examples/warm_start.py FOLDER && python examples/warm_start.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np

import pjrt_hub
from pjrt_hub import safetensors

PROGRAM = """
func.func @main(%x: tensor<1x16xf32>, %up: tensor<16x64xf32>, %down: tensor<64x4xf32>)
    -> tensor<1x4xf32> {
  %0 = stablehlo.dot_general %x, %up, contracting_dims = [1] x [0]
      : (tensor<1x16xf32>, tensor<16x64xf32>) -> tensor<1x64xf32>
  %1 = stablehlo.tanh %0 : tensor<1x64xf32>
  %2 = stablehlo.dot_general %1, %down, contracting_dims = [1] x [0]
      : (tensor<1x64xf32>, tensor<64x4xf32>) -> tensor<1x4xf32>
  return %2 : tensor<1x4xf32>
}
"""


class Folder:
    """A cache of compilations: whatever has `get` and `put`. cache=True is the one of pjrt-hub."""

    def __init__(self, path):
        self.path = path

    def get(self, key):
        """Give the executable that was kept, or None."""
        file = self.path / key
        print("compiled before" if file.exists() else "not compiled yet")
        return file.read_bytes() if file.exists() else None

    def put(self, key, value):
        """Keep an executable."""
        (self.path / key).write_bytes(value)
        print(f"kept its {len(value)} bytes")


def main():
    """Start the model that lies in a folder, which the first start makes."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/warm_start.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    weights = folder / "model.safetensors"
    if not weights.exists():
        rng = np.random.default_rng(0)
        sizes = {"up": (16, 64), "down": (64, 4)}
        arrays = {name: rng.normal(0, 0.2, size).astype(np.float32) for name, size in sizes.items()}
        safetensors.save_file(arrays, weights)

    with pjrt_hub.client("cpu") as client:
        program = client.compile(PROGRAM, cache=Folder(folder))
        buffers = safetensors.load_file(weights, client, names=["up", "down"])  # It copies nothing.
        x = client.buffer_from_host(np.linspace(-1, 1, 16, dtype=np.float32)[None])
        print(np.asarray(program(x, *buffers.values()), float).round(4).tolist())


if __name__ == "__main__":
    main()
