"""torch_xla on a plugin that lacks something: tensors there and back, lazy and compiled."""

from __future__ import annotations

import os
from typing import Any

os.environ |= {"PJRT_DEVICE": "LIBRARY", "PJRT_LIBRARY_PATH": os.environ["WALKED"]}

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
import walk
from torch_steps import A, get, gradient, put, random, result, show


def device(at: Any) -> None:
    at.device = torch_xla.device()
    assert at.device.type == "xla"


def devices(at: Any) -> None:
    assert xr.addressable_device_count() == xr.global_device_count() > 0


def lazy(at: Any) -> None:
    at.product = at.a @ at.a.T
    torch_xla.sync(wait=True)


def compile(at: Any) -> None:
    double = torch_xla.compile(lambda x: x * 2)
    for _ in range(2):
        assert double(at.a).cpu().tolist() == (A * 2).tolist()


def step(at: Any) -> None:
    """One of training, whose weights are donated."""
    layer = torch.nn.Linear(3, 1).to(at.device)
    before = layer.bias.cpu().item()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    layer(at.a).sum().backward()
    xm.optimizer_step(optimizer)
    torch_xla.sync(wait=True)
    assert abs(before - layer.bias.cpu().item() - 1) < 1e-6


def memory(at: Any) -> None:
    assert xm.get_memory_info(at.device)


STEPS: walk.Steps = {
    device: (),
    devices: ("device",),
    put: ("device",),
    get: ("put",),
    lazy: ("put",),
    result: ("lazy",),
    compile: ("put",),
    gradient: ("device",),
    step: ("put",),
    random: ("device",),
    show: ("device",),
    memory: ("device",),
}

if __name__ == "__main__":
    walk.main(torch_xla.__version__, STEPS)
