"""Makes decode.jaxexport: the only step that needs JAX.

pip install 'jax>=0.10'
python examples/decoder/export.py FILE
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from generate import HEADS, LAYERS, LONGEST, SIZE, empty_state, random_weights
from jax import export


def normalize(x):
    """Scale to a mean of 0 and a variance of 1."""
    return (x - x.mean()) / jnp.sqrt(x.var() + 1e-5)


def attend(layer, x, keys, values, position):
    """Look at all tokens so far; returns what was seen, and the caches with this token."""
    query, key, value = (x @ layer["attention"]).reshape(3, HEADS, -1)
    keys, values = keys.at[position].set(key), values.at[position].set(value)
    scores = jnp.einsum("hd,thd->ht", query, keys) / (SIZE // HEADS) ** 0.5
    seen = jnp.where(jnp.arange(LONGEST) <= position, scores, -jnp.inf)
    mixed = jnp.einsum("ht,thd->hd", jax.nn.softmax(seen), values)
    return mixed.reshape(-1) @ layer["output"], keys, values


def decode(weights, state, token):
    """Return the likeliest next token, and the state with this one in it."""
    position, keys, values = state["position"], [], []
    x = weights["embedding"][token]
    for number in range(LAYERS):
        layer, cached = weights["layers"][number], (state["keys"][number], state["values"][number])
        seen, key, value = attend(layer, normalize(x), *cached, position)
        x = x + seen
        x = x + jax.nn.gelu(normalize(x) @ layer["up"]) @ layer["down"]
        keys.append(key)
        values.append(value)
    logits = weights["embedding"] @ normalize(x)
    state = {"keys": keys, "position": position + 1, "values": values}
    return {"token": jnp.argmax(logits).astype(jnp.int32), "state": state}


if __name__ == "__main__":
    # Without this, the file would contain folders of this machine.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    arguments = random_weights(), empty_state(), jnp.int32(0)
    types = jax.tree.map(lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype), arguments)
    # A step then writes into the memory of the state that it was given.
    exported = export.export(jax.jit(decode, donate_argnums=1), platforms=["cpu", "cuda", "tpu"])
    Path(sys.argv[1]).write_bytes(exported(*types).serialize())
