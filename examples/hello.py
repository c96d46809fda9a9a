"""From nothing to a result: fetches a plugin if none is installed, and runs hello.mlir on it.

pip install pjrt-hub
python examples/hello.py
"""

from pathlib import Path

import numpy as np

import pjrt_hub

with pjrt_hub.client("cpu") as client:
    program = client.compile(Path(__file__).with_name("hello.mlir"))
    a = client.buffer_from_host(np.arange(8, dtype=np.float32))
    b = client.buffer_from_host(np.full(8, 0.25, dtype=np.float32))
    result = program(a, b)
    print("tanh(a * b + 1) =", np.asarray(result).round(4))
    print("computed on", result.device)
