"""Writes examples/minilm/encoder.mlir and encoder.json: examples/minilm/encoder.py as StableHLO.

Run it where jax 0.10.2 is installed:  python tools/export_minilm.py
"""

import json
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "minilm"


def main():
    """Export the encoder and record the order of the program's arguments."""
    sys.path.insert(0, str(EXAMPLE))
    import encoder

    (EXAMPLE / "encoder.mlir").write_bytes(encoder.exported().mlir_module_serialized)

    def argument(name, shape, dtype):
        return {"name": name, "shape": shape, "dtype": dtype}

    tokens = [encoder.TOKENS]
    signature = {
        "inputs": [argument(name, tokens, "int32") for name in ("input_ids", "attention_mask")],
        "weights": [argument(n, s, "float32") for n, s in encoder.weight_shapes().items()],
        "outputs": [argument("embedding", [encoder.HIDDEN], "float32")],
    }
    (EXAMPLE / "encoder.json").write_text(json.dumps(signature, indent=1) + "\n")


if __name__ == "__main__":
    main()
