"""The plugin of an accelerator that is here; what needs none runs on any other, to be tried."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from children import IS_HARDWARE, PLATFORM

import pjrt_hub


def pytest_runtest_setup(item):
    """Skip what only a GPU has."""
    for mark in item.iter_markers("gpu"):
        if not IS_HARDWARE:
            pytest.skip(f"only a GPU has {mark.args[0]}")


@pytest.fixture(scope="session")
def packed():
    """The folder that tools/gpu/pack.py filled."""
    folder = Path(os.environ.get("TESTED_PACKED", Path(__file__).parents[2] / ".nox" / "gpu"))
    if not folder.exists():
        pytest.skip("tools/gpu/pack.py was not run")
    return folder


@pytest.fixture(scope="session")
def plugin():
    return pjrt_hub.load(PLATFORM, offline=True)


@pytest.fixture(scope="session")
def client(plugin):
    """A client that takes memory as it needs it: others run beside it."""
    with plugin.client({"preallocate": False} if IS_HARDWARE else None) as client:
        yield client


@pytest.fixture
def small(plugin):
    """A client with little memory, of its own."""
    little = {"memory_fraction": 0.05, "preallocate": False}
    with plugin.client(little if IS_HARDWARE else None) as client:
        if not (client.devices[0].memory_stats() or {}).get("bytes_limit"):
            pytest.skip("the memory of these devices has no limit")
        yield client


@pytest.fixture
def memories(client):
    """The memories of the first device, by their kind."""
    return {each.kind: each for each in client.devices[0].memories}


class MiniLM:
    """The packed model: its sentences as numbers, torch's embeddings of them, its weights."""

    def __init__(self, path):
        with np.load(path) as arrays:
            given = dict(arrays)
        self.sentences = list(zip(given.pop("ids"), given.pop("masks"), strict=True))
        self.embeddings = given.pop("embeddings")
        self.arrays = [array.astype(np.float32) for array in given.values()]

    def weights(self, client):
        return [client.buffer_from_host(array) for array in self.arrays]

    def cosines(self, exe):
        """How alike each embedding is to torch's; both have length one."""
        weights = self.weights(exe.client)
        results = [exe(ids, mask, *weights).to_numpy() for ids, mask in self.sentences]
        return np.einsum("ij,ij->i", np.stack(results), self.embeddings)


@pytest.fixture(scope="session")
def minilm(packed):
    return MiniLM(packed / "minilm.npz")
