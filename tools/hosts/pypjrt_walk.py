"""pypjrt on a plugin that lacks something: a program from its text to its values and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pypjrt
import walk

TEXT = (Path(__file__).parents[2] / "tests" / "programs" / "add.mlir").read_text("utf-8")
A = np.arange(8, dtype=np.float32)
B = np.full(8, 0.5, np.float32)


def values(buffer: Any) -> list[float]:
    found: list[float] = np.frombuffer(buffer.to_host(), np.float32).tolist()
    return found


def put_there(at: Any, array: Any, number: int = 0) -> Any:
    with at.client.device(number) as device:
        return at.client.typed_buffer(pypjrt.typing.F32, array, array.shape, device)


def load(at: Any) -> None:
    at.plugin = pypjrt.Plugin(os.environ["WALKED"])
    assert at.plugin.api_version[1] > 0


def client(at: Any) -> None:
    at.client = pypjrt.Client.create(at.plugin, options={"cpu_device_count": 2})


def devices(at: Any) -> None:
    assert at.client.platform_name == "cpu"
    with at.client.devices() as found:
        assert [device.id for device in found] == [0, 1]
        assert all(device.kind for device in found)


def put(at: Any) -> None:
    at.a, at.b = put_there(at, A), put_there(at, B)


def describe(at: Any) -> None:
    assert (at.a.dimensions, at.a.element_type) == ((8,), pypjrt.typing.F32.code)


def get(at: Any) -> None:
    assert values(at.a) == A.tolist()


def compile(at: Any) -> None:
    at.executable = at.client.compile(TEXT)


def call(at: Any) -> None:
    (at.result,) = at.executable(at.a, at.b)


def result(at: Any) -> None:
    assert values(at.result) == (A + B).tolist()


def copy(at: Any) -> None:
    with at.client.device(1) as there:
        assert values(at.a.copy_to_device(there)) == A.tolist()


def delete(at: Any) -> None:
    given = put_there(at, A)
    given.delete()
    assert given.is_deleted


def analyse(at: Any) -> None:
    assert at.executable.num_outputs == 1
    assert at.executable.cost_analysis() is not None
    at.executable.compiled_memory_stats()


def serialize(at: Any) -> None:
    at.serialized = at.executable.serialize()


def load_serialized(at: Any) -> None:
    (found,) = at.client.deserialize_executable(at.serialized)(at.a, at.b)
    assert values(found) == (A + B).tolist()


def close(at: Any) -> None:
    for each in (at.result, at.executable, at.a, at.b, at.client):
        each.close()


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
    copy: ("put",),
    delete: ("put",),
    analyse: ("compile",),
    serialize: ("compile",),
    load_serialized: ("serialize", "put"),
    close: ("call",),
}

if __name__ == "__main__":
    walk.main(pypjrt.__version__, STEPS)
