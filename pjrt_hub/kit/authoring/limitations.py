"""Operations that the reference interpreter lacks or gets wrong, refused by name.

Owns their list, which docs/python_plugins.md explains; seen with jaxlib 0.10. `rewrites` has those
that can be expressed in another way. Runs in the interpreter's process.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from pjrt_hub.kit.authoring import rewrites

#: The interpreter does not know these operations, or only its recent versions do.
UNKNOWN = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("async_done", "async_start", "batch_norm_grad", "batch_norm_inference"),
        *("batch_norm_training", "cholesky", "create_token", "cross_replica_sum", "custom_call"),
        *("dynamic_conv", "einsum", "fft", "get_tuple_element", "real_dynamic_slice", "rng"),
        *("rng_bit_generator", "set_dimension_size", "torch_index_select", "triangular_solve"),
        *("tuple", "unary_einsum", "uniform_dequantize", "uniform_quantize"),
    )
)

#: These operations exchange values with the host, where nobody is at the other end.
HOST = frozenset({"stablehlo.infeed", "stablehlo.outfeed", "stablehlo.recv", "stablehlo.send"})

#: These operations combine numbers by a function of the program; the interpreter gives the numbers
#: the type of that function.
REDUCING = frozenset(
    {
        *("stablehlo.all_reduce", "stablehlo.reduce", "stablehlo.reduce_scatter"),
        *("stablehlo.reduce_window", "stablehlo.scatter", "stablehlo.select_and_scatter"),
    }
)

#: `select_and_scatter` may combine with these; all but `add` may take a number twice.
REPEATABLE = frozenset(
    {"stablehlo.add", "stablehlo.and", "stablehlo.maximum", "stablehlo.minimum", "stablehlo.or"}
)

_OVERFLOWING = "f8E4M3B11FNUZ", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2FNUZ"

#: What comes out wrong, by the operation and its element type.
WRONG = {
    **{("stablehlo.logistic", each): "NaN far below zero" for each in _OVERFLOWING},
    ("stablehlo.logistic", "f8E3M4"): "up to 4 ULP off",
    ("stablehlo.ceil", "f8E3M4"): "NaN",
    ("stablehlo.floor", "f8E3M4"): "NaN",
    ("stablehlo.round_nearest_afz", "f8E3M4"): "NaN",
    ("stablehlo.round_nearest_even", "f8E3M4"): "NaN",
    ("stablehlo.convert", "f8E8M0FNU"): "infinity for NaN",
    ("stablehlo.atan2", "complex<f32>"): "NaN where a square is too large",
    ("stablehlo.atan2", "complex<f64>"): "NaN where a square is too large",
    ("stablehlo.cbrt", "complex<f64>"): "infinity where a square is too large",
}


def require_right(module: ir.Module) -> None:
    """Raise NotImplementedError for an operation that the interpreter lacks or gets wrong."""
    operations = rewrites.operations(module)
    names = {each.name for each in operations}
    if unknown := sorted(names & UNKNOWN or {n for n in names if n.startswith("chlo.")}):
        raise NotImplementedError(f"the reference plugin has no {', '.join(unknown)}")
    for each in operations:
        if found := _wrong(each):
            raise NotImplementedError(f"the reference interpreter does not support {found}")


def _wrong(operation: ir.Operation) -> str:
    """Say what the interpreter gets wrong in an operation; empty if it is right."""
    name = operation.name
    if name in HOST:
        return f"{name}: nobody is at its other end"
    if name == "stablehlo.collective_permute":
        pairs = operation.attributes["source_target_pairs"]
        if any(pairs[2 * i] == pairs[2 * i + 1] for i in range(len(pairs) // 2)):
            return f"{name} of a device to itself: it waits for ever"
    given = [each.type for each in operation.results]
    if any(isinstance(each, ir.RankedTensorType) and not each.has_static_shape for each in given):
        return f"{name} of a dynamic shape"
    kind = operation.operands[0].type if len(operation.operands) else None
    if not isinstance(kind, ir.RankedTensorType):
        return ""
    element = str(kind.element_type)
    if rewrites.is_total(operation) and element not in rewrites.ORDERED:
        return f"{name} of {element} in total order"
    if name in REDUCING:
        first = operation.regions[-1].blocks[0]
        if (wider := first.arguments[0].type.element_type) != kind.element_type:
            return f"{name} of {element} in {wider}"
        if name == "stablehlo.select_and_scatter" and not _is_repeatable(first):
            return f"{name} that does more than add or choose: it begins anew at each value"
    result = WRONG.get((name, element))
    return f"{name} of {element}: it gives {result}" if result else ""


def _is_repeatable(body: ir.Block) -> bool:
    """Say whether a body may take the first number repeatedly, or is rewritten so that it may."""
    combined, *_ = (each.operation for each in body.operations)
    returned = body.operations[1].operation
    return (
        combined.name in REPEATABLE
        and len(body.operations) == 2
        and set(combined.operands) == set(body.arguments)
        and list(returned.operands) == list(combined.results)
    )
