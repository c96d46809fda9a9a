"""A program that exchanges with the host: compiled everywhere, executed where its device is."""

from __future__ import annotations

from pathlib import Path

import pytest

EXCHANGE = Path(__file__).parents[1] / "programs" / "exchange.mlir"
HARDWARE = {"cuda13": "/dev/nvidiactl", "tpu": "/dev/accel0"}


@pytest.mark.parametrize(
    ("name", "target"), [("tpu", "v5e:2x2"), ("cuda13", "H100"), ("cuda12", "H100")]
)
def test_it_compiles(child, name, target):
    size = child(f"""
topology = pjrt_hub.topology({name!r}, {target!r}, offline=True)
print(json.dumps(len(topology.compile({str(EXCHANGE)!r}).serialize())))
""")
    assert size > 1000


@pytest.mark.parametrize("name", HARDWARE)
def test_it_runs(child, name):
    if not Path(HARDWARE[name]).exists():
        pytest.skip("the hardware is not here")
    same, sent, done, failed = child(f"""
from pjrt_hub import ExecuteOptions
sent, dones = bytearray(), []

def send(chunk, total, done):
    assert total == 4096
    sent.extend(chunk)
    dones.append(done)

def receive(stream):
    stream.add_chunk(np.frombuffer(bytes(sent), np.float32) * 2)

def refuse(chunk, total, done):
    raise ValueError("not today")

with pjrt_hub.client({name!r}, offline=True) as client:
    exe = client.compile({str(EXCHANGE)!r})
    value = np.arange(1024, dtype=np.float32).reshape(8, 128)
    a = client.buffer_from_host(value, device=exe.devices[0])

    def run(send):
        options = ExecuteOptions(
            send_callbacks=[{{1: send}}], recv_callbacks=[{{2: receive}}],
            use_major_to_minor_data_layout_for_callbacks=True)
        return exe.execute([[a]], options)[0][0].to_numpy()

    result = run(send)
    print(json.dumps([bool((result == 2 * value).all()), bytes(sent) == value.tobytes(),
                      dones[-1:], refusal(lambda: run(refuse))]))
""")
    assert same
    assert sent
    assert done == [True]
    assert "not today" in failed["text"]
