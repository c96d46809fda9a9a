"""From an installed plugin to a client: found, diagnosed, given as much memory as asked."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from children import ADD, PLATFORM

import pjrt_hub

GIB = 1 << 30


def hub(*words):
    """What a command prints, and its status."""
    command = [sys.executable, "-m", "pjrt_hub.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    return done.stdout + done.stderr, done.returncode


def test_the_installed_plugin_is_chosen():
    found = json.loads(hub("list", PLATFORM, "--json")[0])
    (chosen,) = (each for each in found if each["chosen"])
    assert chosen["platform"] == PLATFORM
    assert chosen["source"] == "namespace"


def test_the_diagnosis_is_well():
    said, status = hub("doctor", PLATFORM)
    assert status == 0, said


def test_a_probe_finds_the_device():
    """Without a name the accelerator is taken before the CPU."""
    with pjrt_hub.client(offline=True) as client:
        assert PLATFORM in (client.platform_name.lower(), "cpu")
        add = client.compile(ADD)
        a = np.arange(8, dtype=np.float32)
        assert add(a, a).tolist() == (a + a).tolist()


def test_two_clients_at_once(client, plugin):
    with plugin.client(client.options) as other:
        a, b = (each.buffer_from_host(np.arange(8, dtype=np.float32)) for each in (client, other))
        assert client.compile(ADD)(a, a).tolist() == other.compile(ADD)(b, b).tolist()
        moved = a.copy_to_device(other.devices[0])
        assert moved.client is other
        assert moved.tolist() == a.tolist()


@pytest.mark.gpu("memory of its own")
def test_what_the_device_tells(client):
    [device, *_] = client.devices
    stats = device.memory_stats()
    assert stats["bytes_limit"] > GIB
    assert 0 <= stats["bytes_in_use"] < stats["bytes_limit"]
    assert device.kind.startswith("NVIDIA")
    assert device.get_attributes()["compute_capability"] >= "7.0"


@pytest.mark.gpu("memory of its own")
def test_memory_is_taken_as_asked(plugin):
    """A share of all, at the start or as it is needed."""
    limits = {}
    for fraction in (0.05, 0.1):
        options = {"memory_fraction": fraction, "preallocate": False}
        with plugin.client(options) as client:
            limits[fraction] = client.devices[0].memory_stats()["bytes_limit"]
    assert limits[0.1] == pytest.approx(2 * limits[0.05], rel=0.01)
    with plugin.client({"memory_fraction": 0.1, "preallocate": True}) as client:
        stats = client.devices[0].memory_stats()
        assert stats["pool_bytes"] == pytest.approx(limits[0.1], rel=0.01)
