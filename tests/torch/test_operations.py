"""PyTorch's own samples of its core operations: each is right, or refused as the page says."""

from __future__ import annotations

import operations
import pytest
import torch

ROWS = operations.rows()
#: The release that the page was measured on; others have other samples.
RELEASE = "2.15."
#: Operations of which torch 2.11 itself gives other results: `arange` of integers has another
#: length, and a remainder by the least normal number is NaN.
CHANGED = {"arange", "fmod", "remainder"}


def test_the_page_has_the_core_operations():
    assert len(ROWS) == 148


@pytest.mark.parametrize("name", ROWS)
def test_each_sample_is_right_or_refused(device, name):
    if torch.__version__.startswith(RELEASE):
        assert str(operations.measure(name, device)).rstrip() == ROWS[name]
    elif name in CHANGED:
        pytest.skip("torch 2.11 gives other results itself")
    else:
        refused = operations.measure(name, device).refused
        assert [each for each in refused if each not in ROWS[name]] == []
