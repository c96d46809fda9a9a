"""Generates tokens with a KV cache that stays on the device, where no framework is.

pip install 'pjrt-hub[cpu]'
python examples/decoder/generate.py 20
"""

import sys
from pathlib import Path

import numpy as np

import pjrt_hub

LAYERS, HEADS, SIZE, TOKENS, LONGEST = 2, 4, 64, 256, 256


def random_weights():
    """Make the weights of a decoder that has learned nothing."""
    random = np.random.default_rng(0)

    def matrix(rows, columns):
        return random.standard_normal((rows, columns), np.float32) / np.float32(rows**0.5)

    layers = [
        {
            "attention": matrix(SIZE, 3 * SIZE),
            "down": matrix(4 * SIZE, SIZE),
            "output": matrix(SIZE, SIZE),
            "up": matrix(SIZE, 4 * SIZE),
        }
        for _ in range(LAYERS)
    ]
    return {"embedding": matrix(TOKENS, SIZE), "layers": layers}


def empty_state():
    """Make the state before the first token."""
    caches = [np.zeros((LONGEST, HEADS, SIZE // HEADS), np.float32) for _ in range(LAYERS)]
    return {"keys": caches, "position": np.int32(0), "values": caches}


def main(count):
    """Print so many tokens; each is computed from the last one without a copy to the host."""
    path = Path(__file__).with_name("decode.jaxexport")
    with pjrt_hub.load_exported(path, platform="cpu") as decode:
        step = decode.stepper(
            carry={"result['state']": "args[1]"},
            fixed={"args[0]": random_weights()},
            state={"args[1]": empty_state()},
        )
        token, tokens = np.int32(1), []
        for _ in range(count):
            token = step(token)
            tokens.append(token)
        print(*(int(each) for each in tokens))


if __name__ == "__main__":
    main(int(sys.argv[1]))
