"""all-MiniLM-L6-v2 in plain torch on the CPU: over a batch of texts, or over rows of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import minilm
import numpy as np
import torch
from torch.nn import functional

LAYERS, HEADS, EPSILON = 6, 12, 1e-12


class Model:
    """The weights, and the mathematics of examples/minilm/encoder.py."""

    def __init__(self) -> None:
        self.weights = {name: torch.from_numpy(array) for name, array in minilm.weights().items()}

    def rows(self, pieces: np.ndarray, positions: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """What the program of examples/serve computes: f32[rows, tokens, 384]."""
        of = torch.from_numpy(numbers)
        same = of[:, :, None] == of[:, None]
        with torch.inference_mode():
            x = self._transformed(pieces, torch.from_numpy(positions), same[:, None])
            pooled = same.float() @ x / same.sum(-1, keepdim=True)
            embeddings: np.ndarray = functional.normalize(pooled, dim=-1).numpy()
        return embeddings

    def batch(self, encodings: Sequence[Any]) -> np.ndarray:
        """Texts that are padded to the longest: f32[len(encodings), 384]."""
        pieces = np.array([encoding.ids for encoding in encodings])
        mask = torch.tensor([encoding.attention_mask for encoding in encodings]).bool()
        with torch.inference_mode():
            x = self._transformed(pieces, torch.arange(pieces.shape[1]), mask[:, None, None])
            pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            embeddings: np.ndarray = functional.normalize(pooled).numpy()
        return embeddings

    def _transformed(
        self, pieces: np.ndarray, positions: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        words, places, segments = (
            self.weights[f"embeddings.{table}_embeddings.weight"]
            for table in ("word", "position", "token_type")
        )
        x = words[torch.from_numpy(pieces)] + places[positions] + segments[0]
        x = self._normal("embeddings", x)
        for index in range(LAYERS):
            layer = f"encoder.layer.{index}"
            x = self._normal(f"{layer}.attention.output", x + self._attention(layer, x, mask))
            inner = functional.gelu(self._dense(f"{layer}.intermediate", x))
            x = self._normal(f"{layer}.output", x + self._dense(f"{layer}.output", inner))
        return x

    def _attention(self, layer: str, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, tokens, hidden = x.shape
        query, key, value = (
            self._dense(f"{layer}.attention.self.{name}", x, "")
            .view(batch, tokens, HEADS, hidden // HEADS)
            .transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        together = mixed.transpose(1, 2).reshape(batch, tokens, hidden)
        return self._dense(f"{layer}.attention.output", together)

    def _dense(self, name: str, x: torch.Tensor, part: str = ".dense") -> torch.Tensor:
        weight, bias = (self.weights[f"{name}{part}.{of}"] for of in ("weight", "bias"))
        return functional.linear(x, weight, bias)

    def _normal(self, name: str, x: torch.Tensor) -> torch.Tensor:
        weight, bias = (self.weights[f"{name}.LayerNorm.{of}"] for of in ("weight", "bias"))
        return functional.layer_norm(x, x.shape[-1:], weight, bias, EPSILON)
