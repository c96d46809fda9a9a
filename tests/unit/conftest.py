"""Fixtures of the unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from fetching import Slept
from loopback import Loopback

from pjrt_hub.store.cache import Cache


@pytest.fixture
def server():
    with Loopback() as server:
        yield server


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def slept() -> Slept:
    return Slept()
