"""Writes examples/serve/encoder.mlir.in: all-MiniLM-L6-v2 for any number and length of rows.

It is examples/minilm/encoder.py over rows, as text in which ROWS and TOKENS stand for numbers.
Run it where jax 0.10.2 is installed:  python tools/export_minilm_batch.py
"""

import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import export
from jax.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
TEMPLATE = EXAMPLES / "serve" / "encoder.mlir.in"

# These stand for ROWS and TOKENS in the traced model, which has them nowhere else, so that each of
# them in the text is one of the two.
ANY_ROWS, ANY_TOKENS = 8191, 509


def main():
    """Traces the encoder for the two numbers and puts their names in the text."""
    sys.path.insert(0, str(EXAMPLES / "minilm"))
    import encoder

    tokens = jax.ShapeDtypeStruct((ANY_ROWS, ANY_TOKENS), jnp.int32)
    shapes = encoder.weight_shapes()
    weights = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    rows = jax.jit(jax.vmap(encoder.encode_row, (0, 0, 0, None)))
    module = export.export(rows)(tokens, tokens, tokens, weights).mlir_module()

    with make_ir_context():  # Locations would contain paths of this machine.
        text = ir.Module.parse(module).operation.get_asm(enable_debug_info=False)
    for number, name in ((ANY_ROWS, "ROWS"), (ANY_TOKENS, "TOKENS")):
        # This is a size in a type, as in <509x or x509x, or the end of a slice, as in 0:509.
        text = re.sub(rf"(?<=[<x:]){number}(?=[x,])", name, text)
    TEMPLATE.write_text(text)


if __name__ == "__main__":
    main()
