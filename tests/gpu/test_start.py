"""From an installed plugin to a client: found, diagnosed, given as much memory as asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


def test_the_plugin_is_chosen_and_why():
    found = json.loads(hub("list", PLATFORM, "--json")[0])
    [chosen] = [each for each in found if each["chosen"]]
    assert chosen["platform"] == PLATFORM
    assert chosen["verdict"] == {"ok": True, "reason": f"the argument asks for {PLATFORM!r}"}
    assert Path(chosen["library_path"]).is_file()
    assert all(each["verdict"]["reason"] for each in found)


@pytest.mark.gpu("an installed package")
def test_the_installed_plugin_is_chosen():
    [chosen] = [each for each in json.loads(hub("list", PLATFORM, "--json")[0]) if each["chosen"]]
    assert chosen["source"] == "namespace"
    assert chosen["hardware"]["ok"], chosen["hardware"]["reason"]
    assert "entry point jax_plugins:xla_cuda13" in chosen["origin"]


@pytest.mark.gpu("a driver")
def test_without_a_name_it_is_chosen():
    found = {each["platform"]: each for each in json.loads(hub("list", "--json")[0])}
    assert found[PLATFORM]["chosen"], found[PLATFORM]["verdict"]["reason"]


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


LIMIT = f"""
import json, pjrt_hub
with pjrt_hub.client({PLATFORM!r}, offline=True) as client:
    print(json.dumps(client.devices[0].memory_stats()))
"""


@pytest.mark.gpu("memory of its own")
def test_jaxs_variables_are_heard():
    """By a program that sets no options."""

    def stats(**variables):
        done = subprocess.run(
            [sys.executable, "-c", LIMIT],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    small = {"XLA_CLIENT_MEM_FRACTION": "0.05"}
    sparing = stats(**small, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    greedy = stats(**small, XLA_PYTHON_CLIENT_PREALLOCATE="true")
    assert sparing["bytes_limit"] == pytest.approx(greedy["bytes_limit"], rel=0.01)
    assert sparing.get("pool_bytes", 0) < GIB < greedy["pool_bytes"]
