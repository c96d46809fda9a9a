"""Operations that TorchTPU writes for TPUs alone, or rounds otherwise than torch."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

INFINITY = float("inf")
X = torch.arange(-30.0, 30.0).reshape(4, 15) / 8
HALF = torch.tensor([5.125, 17.0, -2.5, 6.0, -0.75], dtype=torch.bfloat16)
MASK = X > 1
#: Name -> (the operation, its arguments).
CALLS = {
    "cumsum": (torch.cumsum, (X, 1)),
    "cumsum of truths": (torch.cumsum, (MASK, 1)),
    "cumsum of a number": (torch.cumsum, (torch.tensor(3.0), 0)),
    "cumsum of nothing": (torch.cumsum, (torch.empty(0, 3), 0)),
    "cumprod": (torch.cumprod, (X, 0)),
    "logcumsumexp": (torch.logcumsumexp, (X, 1)),
    "logcumsumexp of -inf": (torch.logcumsumexp, (torch.full((4,), -INFINITY), 0)),
    "masked_scatter": (torch.masked_scatter, (X, MASK, -X)),
    "repeat_interleave": (torch.repeat_interleave, (X, torch.tensor([1, 0, 3, 2]), 0)),
    "repeat_interleave of one": (torch.repeat_interleave, (X, torch.tensor([2]), 1)),
    "index_reduce": (
        lambda *args: torch.index_reduce(*args, "amax", include_self=False),
        (X, 0, torch.tensor([3, 0, 3]), 2 * X[:3]),
    ),
    "unique": (torch.unique, (X.round(),)),
    "unique_consecutive": (torch.unique_consecutive, (X.round(),)),
    "remainder of its scalar": (torch.remainder, (torch.full((5,), 5.125), torch.tensor(5.125))),
    "floor of one": (torch.floor_divide, (torch.full((5,), 5.125), torch.tensor(5.125))),
    "remainder": (torch.remainder, (X, torch.tensor(-0.75))),
    "remainder of bf16": (torch.remainder, (HALF, torch.tensor(0.75, dtype=torch.bfloat16))),
    "number % bf16": (lambda x: 7 % x, (HALF,)),
    "amax of -inf": (torch.amax, (torch.full((2, 3), -INFINITY), 1)),
    "amax of the least": (torch.amax, (torch.full((2, 3), torch.finfo(torch.float32).min), 1)),
    "amin of inf": (torch.amin, (torch.full((2, 3), INFINITY), (0, 1))),
    "max of NaN": (torch.max, (torch.tensor([1.0, float("nan"), 2.0]),)),
    "mean of integers": (
        lambda *args: torch.scatter_reduce(*args, "mean", include_self=True),
        (torch.tensor([-1, 4]), 0, torch.tensor([0, 0, 1]), torch.tensor([-2, -1, -4])),
    ),
}


def on(device, value):
    return value.to(device) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("name", CALLS)
def test_it_is_what_torch_gives(device, name):
    operation, arguments = CALLS[name]
    found = operation(*(on(device, each) for each in arguments)).cpu()
    torch.testing.assert_close(found, operation(*arguments), equal_nan=True)


@pytest.mark.parametrize("rounding_mode", ["floor", "trunc"])
def test_quotients_of_half_precision_are_exact(device, rounding_mode):
    torch.manual_seed(1)
    left, right = (torch.randn(2000).bfloat16() for _ in range(2))
    exact = torch.div(left.double(), right.double(), rounding_mode=rounding_mode).bfloat16()
    found = torch.div(left.to(device), right.to(device), rounding_mode=rounding_mode)
    assert found.cpu().equal(exact)


def test_forms_that_write_to_a_tensor(device):
    wanted, out = X.cumsum(1), torch.empty(0, device=device)
    torch.cumsum(X.to(device), 1, out=out)
    torch.testing.assert_close(out.cpu(), wanted)
    torch.testing.assert_close(X.to(device).clone().cumsum_(1).cpu(), wanted)
    torch.testing.assert_close(X.to(device).clone().remainder_(2).cpu(), X.remainder(2))


ATTENTION = {
    "plain": {},
    "causal": {"is_causal": True},
    "groups": {"enable_gqa": True},
    "scaled": {"scale": 0.5},
    "masked": {"attn_mask": torch.ones(6, 6).tril().bool()},
    "biased": {"attn_mask": torch.arange(36.0).reshape(6, 6) / 36},
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("form", ATTENTION)
def test_attention_and_its_gradients(device, form, compiled):
    torch.manual_seed(2)
    heads = 2 if form == "groups" else 4
    given = [torch.randn(2, each, 6, 8) for each in (4, heads, heads)]

    def gradients(place):
        leaves = [each.to(place).requires_grad_() for each in given]
        how = {name: on(place, value) for name, value in ATTENTION[form].items()}

        def call(*tensors):
            return functional.scaled_dot_product_attention(*tensors, **how)

        attend = torch.compile(call) if compiled and place == device else call
        result = attend(*leaves)
        result.square().sum().backward()
        return [result.detach().cpu(), *(each.grad.cpu() for each in leaves)]

    for found, wanted in zip(gradients(device), gradients("cpu"), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("call", ["x.cumsum(0)", "x.remainder(2.5)", "x.amax(0)"])
def test_they_hold_in_compiled_programs(device, call):
    compiled = torch.compile(eval(f"lambda x: 2 * {call}"))
    torch.testing.assert_close(compiled(X.to(device)).cpu(), 2 * eval(call, {"x": X}))


def test_what_only_tpus_run_is_refused_by_name(device):
    scan = torch._higher_order_ops.associative_scan
    with pytest.raises(NotImplementedError, match=r"operation chlo\.scan(?s:.*)hint: compute"):
        scan(torch.add, X.to(device), 0, combine_mode="generic").cpu()
