"""A program that exchanges with the host: compiled everywhere, executed where its device is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from children import in_child

import pjrt_hub
from pjrt_hub import ExecuteOptions, errors

EXCHANGE = Path(__file__).parents[1] / "programs" / "exchange.mlir"
HARDWARE = {"cuda13": "/dev/nvidiactl", "tpu": "/dev/accel0"}


@pytest.mark.parametrize(
    ("name", "target"), [("tpu", "v5e:2x2"), ("cuda13", "H100"), ("cuda12", "H100")]
)
@in_child
def test_it_compiles(name, target):
    topology = pjrt_hub.topology(name, target, offline=True)
    assert len(topology.compile(EXCHANGE).serialize()) > 1000


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.skipif(not Path(device).exists(), reason="it is not here")
        )
        for name, device in HARDWARE.items()
    ],
)
@in_child
def test_it_runs(name):
    sent, dones = bytearray(), []

    def send(chunk, total, done):
        assert total == 4096
        sent.extend(chunk)
        dones.append(done)

    def receive(stream):
        stream.add_chunk(np.frombuffer(bytes(sent), np.float32) * 2)

    def refuse(chunk, total, done):
        raise ValueError("not today")

    with pjrt_hub.client(name, offline=True) as client:
        exe = client.compile(EXCHANGE)
        value = np.arange(1024, dtype=np.float32).reshape(8, 128)
        a = client.buffer_from_host(value, device=exe.devices[0])

        def run(send):
            options = ExecuteOptions(
                send_callbacks=[{1: send}],
                recv_callbacks=[{2: receive}],
                use_major_to_minor_data_layout_for_callbacks=True,
            )
            return exe.execute([[a]], options)[0][0].to_numpy()

        assert (run(send) == 2 * value).all()
        assert bytes(sent) == value.tobytes()
        assert dones[-1:] == [True]
        with pytest.raises(errors.PjrtHubError, match="not today"):
            run(refuse)
