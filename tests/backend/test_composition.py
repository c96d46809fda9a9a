"""Random programs of two and three operations: the reference and CPU plugins agree with numpy."""

from __future__ import annotations

import os

import composition
import numpy as np
import pytest

import pjrt_hub

#: The number of programs, in tens; `PJRT_TEST_PROGRAMS=4000` fills a night.
COUNT = int(os.environ.get("PJRT_TEST_PROGRAMS", "200")) // 10
#: The error allowed, as a part of the largest number: 16 bits cannot hold all exact results.
WITHIN = {"float16": 2**-8, "bfloat16": 2**-5}


@pytest.fixture(scope="module")
def cpu():
    with pjrt_hub.client("cpu", offline=True) as client:
        yield client


def right(found, expected):
    """Return whether values are numpy's, or nearly so if their type is narrow."""
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return False
    if found.dtype.name not in WITHIN:
        return found.tolist() == expected.tolist()
    wide = composition.wide(expected)
    if not np.isfinite(wide).all() or np.abs(wide).max(initial=0) > 2**15:
        return True  # too large: results depend on when each side rounds
    largest = max(1.0, np.abs(wide).max(initial=0))
    return bool(
        (np.abs(composition.wide(found) - wide) <= largest * WITHIN[found.dtype.name]).all()
    )


@pytest.mark.parametrize("tens", range(COUNT))
def test_all_agree(client, cpu, tens):
    for seed in range(10 * tens, 10 * tens + 10):
        program = composition.Program(seed, length=2 + seed % 2)
        for each in (client, cpu):
            found = each.compile(program.text)(*program.arguments)
            for (name, expected), buffer in zip(program.values, found, strict=True):
                said = f"{each.platform_name}, seed {seed}, {name}: expected {expected.tolist()}"
                assert right(buffer.to_numpy(), expected), f"{said}\n{program.text}"
