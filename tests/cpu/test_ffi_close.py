"""A custom call that closes the client whose program it is part of."""

from __future__ import annotations

import time

import numpy as np
from children import calling, in_child


@in_child
def test_a_function_that_closes_the_client(client):
    """The program waits for the function, and the end of the client for the program."""

    def close(a, out):
        client.close()
        out[...] = a

    client.plugin.ffi.register("close", close)
    executable = client.compile(calling("close"))
    value = client.buffer_from_host(np.eye(256, dtype=np.float32))
    executable(value, client.buffer_from_host(np.int32(3)))
    deadline = time.monotonic() + 30
    while client.address and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (client.closed, client.address) == (True, 0)
