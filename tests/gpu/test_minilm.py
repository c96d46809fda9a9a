"""all-MiniLM-L6-v2 with its weights: torch's embeddings, from a program and from its cache."""

from __future__ import annotations

from pathlib import Path

import pytest

import pjrt_hub

ENCODER = Path(__file__).parents[2] / "examples" / "minilm" / "encoder.mlir"
#: The least cosine; it is not 1 because matrix units keep only ten bits of their inputs.
COSINE = 0.999


def test_embeddings(client, minilm):
    cosines = minilm.cosines(client.compile(ENCODER))
    assert cosines.shape == (10,)
    assert cosines.min() >= COSINE


def test_from_a_cache(client, minilm):
    cache = Cache()
    first = client.compile(ENCODER, cache=cache)
    again = client.compile(ENCODER, cache=cache)
    assert cache.found == [False, True]
    assert minilm.cosines(again).min() >= COSINE
    assert again.fingerprint == first.fingerprint


class Cache(dict):
    """A cache in memory that notes, for each request, whether it has the key."""

    def __init__(self):
        super().__init__()
        self.found = []

    def get(self, key):
        self.found.append(key in self)
        return super().get(key)

    put = dict.__setitem__


def test_through_its_bytes(client, minilm):
    exe = client.load(client.compile(ENCODER).serialize())
    assert minilm.cosines(exe).min() >= COSINE


def test_sentences_at_once(client, minilm):
    """No call waits for the one before it, and none takes the value of another."""
    exe = client.compile(ENCODER)
    weights = minilm.weights(client)
    results = [exe(ids, mask, *weights) for ids, mask in minilm.sentences * 20]
    assert all(isinstance(each, pjrt_hub.Buffer) for each in results)
    for index, each in enumerate(results):
        assert each.to_numpy() @ minilm.embeddings[index % 10] >= COSINE


@pytest.mark.gpu("memory of its own")
def test_what_it_takes(client, minilm):
    before = client.devices[0].memory_stats()["bytes_in_use"]
    weights = minilm.weights(client)
    for each in weights:
        each.ready.wait()
    taken = client.devices[0].memory_stats()["bytes_in_use"] - before
    nbytes = sum(each.nbytes for each in weights)
    assert nbytes <= taken <= 1.02 * nbytes + 256 * len(weights)
