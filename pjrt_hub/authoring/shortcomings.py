"""What the reference interpreter lacks or gets wrong (layer 5): refused by name, or mended.

Owns the list of it, which docs/python_plugins.md explains; seen with jaxlib 0.10. Runs where the
interpreter does.
"""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

#: StableHLO that the interpreter does not know.
UNKNOWN = frozenset(
    {
        "stablehlo.batch_norm_grad",
        "stablehlo.batch_norm_inference",
        "stablehlo.batch_norm_training",
        "stablehlo.cholesky",
        "stablehlo.create_token",
        "stablehlo.cross_replica_sum",
        "stablehlo.custom_call",
        "stablehlo.dynamic_conv",
        "stablehlo.einsum",
        "stablehlo.fft",
        "stablehlo.get_tuple_element",
        "stablehlo.rng",
        "stablehlo.rng_bit_generator",
        "stablehlo.torch_index_select",
        "stablehlo.triangular_solve",
        "stablehlo.tuple",
        "stablehlo.unary_einsum",
        "stablehlo.uniform_dequantize",
        "stablehlo.uniform_quantize",
    }
)

_OVERFLOWING = "f8E4M3B11FNUZ", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2FNUZ"

#: An operation and the element type of its operand -> what comes out wrong.
WRONG = {
    **{("stablehlo.logistic", each): "NaN far below zero" for each in _OVERFLOWING},
    ("stablehlo.logistic", "f8E3M4"): "up to 4 ULP off",
    ("stablehlo.ceil", "f8E3M4"): "NaN",
    ("stablehlo.floor", "f8E3M4"): "NaN",
    ("stablehlo.round_nearest_afz", "f8E3M4"): "NaN",
    ("stablehlo.round_nearest_even", "f8E3M4"): "NaN",
    ("stablehlo.convert", "f8E8M0FNU"): "infinity for NaN",
}

#: The bits of the element types that have a total order.
_ORDERED = {
    **{f"f8{each}": 8 for each in ("E3M4", "E4M3", "E4M3B11FNUZ", "E4M3FN", "E4M3FNUZ")},
    **{"f8E5M2": 8, "f8E5M2FNUZ": 8, "bf16": 16, "f16": 16, "f32": 32, "f64": 64},
}


def require_right(module: ir.Module) -> None:
    """Refuses what the interpreter would not run, or not rightly.

    Raises:
        NotImplementedError: with the names of the operations.
    """
    names = {each.name for each in _operations(module)}
    if unknown := sorted(names & UNKNOWN or {n for n in names if n.startswith("chlo.")}):
        raise NotImplementedError(f"the reference interpreter has no {', '.join(unknown)}")
    for each in _operations(module):
        if found := _wrong(each):
            raise NotImplementedError(f"the reference interpreter does not support {found}")


def mend(module: ir.Module) -> None:
    """Says what can be said in operations that the interpreter gets right so, in place.

    Integers divided by zero, which ends its process and that of XLA where they are constants,
    give what XLA gives at other times: all bits set, and the dividend as the remainder. The total
    order of floats is that of integers of their bits.
    """
    for each in _operations(module):
        if _is_division(each):
            _replace(each, _divided)
        elif _is_total(each):
            _replace(each, _compared)


def _operations(module: ir.Module) -> list[ir.Operation]:
    found = []

    def visit(each: ir.Operation) -> ir.WalkResult:
        found.append(each)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _wrong(operation: ir.Operation) -> str:
    """What of an operation comes out wrong; nothing where it is right."""
    if operation.name == "stablehlo.collective_permute":
        pairs = operation.attributes["source_target_pairs"]
        if any(pairs[2 * i] == pairs[2 * i + 1] for i in range(len(pairs) // 2)):
            return f"{operation.name} of a device to itself: it waits for ever"
    kind = operation.operands[0].type if len(operation.operands) else None
    if not isinstance(kind, ir.RankedTensorType):
        return ""
    element = str(kind.element_type)
    if _is_total(operation) and element not in _ORDERED:
        return f"{operation.name} of {element} in total order"
    if (_is_total(operation) or _is_division(operation)) and not kind.has_static_shape:
        return f"{operation.name} of a dynamic shape"
    result = WRONG.get((operation.name, element))
    return f"{operation.name} of {element}: it gives {result}" if result else ""


def _is_division(operation: ir.Operation) -> bool:
    if operation.name not in ("stablehlo.divide", "stablehlo.remainder"):
        return False
    return isinstance(operation.operands[0].type.element_type, ir.IntegerType)


def _is_total(operation: ir.Operation) -> bool:
    if operation.name != "stablehlo.compare" or "compare_type" not in operation.attributes:
        return False
    kind = stablehlo.ComparisonTypeAttr(operation.attributes["compare_type"])
    return bool(kind.value == "TOTALORDER")


def _replace(operation: ir.Operation, build: Any) -> None:
    with ir.InsertionPoint(operation), operation.location:
        operation.result.replace_all_uses_with(build(operation))
    operation.erase()


def _divided(operation: ir.Operation) -> ir.Value:
    dividend, divisor = operation.operands
    zero, one = _all(divisor.type, 0), _all(divisor.type, 1)
    by_zero = stablehlo.compare(divisor, zero, stablehlo.ComparisonDirectionAttr.get("EQ"))
    safe = stablehlo.select(by_zero, one, divisor)
    if operation.name == "stablehlo.divide":
        whole = stablehlo.divide(dividend, safe)
        return stablehlo.select(by_zero, stablehlo.not_(zero), whole)
    return stablehlo.select(by_zero, dividend, stablehlo.remainder(dividend, safe))


def _compared(operation: ir.Operation) -> ir.Value:
    left, right = map(_key, operation.operands)
    signed = stablehlo.ComparisonTypeAttr.get("SIGNED")
    direction = operation.attributes["comparison_direction"]
    return stablehlo.compare(left, right, direction, compare_type=signed)


def _key(value: ir.Value) -> ir.Value:
    """The bits of floats as integers of the same order: those below zero the other way round."""
    width = _ORDERED[str(value.type.element_type)]
    kind = ir.RankedTensorType.get(value.type.shape, ir.IntegerType.get_signless(width))
    bits = stablehlo.bitcast_convert(kind, value)
    sign = stablehlo.shift_right_arithmetic(bits, _all(kind, width - 1))
    return stablehlo.xor(bits, stablehlo.and_(sign, _all(kind, 2 ** (width - 1) - 1)))


def _all(kind: ir.Type, value: int) -> ir.Value:
    number = ir.IntegerAttr.get(kind.element_type, value)
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(kind, number))
