"""Seven models: trained with torch's losses, and exported to files that run without torch."""

from __future__ import annotations

import models
import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import pjrt_hub.torch

STEPS = 20
WITHOUT_TORCH = """
import json, sys
import numpy as np
import pjrt_hub

def leaves(value):
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in leaves(each)]
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in leaves(each)]
    return [np.asarray(value)]

file, *sizes = sys.argv[1:]
with pjrt_hub.load_exported(file, platform="cpu") as model:
    for rows in sizes:
        given = np.load(f"{rows}.npz")
        np.savez(f"{rows}-result.npz", *leaves(model(*(given[name] for name in given))))
assert not {"torch", "jax"} & set(sys.modules)
"""


def losses(name, device, compiled=False):
    """The losses of some steps of training; the model's dropout is off."""
    model = models.make(name).train().to(device)
    for each in model.modules():
        if isinstance(each, torch.nn.Dropout):
            each.p = 0.0
    arguments = [each.to(device) for each in models.arguments(name, 4)]
    torch.manual_seed(3)
    with torch.no_grad():
        shapes = [each.shape for each in pytree.tree_leaves(model.eval()(*arguments))]
    model.train()
    wanted = [torch.randn(shape).to(device) for shape in shapes]
    call = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, eps=1e-3)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        pairs = zip(pytree.tree_leaves(call(*arguments)), wanted, strict=True)
        loss = sum(torch.nn.functional.mse_loss(*pair) for pair in pairs)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", models.MODELS)
def test_it_trains_as_on_the_cpu(device, name, compiled):
    found, wanted = losses(name, device, compiled), losses(name, "cpu")
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dynamic", [False, True], ids=["one size", "any size"])
@pytest.mark.parametrize("name", models.MODELS)
def test_its_file_runs_without_torch(name, dynamic, tmp_path, python):
    model, arguments = models.make(name), models.arguments(name)
    rows = [1, 2, 5] if dynamic else [2]
    shapes = tuple({0: torch.export.Dim("rows", max=64)} for _ in arguments) if dynamic else None
    pjrt_hub.torch.export(model, arguments, tmp_path / "model.pjrt", shapes)
    for each in rows:
        np.savez(tmp_path / f"{each}.npz", *(x.numpy() for x in models.arguments(name, each)))
    done = python(WITHOUT_TORCH, "model.pjrt", *rows)
    assert done.returncode == 0, done.stderr
    for each in rows:
        with torch.no_grad():
            wanted = pytree.tree_leaves(model(*models.arguments(name, each)))
        found = np.load(tmp_path / f"{each}-result.npz")
        for result, name_ in zip(wanted, found, strict=True):
            a, b = result.numpy().ravel(), found[name_].ravel()
            assert a @ b / np.sqrt((a @ a) * (b @ b)) >= 0.99999
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
