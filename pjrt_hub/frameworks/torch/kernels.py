"""PyTorch's operations that TorchTPU writes as only TPUs run them, or rounds where it must not.

They are registered by `torch.library`, for the device alone, and hold in eager mode, in
`torch.compile` and in exports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

#: The dispatch key of the device, and the one at which autograd sees an operation.
_DEVICE, _AUTOGRAD = "PrivateUse1", "AutogradPrivateUse1"
_HALF = (torch.bfloat16, torch.float16)
#: Registrations hold as long as their library.
_libraries: list[Library] = []


def register() -> None:
    """Register the operations of this module for the device."""
    # Compiled, TorchTPU's recurrent layers have no gradients, and give NaN to those before them.
    torch._dynamo.config.allow_rnn = False
    library = Library("aten", "IMPL")
    _libraries.append(library)
    for name, composition in COMPOSITIONS.items():
        for key in (_AUTOGRAD, _DEVICE):
            library.impl(name, composition, key)
    for name, form in FORMS.items():
        library.impl(name, form, _DEVICE)
    # PyTorch's other forms of an operation call the one that writes to `out`.
    for name, combine in SCANS.items():
        library.impl(f"{name}.out", partial(scan, combine), _DEVICE)
    for name, correct in CORRECTIONS.items():
        original = torch.library.get_kernel(f"aten::{name}", _DEVICE)
        library.impl(name, partial(correct, original), _DEVICE, with_keyset=True)


def _write(out: Tensor, values: Tensor) -> Tensor:
    return (out if out.shape == values.shape else out.resize_(values.shape)).copy_(values)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute attention as `SDPBackend.MATH`, because TorchTPU calls a kernel of TPUs (Pallas)."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        zeros = torch.zeros_like(attn_mask, dtype=query.dtype)
        attn_mask = zeros.masked_fill(attn_mask.logical_not(), float("-inf"))
    plainly = torch.ops.aten._scaled_dot_product_attention_math
    operands = (query, key, value, attn_mask, dropout_p, is_causal)
    result: Tensor = plainly(*operands, scale=scale, enable_gqa=enable_gqa)[0]
    return result


def log_add_exp(left: Tensor, right: Tensor) -> Tensor:
    """Compute `torch.logaddexp`, which TorchTPU lacks."""
    most, least = torch.maximum(left, right), torch.minimum(left, right)
    # The difference of equal infinities would not be a number.
    apart = torch.where(least == most, 0.0, least - most)
    return most + apart.exp().log1p()


#: Operation -> how it combines two elements. TorchTPU writes them as the operation `scan`, on which
#: XLA's CPU plugin aborts.
SCANS = {"cumsum": torch.add, "cumprod": torch.mul, "_logcumsumexp": log_add_exp}


def scan(
    combine: Callable[[Tensor, Tensor], Tensor],
    values: Tensor,
    dim: int,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor,
) -> Tensor:
    """Combine each element with all before it, in as many steps as the size's logarithm.

    As in torch, integers become 64 bits wide, and half precision is combined in 32 bits.
    """
    is_whole = not (values.is_floating_point() or values.is_complex())
    result = dtype or (torch.int64 if is_whole else values.dtype)
    values = values.to(torch.float32 if result in _HALF else result, copy=True)
    step, size = 1, values.size(dim) if values.dim() else 0
    while step < size:
        before, here = (values.narrow(dim, at, size - step) for at in (0, step))
        values = torch.cat([values.narrow(dim, 0, step), combine(before, here)], dim)
        step *= 2
    return _write(out, values)


def log_cum_sum_exp(values: Tensor, dim: int) -> Tensor:
    """Compute `torch.logcumsumexp`, whose form without `out` TorchTPU has for itself."""
    return torch.ops.aten._logcumsumexp.out(values, dim, out=torch.empty_like(values))


def masked_scatter(values: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Compute `torch.masked_scatter`; TorchTPU counts what is set by the operation `scan`."""
    values, mask = torch.broadcast_tensors(values, mask)
    place = mask.flatten().cumsum(0).sub(1).clamp(min=0).view(mask.shape)
    return torch.where(mask, source.flatten()[place], values)


def interleaved_rows(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """Compute which row each result of `torch.repeat_interleave` is; see `masked_scatter`."""
    ends = repeats.cumsum(0)
    size = int(ends[-1]) if output_size is None and len(ends) else output_size or 0
    places = torch.arange(size, device=repeats.device)
    return torch.searchsorted(ends, places, right=True).to(repeats.dtype)


def repeat_interleave(
    values: Tensor, repeats: Tensor, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Compute `torch.repeat_interleave`; see `masked_scatter`."""
    if dim is None:
        values, dim = values.flatten(), 0
    repeats = repeats.expand(values.shape[dim]) if repeats.numel() == 1 else repeats
    return values.index_select(dim, interleaved_rows(repeats, output_size=output_size))


def index_reduce(
    values: Tensor, dim: int, index: Tensor, source: Tensor, *args: Any, out: Tensor, **more: Any
) -> Tensor:
    """Compute `torch.index_reduce`, at which TorchTPU ends the process."""
    shape = [-1 if each == dim % max(values.dim(), 1) else 1 for each in range(values.dim())]
    index = index.view(shape).expand(source.shape)
    return _write(out, values.scatter_reduce(dim, index, source, *args, **more))


def on_host(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Compute on the host: TorchTPU's results have bounds for sizes, of which plugins crash."""

    def kernel(values: Tensor, *args: Any, **more: Any) -> tuple[Tensor, ...]:
        return tuple(each.to(values.device) for each in operation(values.cpu(), *args, **more))

    return kernel


#: Operations that PyTorch composes of others, which would not be seen below autograd.
COMPOSITIONS: dict[str, Callable[..., Tensor]] = {
    "scaled_dot_product_attention": attention,
    "repeat_interleave.self_Tensor": repeat_interleave,
}
#: Operations that are others' forms, or that are written by others here.
FORMS: dict[str, Callable[..., Any]] = {
    "_logcumsumexp": log_cum_sum_exp,
    "masked_scatter": masked_scatter,
    "masked_scatter_": lambda values, *more: values.copy_(masked_scatter(values, *more)),
    "index_reduce.out": index_reduce,
    "repeat_interleave.Tensor": interleaved_rows,
    "_unique2": on_host(torch.ops.aten._unique2),
    "unique_consecutive": on_host(torch.ops.aten.unique_consecutive),
    "floor_divide": partial(torch.div, rounding_mode="floor"),
    "floor_divide_.Tensor": partial(Tensor.div_, rounding_mode="floor"),
    "floor_divide.out": partial(torch.div, rounding_mode="floor"),
    "remainder.Scalar_Tensor": lambda left, right: torch.remainder(
        torch.scalar_tensor(left, dtype=torch.result_type(left, right), device=right.device), right
    ),
}


def remainder(left: Tensor, right: Tensor) -> Tensor:
    """Compute `torch.remainder` of floats by `fmod`, which is exact."""
    rest = torch.fmod(left, right)
    return torch.where((rest != 0) & ((rest < 0) != (right < 0)), rest + right, rest)


def quotient(left: Tensor, right: Tensor, *, rounding_mode: str | None = None) -> Tensor:
    """Compute `torch.div` of floats, rounded once what is left over is taken away."""
    rest = torch.fmod(left, right)
    whole = ((left - rest) / right).round()
    if rounding_mode == "floor":
        whole = torch.where((rest != 0) & ((rest < 0) != (right < 0)), whole - 1, whole)
    return torch.where(whole.isfinite(), whole, left / right)


def exactly(
    operation: Callable[..., Tensor],
    original: Any,
    keys: Any,
    left: Tensor | float,
    right: Tensor | float,
    *,
    out: Tensor,
    **more: Any,
) -> Tensor:
    """Round a quotient of floats once, and that of half precision in 32 bits.

    TorchTPU rounds x / y, which is x * (1 / y) for one y, so that 5.125 % 5.125 would be 5.125, and
    which half precision rounds before. An operand may be a Python number.
    """
    dtype = torch.float32 if out.dtype in _HALF else out.dtype
    operands = [
        each.to(dtype)
        if isinstance(each, Tensor)
        else torch.scalar_tensor(each, dtype=dtype, device=out.device)
        for each in (left, right)
    ]
    if not dtype.is_floating_point or ("rounding_mode" in more and not more["rounding_mode"]):
        result: Tensor = original.call_boxed(keys, *operands, out=out, **more)
        return result
    return _write(out, operation(*operands, **more))


def reach_infinity(
    extreme: float,
    original: Any,
    keys: Any,
    values: Tensor,
    dim: Sequence[int] = (),
    keepdim: bool = False,
    **out: Tensor,
) -> Tensor:
    """Let a maximum of -inf alone be -inf: TorchTPU begins with the least finite number."""
    over = (list(dim), keepdim) if out else ()
    result: Tensor = original.call_boxed(keys, values, *over, **out)
    if not result.is_floating_point():
        return result
    limits = torch.finfo(result.dtype)
    bound = limits.max if extreme > 0 else limits.min
    has_bound = values == bound
    has_bound = has_bound.any(dim=list(dim) or None, keepdim=keepdim) if out else has_bound.any()
    return result.copy_(torch.where((result == bound) & ~has_bound, extreme, result))


def average_down(
    original: Any,
    keys: Any,
    values: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor,
) -> Tensor:
    """Round means of integers down, as torch does; TorchTPU rounds them to zero."""
    if reduce != "mean" or values.is_floating_point():
        more = {"include_self": include_self, "out": out}
        result: Tensor = original.call_boxed(keys, values, dim, index, source, reduce, **more)
        return result
    total = values.scatter_reduce(dim, index, source, "sum", include_self=include_self)
    begin = torch.ones_like(values) if include_self else torch.zeros_like(values)
    count = begin.scatter_add(dim, index, torch.ones_like(source)).clamp(min=1)
    return _write(out, torch.div(total, count, rounding_mode="floor"))


#: Operations of TorchTPU whose results are corrected, mostly in the form that writes to `out`.
CORRECTIONS: dict[str, Callable[..., Tensor]] = {
    "remainder.Tensor_out": partial(exactly, remainder),
    "div.out_mode": partial(exactly, quotient),
    "amax.out": partial(reach_infinity, -math.inf),
    "amin.out": partial(reach_infinity, math.inf),
    "max": partial(reach_infinity, -math.inf),
    "min": partial(reach_infinity, math.inf),
    "scatter_reduce.two_out": average_down,
}
