"""A function for four devices, on a client that has four."""

from __future__ import annotations

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub.errors import NotRunnableError

A = np.arange(16, dtype=np.float32).reshape(4, 4)
B = np.arange(24, dtype=np.float32).reshape(4, 6)


def test_whole_arrays_in_and_out(client, path):
    with client.plugin.client({"cpu_device_count": 4}) as four:
        multiply = pjrt_hub.load_exported(path("split"), client=four)
        assert multiply.nr_devices == 4
        result = multiply(A, four.buffer_from_host(B))
        np.testing.assert_allclose(result["c"], A @ B)
        assert float(result["n"]) == A.sum()
        executable = multiply.compile()
        assert len(executable.devices) == 4
        assert [slot.shape for slot in executable.signature.parameters] == [(2, 2), (1, 6)]
        with pytest.raises(ValueError, match=r"args\[1\]: expected f32\[4,6\], found f32\[4,4\]"):
            multiply(A, A)


def test_too_few_devices(load):
    with pytest.raises(NotRunnableError, match="was exported for 4 devices, and the client has 1"):
        load("split")


def test_a_file_that_does_not_say_how(client, path):
    with client.plugin.client({"cpu_device_count": 4}) as four:
        multiply = pjrt_hub.load_exported(path("split"), client=four)
        object.__setattr__(multiply.function, "in_shardings", ())
        with pytest.raises(NotRunnableError, match="does not say how its arrays are split"):
            multiply(A, B)
