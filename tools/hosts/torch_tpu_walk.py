"""TorchTPU on a plugin that lacks something: tensors there and back, eager and compiled."""

from __future__ import annotations

import ctypes
import os
from importlib.metadata import version
from typing import Any

# Layers are for the plugin, not for libtpu, which `import torch` opens.
os.environ["WALKED_LAYERS"] = os.environ.pop("PJRT_HUB_LAYERS")

import torch
import walk
from torch_steps import A, get, gradient, put, random, result, show


def table(path: str) -> int:
    """The address of a plugin's table, which begins with its size."""
    function = ctypes.CDLL(path).GetPjrtApi
    function.restype = ctypes.c_void_p
    address: int = function()
    return address


def take_over() -> None:
    """Put the plugin's table in place of libtpu's, which TorchTPU has not called yet."""
    target = table(os.environ["TPU_LIBRARY_PATH"])
    # The layer `options` leaves every create option out.
    wanted = f"options,{os.environ['WALKED_LAYERS']}"
    os.environ |= {"PJRT_HUB_LAYERS": wanted, "PJRT_HUB_OPTIONS": ""}
    source = table(os.environ["WALKED"])
    sizes = [ctypes.c_size_t.from_address(each) for each in (source, target)]
    ctypes.memmove(target, source, min(each.value for each in sizes))


def device(at: Any) -> None:
    from torch_tpu import _loader

    take_over()
    at.device = _loader._init_device("tpu")  # TorchTPU does this by itself where it sees a TPU.
    assert torch.zeros(3, device=at.device).is_tpu


def eager(at: Any) -> None:
    at.product = at.a @ at.a.T
    torch.accelerator.synchronize()


def compile(at: Any) -> None:
    double = torch.compile(lambda x: x * 2)
    for _ in range(2):
        assert double(at.a).cpu().tolist() == (A * 2).tolist()


def step(at: Any) -> None:
    """One of training."""
    layer = torch.nn.Linear(3, 1).to(at.device)
    before = layer.bias.cpu().item()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    layer(at.a).sum().backward()
    optimizer.step()
    assert abs(before - layer.bias.cpu().item() - 1) < 1e-6


def export(at: Any) -> None:
    program = torch.export.export(torch.nn.Linear(3, 1).to(at.device), (at.a,))
    from torch_tpu._internal.export import exported_to_mlir

    assert exported_to_mlir(program).serialize_portable_artifact()


STEPS: walk.Steps = {
    device: (),
    put: ("device",),
    get: ("put",),
    eager: ("put",),
    result: ("eager",),
    compile: ("put",),
    gradient: ("device",),
    step: ("put",),
    random: ("device",),
    show: ("device",),
    export: ("put",),
}

if __name__ == "__main__":
    walk.main(version("torch_tpu"), STEPS)
