"""The examples of one file, by the values that they print."""

from __future__ import annotations

import re

import numpy as np


def test_hello_prints_the_result_and_the_device(run):
    printed = run("hello.py")
    numbers = re.search(r"tanh\(a \* b \+ 1\) = \[(.*)\]", printed)[1].split()
    assert np.allclose(np.array(numbers, float), np.tanh(np.arange(8) * 0.25 + 1), atol=1e-4)
    assert re.search(r"computed on .*cpu", printed, re.IGNORECASE)
