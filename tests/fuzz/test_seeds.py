"""Every seed and every past finding goes through its parser, and so do their neighbours."""

import random
import shutil
import sys
from collections.abc import Iterator

import pytest

from .parsers import PARSERS, folder

NEIGHBOURS = 60


@pytest.fixture(autouse=True)
def _folder() -> Iterator[None]:
    yield
    shutil.rmtree(folder(), ignore_errors=True)
    folder.cache_clear()


def neighbour(data: bytes, rng: random.Random) -> bytes:
    """The input with a few bytes changed, and sometimes cut."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(changed))
        new = rng.choice((b"\xff", b"\0", b"[", rng.randbytes(2)))
        changed[at : at + rng.randrange(1, 5)] = new
        changed = changed or bytearray(1)
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.1 else changed)


@pytest.mark.parametrize("name", PARSERS)
def test_seeds_and_findings(name: str) -> None:
    parser = PARSERS[name]
    seeds = [*parser.seeds(), *parser.findings]
    assert len(seeds) > 1
    rng = random.Random(name)
    for seed in seeds:
        parser.one(seed)
        for _ in range(NEIGHBOURS):
            parser.one(neighbour(seed, rng))
    assert "atheris" not in sys.modules
