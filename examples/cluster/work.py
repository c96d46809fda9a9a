"""What each worker runs, in a module that it imports, so that its encoder stays."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from distributed import Lock

sys.path.append(str(Path(__file__).resolve().parents[1] / "serve"))
from encoder import Encoder, Packer, unpacked

#: The texts of a batch; the rows of the program, and the word pieces of a row.
BATCH, ROWS, TOKENS = 32, 4, 128


@dataclass(frozen=True)
class Embedded:
    """The vectors of a batch, the process that computed them, and what it had to compile."""

    vectors: np.ndarray
    process: int
    compiled: int
    loaded: int


@cache
def encoder() -> Encoder:
    """The encoder of this process, on a client of its own.

    One process of the cluster makes its encoder at a time: the first compiles the program, and
    the others find it in the compile cache.
    """
    with Lock("compile"):
        return Encoder("cpu", Packer([ROWS], [TOKENS]))


def embed(texts: Sequence[str]) -> Embedded:
    """Embeds a batch of up to BATCH texts."""
    ours = encoder()
    parts = ours.pack(texts)
    vectors = unpacked(parts, [ours.run(part) for part in parts])
    return Embedded(vectors, os.getpid(), ours.cache.compiled, ours.cache.loaded)
