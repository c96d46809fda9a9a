"""Operations that the reference interpreter gets wrong, rewritten as ones that it gets right.

Owns the rewriting, which docs/python_plugins.md explains; seen with jaxlib 0.10. `limitations` has
the operations that cannot be rewritten. Runs in the interpreter's process.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

#: The element types that have a total order, and their bits.
ORDERED = {
    **{f"f8{each}": 8 for each in ("E3M4", "E4M3", "E4M3B11FNUZ", "E4M3FN", "E4M3FNUZ")},
    **{"f8E5M2": 8, "f8E5M2FNUZ": 8, "bf16": 16, "f16": 16, "f32": 32, "f64": 64},
}


def mend(module: ir.Module) -> None:
    """Replace operations that would come out wrong, in place."""
    for each in operations(module):
        if rewrite := _REWRITES.get(each.name):
            with ir.InsertionPoint(each), each.location:
                better = rewrite(each)
                if better is not None:
                    each.result.replace_all_uses_with(better)
                    each.erase()


def operations(module: ir.Module) -> list[ir.Operation]:
    """List every operation of a program, at any depth."""
    found = []

    def visit(each: ir.Operation) -> ir.WalkResult:
        found.append(each)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def is_total(operation: ir.Operation) -> bool:
    """Say whether an operation compares in total order."""
    if operation.name != "stablehlo.compare" or "compare_type" not in operation.attributes:
        return False
    kind = stablehlo.ComparisonTypeAttr(operation.attributes["compare_type"])
    return bool(kind.value == "TOTALORDER")


def _divide(operation: ir.Operation) -> ir.Value | None:
    """Divide integers with XLA's result for zero, which would end the interpreter's process."""
    dividend, divisor = operation.operands
    if not isinstance(dividend.type.element_type, ir.IntegerType):
        return None
    zero, one = _all(divisor.type, 0), _all(divisor.type, 1)
    by_zero = stablehlo.compare(divisor, zero, stablehlo.ComparisonDirectionAttr.get("EQ"))
    safe = stablehlo.select(by_zero, one, divisor)
    if operation.name == "stablehlo.divide":
        whole = stablehlo.divide(dividend, safe)
        return stablehlo.select(by_zero, stablehlo.not_(zero), whole)
    return stablehlo.select(by_zero, dividend, stablehlo.remainder(dividend, safe))


def _compare(operation: ir.Operation) -> ir.Value | None:
    """Compare floats in total order, which the interpreter ignores, by integers in that order."""
    if not is_total(operation):
        return None
    left, right = map(_key, operation.operands)
    signed = stablehlo.ComparisonTypeAttr.get("SIGNED")
    direction = operation.attributes["comparison_direction"]
    return stablehlo.compare(left, right, direction, compare_type=signed)


def _key(value: ir.Value) -> ir.Value:
    """Turn floats into integers of the same order: their bits, reversed below zero."""
    width = ORDERED[str(value.type.element_type)]
    kind = _of(value.type, ir.IntegerType.get_signless(width))
    bits = stablehlo.bitcast_convert(kind, value)
    sign = stablehlo.shift_right_arithmetic(bits, _all(kind, width - 1))
    return stablehlo.xor(bits, stablehlo.and_(sign, _all(kind, 2 ** (width - 1) - 1)))


def _multiply(operation: ir.Operation) -> ir.Value:
    """Compute products and convolutions in the result's type, of floats in the widest or f32.

    The interpreter sums in the operands' type. A sum of no terms, which ends its process, is zero.
    """
    given = operation.result.type
    if any(0 in each.type.shape for each in operation.operands):
        return _convert(_all(_of(given, ir.IntegerType.get_signless(8)), 0), given.element_type)
    kind = given.element_type
    if isinstance(kind, ir.FloatType):
        wide = (*(each.type.element_type for each in operation.operands), kind, ir.F32Type.get())
        kind = max(wide, key=lambda each: each.width if isinstance(each, ir.FloatType) else 0)
    operands = [_convert(each, kind) for each in operation.operands]
    made = _convolution if operation.name == "stablehlo.convolution" else _rebuild
    return _convert(made(operation, _of(given, kind), operands), given.element_type)


def _rebuild(operation: ir.Operation, kind: ir.Type, operands: Sequence[ir.Value]) -> ir.Value:
    attributes = {name: operation.attributes[name] for name in operation.attributes}
    return ir.Operation.create(operation.name, [kind], operands, attributes).result


def _convolution(operation: ir.Operation, kind: ir.Type, operands: Sequence[ir.Value]) -> ir.Value:
    """Put batches before features in a convolution's result: otherwise they are mixed up."""
    numbers = stablehlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
    batch, feature = numbers.output_batch_dimension, numbers.output_feature_dimension
    if batch < feature:
        return _rebuild(operation, kind, operands)
    swap = list(range(kind.rank))
    swap[batch], swap[feature] = feature, batch
    operation.attributes["dimension_numbers"] = stablehlo.ConvDimensionNumbers.get(
        numbers.input_batch_dimension,
        numbers.input_feature_dimension,
        numbers.input_spatial_dimensions,
        numbers.kernel_input_feature_dimension,
        numbers.kernel_output_feature_dimension,
        numbers.kernel_spatial_dimensions,
        feature,
        batch,
        numbers.output_spatial_dimensions,
    )
    swapped = ir.RankedTensorType.get([kind.shape[each] for each in swap], kind.element_type)
    return stablehlo.transpose(_rebuild(operation, swapped, operands), swap)


def _scatter(operation: ir.Operation) -> None:
    """Give a scatter copies, because it writes into its operands, and signed indices."""
    count = len(operation.operands) // 2
    for place in range(count):
        operation.operands[place] = stablehlo.reverse(operation.operands[place], [])
    _sign_indices(operation, [count])


def _gather(operation: ir.Operation) -> None:
    _sign_indices(operation, [1])


def _slice(operation: ir.Operation) -> None:
    first = 1 if operation.name == "stablehlo.dynamic_slice" else 2
    _sign_indices(operation, range(first, len(operation.operands)))


def _sign_indices(operation: ir.Operation, places: Sequence[int]) -> None:
    """Convert unsigned indices to i64: the interpreter takes their highest bit for a sign."""
    for place in places:
        index = operation.operands[place]
        if not index.type.element_type.is_unsigned:
            continue
        if index.type.element_type.width == 64:
            index = stablehlo.minimum(index, _all(index.type, 2**63 - 1))
        operation.operands[place] = _convert(index, ir.IntegerType.get_signless(64))


def _select_and_scatter(operation: ir.Operation) -> ir.Value | None:
    """Add the initial number of sums once: the interpreter adds it for each value.

    If values are not added, taking the initial number again makes no difference.
    """
    if operation.regions[1].blocks[0].operations[0].operation.name != "stablehlo.add":
        return None
    begin, kind = operation.operands[2], operation.result.type
    zero = _convert(_all(_of(begin.type, ir.IntegerType.get_signless(8)), 0), kind.element_type)
    if isinstance(kind.element_type, ir.FloatType):
        # Adding -0.0 changes no number; adding 0.0 would change -0.0.
        zero = stablehlo.negate(zero)
    operation.operands[2] = zero
    with ir.InsertionPoint.after(operation):
        everywhere = stablehlo.broadcast_in_dim(kind, begin, [])
        total = stablehlo.add(everywhere, operation.result)
    operation.result.replace_all_uses_with(total)
    total.owner.operands[1] = operation.result
    return None


def _exponential_less_one(operation: ir.Operation) -> ir.Value | None:
    """Compute exp(x + iy) - 1 by real functions: near zero the interpreter loses its digits."""
    (operand,) = operation.operands
    kind = operand.type.element_type
    if not isinstance(kind, ir.ComplexType):
        return None
    wide = ir.F64Type.get()
    x = _convert(stablehlo.real(operand), wide)
    y = _convert(stablehlo.imag(operand), wide)
    two, zero = (
        _convert(_all(_of(x.type, ir.IntegerType.get_signless(8)), n), wide) for n in (2, 0)
    )
    sine = stablehlo.sine(stablehlo.divide(y, two))
    lost = stablehlo.multiply(two, stablehlo.multiply(sine, sine))  # This is 1 - cos(y).
    less = stablehlo.multiply(stablehlo.exponential_minus_one(x), stablehlo.cosine(y))
    root = stablehlo.exponential(stablehlo.divide(x, two))  # exp(x) itself may overflow.
    turned = stablehlo.multiply(stablehlo.multiply(root, stablehlo.sine(y)), root)
    is_real = stablehlo.compare(y, zero, stablehlo.ComparisonDirectionAttr.get("EQ"))
    parts = stablehlo.subtract(less, lost), stablehlo.select(is_real, y, turned)
    return stablehlo.complex(*(_convert(each, kind.element_type) for each in parts))


def _convert(value: ir.Value, element: ir.Type) -> ir.Value:
    if value.type.element_type == element:
        return value
    return stablehlo.convert(_of(value.type, element), value)


def _of(kind: ir.Type, element: ir.Type) -> ir.Type:
    return ir.RankedTensorType.get(kind.shape, element)


def _all(kind: ir.Type, value: int) -> ir.Value:
    number = ir.IntegerAttr.get(kind.element_type, value)
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(kind, number))


_REWRITES = {
    "stablehlo.compare": _compare,
    "stablehlo.convolution": _multiply,
    "stablehlo.divide": _divide,
    "stablehlo.dot_general": _multiply,
    "stablehlo.dynamic_gather": _gather,
    "stablehlo.dynamic_slice": _slice,
    "stablehlo.dynamic_update_slice": _slice,
    "stablehlo.exponential_minus_one": _exponential_less_one,
    "stablehlo.gather": _gather,
    "stablehlo.remainder": _divide,
    "stablehlo.scatter": _scatter,
    "stablehlo.select_and_scatter": _select_and_scatter,
}
