"""Makes predict.jaxexport: the only step that needs JAX.

pip install 'jax>=0.10'
python examples/exported/export.py FILE
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import export

WEIGHTS = jnp.array([[1.5, -2.0], [-0.5, 1.0], [0.25, 0.75]])


def predict(flower, *, temperature):
    """Tell two kinds of flowers apart by three measures of each."""
    measures = jnp.stack([flower["length"], flower["width"], flower["weight"]], axis=1)
    chances = jax.nn.softmax(measures @ WEIGHTS / temperature)
    return {"kind": jnp.argmax(chances, axis=1).astype(jnp.int32), "chances": chances}


if __name__ == "__main__":
    # Without this, the file would contain folders of this machine.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    measure = jax.ShapeDtypeStruct((4,), jnp.float32)
    flower = {"length": measure, "width": measure, "weight": measure}
    number = jax.ShapeDtypeStruct((), jnp.float32)
    exported = export.export(jax.jit(predict), platforms=["cpu", "cuda", "tpu"])
    Path(sys.argv[1]).write_bytes(exported(flower, temperature=number).serialize())
