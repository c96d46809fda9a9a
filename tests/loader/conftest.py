"""Fixtures of the tests of manifests."""

from pathlib import Path

import pytest
from trees import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")
