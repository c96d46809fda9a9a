"""What calls give, in truth and for type checkers: `mypy` of noxfile.py reads this file, too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub import BoundCall, Buffer

X = np.ones((2, 3), np.float32)


def test_calls(client: pjrt_hub.Client, program: Callable[[str], Path]) -> None:
    exe = client.compile(program("two_outputs"))
    several = assert_type(exe(X), Buffer | Any)
    double, positive = several
    assert (type(several), type(double), type(positive)) == (tuple, Buffer, Buffer)
    [double, positive] = assert_type(exe(X, simplify=False), tuple[Buffer, ...])
    assert assert_type(double, Buffer).shape == (2, 3)
    assert type(assert_type(exe.execute([[X]]), list[tuple[Buffer, ...]])[0][1]) is Buffer


def test_bound_calls(client: pjrt_hub.Client, program: Callable[[str], Path]) -> None:
    exe = client.compile(program("scalar"))
    x = np.float32(1)
    call = assert_type(exe.bind(x), BoundCall[Buffer | Any])
    assert type(call()) is Buffer
    [one] = assert_type(exe.bind(x, simplify=False)(), tuple[Buffer, ...])
    [[other]] = assert_type(exe.bind_rows([[x]])(), list[tuple[Buffer, ...]])
    assert (type(one), type(other)) == (Buffer, Buffer)


@pytest.mark.cpu("shares memory with the host")
def test_dlpack(client: pjrt_hub.Client) -> None:
    assert np.from_dlpack(client.buffer_from_host(X)).tolist() == X.tolist()
