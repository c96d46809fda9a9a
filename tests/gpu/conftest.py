"""The plugin of an accelerator that is here; what needs none runs on the CPU's, to be tried."""

from __future__ import annotations

import pytest
from children import PLATFORM

import pjrt_hub


def pytest_runtest_setup(item):
    """Skips what only a GPU has."""
    for mark in item.iter_markers("gpu"):
        if PLATFORM == "cpu":
            pytest.skip(f"only a GPU has {mark.args[0]}")


@pytest.fixture(scope="session")
def plugin():
    return pjrt_hub.load(PLATFORM, offline=True)


@pytest.fixture(scope="session")
def client(plugin):
    """A client that takes memory as it needs it: others run beside it."""
    with plugin.client(None if PLATFORM == "cpu" else {"preallocate": False}) as client:
        yield client
