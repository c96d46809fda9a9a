"""What the checks say of a device whose memory has tiles, made by the layer `discrete`."""

from __future__ import annotations

import json
import subprocess
import sys

from pjrt_hub.running.interpose import layers

#: All that reads or writes a device's bytes as they lie.
RAW = ("buffers.layout", "buffers.on_device_size*", "transfers.parts*", "transfers.raw*")


def test_bytes_in_tiles_are_no_defect(clean_env):
    env = {
        **clean_env,
        "LD_PRELOAD": str(layers.preload_path()),
        "PJRT_HUB_LAYERS": "discrete",
        "PJRT_HUB_DISCRETE": "tiled",
    }
    words = [word for name in RAW for word in ("--check", name)]
    done = subprocess.run(
        [sys.executable, "-m", "pjrt_hub.cli", "check", "cpu", "--offline", "--json", *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    said = {each["name"]: (each["verdict"], each["text"]) for each in report["results"]}
    tiled = {name for name, (_, text) in said.items() if text == "the layout is of tiles"}
    assert tiled == {
        "buffers.layout",
        "transfers.parts_with_layout",
        "transfers.raw_of_running_work",
    }
    assert {said[name][0] for name in tiled} == {"unsupported"}
    assert sum(verdict == "pass" for verdict, _ in said.values()) > 10
