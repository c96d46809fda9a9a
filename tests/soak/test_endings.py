"""Eight ways for a process to end, a hundred times each, with work of the plugin under way."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(600)

SETUP = """
import atexit, os, sys, threading, time
import numpy as np
import pjrt_hub
client = pjrt_hub.client("cpu", offline=True)
exe = client.compile("func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {"
                     " %0 = stablehlo.add %a, %a : tensor<8xf32>\\n return %0 : tensor<8xf32> }")
b = client.buffer_from_host(np.ones(8, np.float32))
promise = pjrt_hub.Alias(client, (8,))
pending = exe(promise.buffer)
pending.ready.add_done_callback(lambda event: None)
kept = b.to_numpy(), b.ready, pending.ready
"""
STYLES = {
    "return": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(4)", 4),
    "exception": ("sys.excepthook = lambda *_: None\nraise ValueError", 1),
    "SIGTERM": ("os.kill(os.getpid(), 15)\ntime.sleep(9)", -15),
    "thread": ("threading.Thread(target=lambda: (time.sleep(0.01), b.tolist())).start()", 0),
    "daemon": (
        "threading.Thread(target=pending.to_numpy, daemon=True).start()\ntime.sleep(0.01)",
        0,
    ),
    "atexit": ("atexit.register(lambda: print(b.tolist(), repr(pending)))", 0),
}


@pytest.mark.parametrize("style", STYLES)
def test_a_hundred_endings(style, tmp_path):
    code, status = STYLES[style]
    ours = ("PJRT_", "JAX_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    env["PJRT_HUB_CACHE"] = str(tmp_path)
    for _ in range(100):
        done = subprocess.run(
            [sys.executable, "-c", SETUP + code],
            capture_output=True,
            text=True,
            timeout=30,
            env=env,
        )
        assert (done.returncode, done.stderr) == (status, "")
