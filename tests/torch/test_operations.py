"""PyTorch's own samples of its core operations: each is right, or refused as the page says."""

from __future__ import annotations

import operations
import pytest
import torch

ROWS = operations.rows()
#: Operations of which torch 2.11 gives other results than later releases, on the CPU, too.
CHANGED = {"arange"}


def test_the_page_has_the_core_operations():
    assert len(ROWS) == 148


@pytest.mark.parametrize("name", ROWS)
def test_each_sample_is_right_or_refused(device, name):
    if name in CHANGED and torch.__version__.startswith("2.11."):
        pytest.skip("torch counts the results of an integer arange otherwise since 2.12")
    assert str(operations.measure(name, device)).rstrip() == ROWS[name]
