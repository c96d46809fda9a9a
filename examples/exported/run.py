"""Runs what JAX exported, where no JAX is.

pip install 'pjrt-hub[cpu]'
python examples/exported/run.py
"""

import sys
from pathlib import Path

import numpy as np

import pjrt_hub

FLOWERS = {
    "length": np.float32([1, 2, 0.5, 3]),
    "width": np.float32([0.5, 1, 1, 2]),
    "weight": np.float32([0.1, 0.4, 0.9, 0.2]),
}


def main():
    """Call the function with the tree of arguments that it was exported with."""
    path = Path(__file__).with_name("predict.jaxexport")
    with pjrt_hub.load_exported(path, platform="cpu") as predict:
        print(f"{predict.function_name}, for {', '.join(predict.platforms)}")
        result = predict(FLOWERS, temperature=np.float32(0.5))
        print("kinds  ", np.asarray(result["kind"]).tolist())
        print("chances", np.asarray(result["chances"], float).round(3).tolist())
        try:
            predict({**FLOWERS, "width": np.zeros(3, np.float32)}, temperature=np.float32(1))
        except (TypeError, ValueError) as error:
            print(type(error).__name__, str(error).splitlines()[0])
    print("jax was imported:", "jax" in sys.modules)


if __name__ == "__main__":
    main()
