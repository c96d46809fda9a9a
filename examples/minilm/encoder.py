"""all-MiniLM-L6-v2 in plain JAX: the source of encoder.mlir, and what `jax.export` takes.

Its weights are arguments, named as in the model's model.safetensors, so that an exported program
is small and holds nothing of the model but its architecture.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import export
from jaxlib.mlir.dialects import stablehlo

# The architecture, from the model's config.json; its tokenizer pads and truncates to TOKENS.
VOCABULARY, POSITIONS, SEGMENTS = 30522, 512, 2
LAYERS, HEADS, HIDDEN, INTERMEDIATE = 6, 12, 384, 1536
LAYER_NORM_EPSILON = 1e-12
TOKENS = 128

# Plugins that read this StableHLO or a newer one can read the program: PJRT API 0.58 has 1.8.
STABLEHLO_VERSION = "1.8.0"


def weight_shapes():
    """Map each weight's name in model.safetensors to its shape; a dense weight is (out, in)."""

    def dense(name, outputs, inputs):
        return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}

    def layer_norm(name):
        return {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}

    shapes = {
        "embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (SEGMENTS, HIDDEN),
        **layer_norm("embeddings.LayerNorm"),
    }
    for index in range(LAYERS):
        layer = f"encoder.layer.{index}"
        shapes |= {
            **dense(f"{layer}.attention.self.query", HIDDEN, HIDDEN),
            **dense(f"{layer}.attention.self.key", HIDDEN, HIDDEN),
            **dense(f"{layer}.attention.self.value", HIDDEN, HIDDEN),
            **dense(f"{layer}.attention.output.dense", HIDDEN, HIDDEN),
            **layer_norm(f"{layer}.attention.output.LayerNorm"),
            **dense(f"{layer}.intermediate.dense", INTERMEDIATE, HIDDEN),
            **dense(f"{layer}.output.dense", HIDDEN, INTERMEDIATE),
            **layer_norm(f"{layer}.output.LayerNorm"),
        }
    return dict(sorted(shapes.items()))  # JAX flattens a dict in this order.


def dense(weights, name, x):
    """A linear layer: x @ weight.T + bias."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(weights, name, x):
    """Scales each token's vector to mean 0 and variance 1, then applies the learned scale."""
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    normal = centred * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON)
    return normal * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def attention(weights, layer, x, mask):
    """Multi-head self-attention in which tokens attend to those that the mask names."""

    def heads(name):
        projected = dense(weights, f"{layer}.attention.self.{name}", x)
        return projected.reshape(-1, HEADS, HIDDEN // HEADS)

    scores = jnp.einsum("qhd,khd->hqk", heads("query"), heads("key"))
    scores = scores / jnp.sqrt(jnp.float32(HIDDEN // HEADS))
    scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
    mixed = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), heads("value"))
    return dense(weights, f"{layer}.attention.output.dense", mixed.reshape(-1, HIDDEN))


def feed_forward(weights, layer, x):
    """The two-layer perceptron, with the exact (erf) form of GELU."""
    x = dense(weights, f"{layer}.intermediate.dense", x)
    x = x * (1 + jax.lax.erf(x / jnp.sqrt(jnp.float32(2)))) / 2
    return dense(weights, f"{layer}.output.dense", x)


def encode(input_ids, attention_mask, weights):
    """Embeds one tokenized sentence.

    Args:
        input_ids: s32[TOKENS] word-piece numbers, padded.
        attention_mask: s32[TOKENS], 1 for a token and 0 for padding.
        weights: f32 arrays by name, as weight_shapes() lists them.

    Returns:
        f32[HIDDEN] of length 1: the mean over the sentence's tokens, normalised.
    """
    mask = attention_mask.astype(bool)
    x = transform(input_ids, slice(len(input_ids)), mask, weights)
    pooled = jnp.where(mask[:, None], x, 0).sum(0) / mask.sum()
    return pooled / jnp.linalg.norm(pooled)


def encode_row(input_ids, positions, texts, weights):
    """Embeds the sentences of a row, in which they stand one after the other.

    Args:
        input_ids: s32[TOKENS] word-piece numbers.
        positions: s32[TOKENS], that of each token in its sentence.
        texts: s32[TOKENS], the number of each token's sentence; padding has one of its own.
        weights: f32 arrays by name, as weight_shapes() lists them.

    Returns:
        f32[TOKENS, HIDDEN]: for each token, what `encode` gives for its sentence.
    """
    same = texts[:, None] == texts  # A token attends to its own sentence.
    x = transform(input_ids, positions, same, weights)
    pooled = same.astype(jnp.float32) @ x / same.sum(-1, keepdims=True)
    return pooled / jnp.linalg.norm(pooled, axis=-1, keepdims=True)


def transform(input_ids, positions, mask, weights):
    """Give each token's vector after the last layer, f32[TOKENS, HIDDEN]."""
    x = (
        weights["embeddings.word_embeddings.weight"][input_ids]
        + weights["embeddings.position_embeddings.weight"][positions]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    x = layer_norm(weights, "embeddings.LayerNorm", x)
    for index in range(LAYERS):
        layer = f"encoder.layer.{index}"
        attended = attention(weights, layer, x, mask)
        x = layer_norm(weights, f"{layer}.attention.output.LayerNorm", x + attended)
        x = layer_norm(weights, f"{layer}.output.LayerNorm", x + feed_forward(weights, layer, x))
    return x


def exported():
    """Traces `encode` for the platform of JAX's default backend: a `jax.export.Exported`.

    JAX 0.10 writes StableHLO 1.15, in which `erf` is an operation that older plugins cannot read;
    the same module is readable to them in an older version.
    """
    jax.config.update("jax_traceback_in_locations_limit", 0)  # The program shall contain no paths.
    tokens = jax.ShapeDtypeStruct((TOKENS,), jnp.int32)
    weights = {n: jax.ShapeDtypeStruct(s, jnp.float32) for n, s in weight_shapes().items()}
    traced = export.export(jax.jit(encode))(tokens, tokens, weights)
    program = stablehlo.serialize_portable_artifact_str(traced.mlir_module(), STABLEHLO_VERSION)
    return dataclasses.replace(traced, mlir_module_serialized=program)
