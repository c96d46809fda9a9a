"""The steps that both walks of PyTorch take: tensors there and back, gradients, random numbers."""

from __future__ import annotations

from typing import Any

import torch

A = torch.arange(6, dtype=torch.float32).reshape(2, 3)
PRODUCT = (A @ A.T).tolist()


def put(at: Any) -> None:
    at.a = A.to(at.device)
    assert at.a.shape == (2, 3)


def get(at: Any) -> None:
    assert at.a.cpu().tolist() == A.tolist()


def result(at: Any) -> None:
    assert at.product.cpu().tolist() == PRODUCT


def gradient(at: Any) -> None:
    weight = torch.tensor(3.0, device=at.device, requires_grad=True)
    (weight**2).backward()
    assert weight.grad is not None
    assert weight.grad.item() == 6


def random(at: Any) -> None:
    assert torch.rand(3, device=at.device).cpu().shape == (3,)


def show(at: Any) -> None:
    assert "2., 3." in str(torch.tensor([2.0, 3.0], device=at.device))
