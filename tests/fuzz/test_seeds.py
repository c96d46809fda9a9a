"""Every seed and every past finding goes through its parser, and so do their neighbours."""

from __future__ import annotations

import importlib
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PARSERS = sorted(path.stem for path in HERE.glob("fuzz_*.py"))
NEIGHBOURS = 60


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(HERE)
    yield
    files = importlib.import_module("files")
    shutil.rmtree(files.folder(), ignore_errors=True)
    files.folder.cache_clear()


def neighbour(data: bytes, rng: random.Random) -> bytes:
    """The input with a few bytes changed, and sometimes cut."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(changed))
        changed[at : at + rng.randrange(1, 5)] = rng.choice(
            (b"\xff", b"\0", b"[", rng.randbytes(2))
        )
        changed = changed or bytearray(1)
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.1 else changed)


@pytest.mark.parametrize("name", PARSERS)
def test_seeds_and_findings(name: str) -> None:
    parser = importlib.import_module(name)
    seeds = [*parser.seeds(), *parser.FINDINGS]
    assert len(seeds) > 1
    rng = random.Random(name)
    for seed in seeds:
        parser.one(seed)
        for _ in range(NEIGHBOURS):
            parser.one(neighbour(seed, rng))
    assert "atheris" not in sys.modules
