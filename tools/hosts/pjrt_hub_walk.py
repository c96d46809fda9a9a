"""pjrt-hub on a plugin that lacks something: a program from its text to its values and back."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
import walk

import pjrt_hub
from pjrt_hub.running.capi import library
from pjrt_hub.running.client.plugin import Plugin
from pjrt_hub.running.program.compile_options import CompileOptions

PROGRAMS = Path(__file__).parents[2] / "tests" / "programs"
A = np.arange(8, dtype=np.float32)
B = np.full(8, 0.5, np.float32)


def load(at: Any) -> None:
    at.plugin = Plugin(library.load(os.environ["WALKED"]))
    assert at.plugin.api_version.minor > 0


def client(at: Any) -> None:
    at.client = at.plugin.client({"cpu_device_count": 2})


def devices(at: Any) -> None:
    assert [device.id for device in at.client.devices] == [0, 1]
    assert at.client.platform_name == "cpu"
    assert at.client.devices[1].is_addressable


def put(at: Any) -> None:
    at.a, at.b = at.client.buffer_from_host(A), at.client.buffer_from_host(B)


def describe(at: Any) -> None:
    assert (at.a.shape, at.a.dtype, at.a.device.id) == ((8,), np.float32, 0)


def get(at: Any) -> None:
    assert np.asarray(at.a).tolist() == A.tolist()


def compile(at: Any) -> None:
    at.executable = at.client.compile(PROGRAMS / "add.mlir")


def call(at: Any) -> None:
    at.result = at.executable(at.a, at.b)


def result(at: Any) -> None:
    assert at.result.shape == (8,)
    assert np.asarray(at.result).tolist() == (A + B).tolist()


def wait(at: Any) -> None:
    at.executable(at.a, at.b).ready.wait(60)


def call_with_arrays(at: Any) -> None:
    assert np.asarray(at.executable(A, B)).tolist() == (A + B).tolist()


def donate(at: Any) -> None:
    program = at.client.compile(PROGRAMS / "donate.mlir")
    given = at.client.buffer_from_host(A)
    assert np.asarray(program(given, at.b)).tolist() == (A + B).tolist()
    assert given.is_deleted


def copy(at: Any) -> None:
    there = at.a.copy_to_device(at.client.devices[1])
    assert (np.asarray(there).tolist(), there.device.id) == (A.tolist(), 1)


def call_on_two(at: Any) -> None:
    both = at.client.compile(PROGRAMS / "add.mlir", CompileOptions(num_replicas=2))
    rows = [
        [at.client.buffer_from_host(x, device=device) for x in (A, B)]
        for device in at.client.devices
    ]
    assert [np.asarray(row[0]).tolist() for row in both.execute(rows)] == [(A + B).tolist()] * 2


def delete(at: Any) -> None:
    given = at.client.buffer_from_host(A)
    given.delete()
    assert given.is_deleted


def serialize(at: Any) -> None:
    at.serialized = at.executable.serialize()


def load_serialized(at: Any) -> None:
    again = at.client.load(at.serialized)
    assert np.asarray(again(at.a, at.b)).tolist() == (A + B).tolist()


def close(at: Any) -> None:
    at.client.close()


STEPS: walk.Steps = {
    load: (),
    client: ("load",),
    devices: ("client",),
    put: ("client",),
    describe: ("put",),
    get: ("put",),
    compile: ("client",),
    call: ("compile", "put"),
    result: ("call",),
    wait: ("call",),
    call_with_arrays: ("compile",),
    donate: ("client", "put"),
    call_on_two: ("client", "put"),
    copy: ("put",),
    delete: ("put",),
    serialize: ("compile",),
    load_serialized: ("serialize", "put"),
    close: ("client",),
}

if __name__ == "__main__":
    ctypes.CDLL(os.environ["WALKED"])  # The children inherit it, and so start a third faster.
    walk.main(pjrt_hub.__version__, STEPS)
