"""Ops of each element by itself: arithmetic, functions, bits, comparisons, choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import elements
import exact
import ml_dtypes
import numpy as np
from draft import Draft, call, draft
from elements import BOOLEAN, COMPLEX, FLOATS, INTEGERS, NUMBERS, UNSIGNED, kind_of, tensor
from exact import mp

from pjrt_hub.kit.conformance import numerics
from pjrt_hub.kit.conformance.corpus import ANYTHING, CorpusTensor

#: Each function on numbers of 400 bits, and as numpy has it for zeros, infinities and NaN in f64.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "cbrt": (lambda x: mp.cbrt(x) if x > 0 else -mp.cbrt(-x), np.cbrt),
    "cosine": (mp.cos, np.cos),
    "exponential": (mp.exp, np.exp),
    "exponential_minus_one": (mp.expm1, np.expm1),
    "log": (lambda x: mp.log(_positive(x)), np.log),
    "log_plus_one": (lambda x: mp.log1p(_positive(1 + x) and x), np.log1p),
    "logistic": (lambda x: 1 / (1 + mp.exp(-x)), lambda x: 1 / (1 + np.exp(-x))),
    "rsqrt": (lambda x: 1 / mp.sqrt(_positive(x)), lambda x: 1 / np.sqrt(x)),
    "sine": (mp.sin, np.sin),
    "sqrt": (lambda x: mp.sqrt(_positive(x)), np.sqrt),
    "tan": (mp.tan, np.tan),
    "tanh": (mp.tanh, np.tanh),
}
COMPLEX_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": mp.fabs,
    "cosine": mp.cos,
    "exponential": mp.exp,
    "exponential_minus_one": mp.expm1,
    "log": mp.log,
    "log_plus_one": lambda z: mp.log(1 + z),
    "logistic": lambda z: 1 / (1 + mp.exp(-z)),
    "negate": lambda z: -z,
    "rsqrt": lambda z: 1 / mp.sqrt(z),
    "sign": lambda z: z / mp.fabs(z) if z else mp.mpc(0),
    "sine": mp.sin,
    "sqrt": mp.sqrt,
    "tan": mp.tan,
    "tanh": mp.tanh,
}
#: Functions that round nothing, by numpy in f64, which holds all values of the other types.
EXACT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "negate": np.negative,
    "round_nearest_afz": lambda x: np.copysign(np.trunc(np.abs(x)) + (np.abs(x) % 1 >= 0.5), x),
    "round_nearest_even": np.rint,
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
}
ROUNDINGS = ("ceil", "floor", "round_nearest_afz", "round_nearest_even")
#: The types whose zeros and NaN have programs of their own.
EDGED = (*elements.WIDE, "f8E4M3FN", "f8E5M2")
INTEGER_FUNCTIONS: dict[str, Callable[[int], int]] = {
    "abs": abs,
    "negate": lambda x: -x,
    "not": lambda x: ~x,
    "sign": lambda x: (x > 0) - (x < 0),
}
ARITHMETIC: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda x, y: mp.fadd(x, y, exact=True), np.add),
    "subtract": (lambda x, y: mp.fsub(x, y, exact=True), np.subtract),
    "multiply": (lambda x, y: mp.fmul(x, y, exact=True), np.multiply),
    "divide": (lambda x, y: x / y, np.divide),
    "power": (lambda x, y: _real(mp.power(x, y)), np.power),
    "atan2": (mp.atan2, np.arctan2),
}
EXACT_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "remainder": np.fmod,
}
EXTREMA: dict[str, Callable[..., Any]] = {
    "maximum": lambda x, y: np.where((x == 0) & (y == 0), x + y, np.maximum(x, y)),
    "minimum": lambda x, y: np.where((x == 0) & (y == 0), -(-x + -y), np.minimum(x, y)),
}
INTEGER_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1),
    "remainder": lambda x, y: int(math.copysign(1, x)) * (abs(x) % abs(y)),
    "power": lambda x, y: x**y,
    "maximum": max,
    "minimum": min,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
}
#: StableHLO has these operations for booleans, too, as the logical ones.
BOOLEAN_ARITHMETIC = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}
DIRECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}


def drafts() -> Iterator[Draft]:
    """Every program of this file."""
    for element in FLOATS:
        yield from _functions(element)
        yield from _arithmetic(element)
        yield from _extrema(element)
        yield _is_finite(element)
    for element in elements.WITH_INFINITY:
        yield from _reduce_precision(element)
    for element in elements.WIDE:
        yield from _subnormals(element)
    for element in COMPLEX:
        yield from _complex(element)
    for element in INTEGERS:
        yield from _integers(element)
    yield from _booleans()
    for element in BOOLEAN + NUMBERS:
        yield from _compare(element)
        yield _select(element)
        if element not in COMPLEX:
            yield from _clamp(element)


def _positive(x: Any) -> Any:
    if x < 0:
        raise ValueError("not a real number")
    if not x:
        raise ZeroDivisionError
    return x


def _real(x: Any) -> Any:
    if isinstance(x, type(mp.mpc(0))):
        raise ValueError("not a real number")
    return x


def _rows(
    op: str, columns: Sequence[CorpusTensor], values: Any, element: str, **more: Any
) -> Draft:
    """A program of the rows that say something, with its results as f64 or complex numbers."""
    keep = exact.usable(columns, values, element)
    result = tensor(values, element)
    least = float(ml_dtypes.finfo(result.array.dtype).smallest_normal)
    if element in elements.WIDE + COMPLEX:
        for each in (*columns, result):
            keep &= ~numerics.is_subnormal(each.array)
    if element in elements.WIDE and op in FUNCTIONS | ARITHMETIC:
        keep &= np.abs(values) != least  # Such a result may be subnormal before it is rounded.
    kept = [CorpusTensor.of(each.array[keep], each.element) for each in columns]
    right = CorpusTensor.of(result.array[keep], element)
    return draft(op, kind_of(columns[0].element), kept, [right], oracle="exact", **more)


def _functions(element: str) -> Iterator[Draft]:
    values = elements.samples(element)
    given = tensor(values, element)
    for op, (function, edges) in FUNCTIONS.items():
        right = exact.real(function, edges, [values], element)
        wrong = op == "logistic" and element in elements.NARROW  # The interpreter rounds each step.
        yield _rows(op, [given], right, element, interpreted=not wrong)
    for op, function in EXACT_FUNCTIONS.items():
        if op == "sign":  # StableHLO does not define the sign of the zero that -0 gives.
            values = [value for value in values if value or math.copysign(1, value) > 0]
            given = tensor(values, element)
        with np.errstate(all="ignore"):
            right = function(np.array(values))
        # The interpreter gives NaN or its input there.
        wrong = op in ROUNDINGS and element in ("f8E3M4", "f6E2M3FN")
        yield _rows(op, [given], right, element, interpreted=not wrong)


def _arithmetic(element: str) -> Iterator[Draft]:
    for op, (function, edges) in ARITHMETIC.items():
        columns = _columns(op, element)
        right = exact.real(function, edges, columns, element)
        yield _rows(op, [tensor(each, element) for each in columns], right, element)
    for op, function in EXACT_ARITHMETIC.items():
        columns = _columns(op, element)
        with np.errstate(all="ignore"):
            values = function(*(np.array(each) for each in columns))
        yield _rows(op, [tensor(each, element) for each in columns], values, element)


def _extrema(element: str) -> Iterator[Draft]:
    """By themselves what devices neglect: NaN, which must win, and the order of the two zeros."""
    samples = elements.samples(element)
    numbers = [value for value in samples if value == value]
    zeros = [value for value in samples if value == 0]
    plain = [value for value in numbers if value] + [0.0]
    nans = [
        (x, y) for v in numbers[:: len(numbers) // 8] for x, y in ((v, math.nan), (math.nan, v))
    ]
    rows = {"": elements.combinations(plain, 2, f"extrema {element}")}
    if element in EDGED:
        rows |= {"zeros": elements.combinations(zeros, 2, ""), "nan": nans}
    for op, function in EXTREMA.items():
        for variant, pairs in rows.items():
            columns = [list(column) for column in zip(*pairs, strict=True)]
            with np.errstate(invalid="ignore"):
                values = function(*(np.array(each) for each in columns))
            given = [tensor(each, element) for each in columns]
            yield _rows(op, given, values, element, variant=variant)


def _columns(op: str, element: str) -> list[list[Any]]:
    rows = elements.combinations(elements.samples(element), 2, f"{op} {element}")
    return [list(column) for column in zip(*rows, strict=True)]


def _subnormals(element: str) -> Iterator[Draft]:
    """Devices may take and give zero for subnormal numbers, and nothing else."""
    values = elements.subnormals(element)
    pairs = elements.combinations(values, 2, f"subnormals {element}")
    two = [list(column) for column in zip(*pairs, strict=True)]
    ops = ARITHMETIC | FUNCTIONS | {"negate": (lambda x: -x, np.negative)}
    for op in ("add", "subtract", "multiply", "divide", "sqrt", "negate"):
        function, edges = ops[op]
        columns = two if op in ARITHMETIC else [values]
        given = [tensor(each, element) for each in columns]
        zeros = [numerics.flush(each.array).astype(float).tolist() for each in given]
        right = exact.real(function, edges, columns, element)
        of_zeros = tensor(exact.real(function, edges, zeros, element), element)
        yield draft(
            op,
            element,
            given,
            [tensor(right, element)],
            oracle="exact",
            variant="subnormals",
            flushed=(CorpusTensor.of(numerics.flush(of_zeros.array), element),),
        )


def _is_finite(element: str) -> Draft:
    given = tensor(elements.samples(element), element)
    finite = np.isfinite(given.array.astype(float))
    return draft("is_finite", element, [given], [CorpusTensor.of(finite, "i1")], oracle="exact")


def _reduce_precision(element: str) -> Iterator[Draft]:
    """To half of the bits of the mantissa, and to the formats of narrower types.

    Of types with infinity, which is what too large numbers become.
    """
    info = ml_dtypes.finfo(elements.dtype_of(element))
    formats = {f"mantissa of {info.nmant // 2}": (int(info.nexp), int(info.nmant) // 2)}
    if element in ("f32", "f64"):
        formats |= {"to f16": (5, 10), "to bf16": (8, 7)}
    for variant, (exponent, mantissa) in formats.items():
        least = 2 - 2 ** (exponent - 1)
        most = 2.0 ** (2 ** (exponent - 1)) if exponent < 11 else math.inf
        values = [
            value
            for value in elements.samples(element)
            if not value or not math.isfinite(value) or 2.0**least <= abs(value) < most / 2
        ]
        right = [
            exact.to_precision(mp.mpf(value), mantissa, least)
            if math.isfinite(value) and value
            else value
            for value in values
        ]
        yield draft(
            "reduce_precision",
            element,
            [tensor(values, element)],
            [tensor(right, element)],
            attributes=f"exponent_bits = {exponent} : i32, mantissa_bits = {mantissa} : i32",
            variant=variant,
            oracle="exact",
        )


def _complex(element: str) -> Iterator[Draft]:
    part = elements.part_of(element)
    values = elements.samples(element)
    given = tensor(values, element)
    for op, function in COMPLEX_FUNCTIONS.items():
        out = part if op == "abs" else element
        yield _rows(op, [given], exact.complex_(function, [values], out), out)
    for op, function in {
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "divide": lambda x, y: x / y,
        "power": lambda x, y: mp.exp(y * mp.log(x)),
    }.items():
        columns = _columns(op, element)
        right = exact.complex_(function, columns, element)
        yield _rows(op, [tensor(each, element) for each in columns], right, element)
    for op in ("real", "imag"):
        right = tensor(getattr(given.array, op), part)
        yield draft(op, kind_of(element), [given], [right], oracle="exact")
    parts = [tensor(getattr(given.array, name), part) for name in ("real", "imag")]
    yield draft("complex", kind_of(element), parts, [given], oracle="exact")


def _integers(element: str) -> Iterator[Draft]:
    bits = elements.bits_of(element)
    values = elements.samples(element)
    functions = INTEGER_FUNCTIONS | {
        "count_leading_zeros": lambda x: bits - (x % 2**bits).bit_length(),
        "popcnt": lambda x: (x % 2**bits).bit_count(),
    }
    for op, function in functions.items():
        if op in ("abs", "sign") and element in UNSIGNED:
            continue
        right = exact.integer(function, [values], element)
        yield draft(
            op, element, [tensor(values, element)], [tensor(right, element)], oracle="exact"
        )
    low, _ = elements.limits(element)
    for op, function in INTEGER_ARITHMETIC.items():
        rows = elements.combinations(values, 2, f"{op} {element}")
        if op == "power":
            rows = [(x, abs(y) % 6 if bits > 2 else abs(y) % 2) for x, y in rows]
        if op in ("divide", "remainder"):
            rows = [(x, y) for x, y in rows if y and (x, y) != (low, -1)]
        yield _integer_rows(op, element, rows, function)
    if element in ("i8", "i32", "i64", "ui8", "ui32", "ui64"):
        rows = [(1, 0), (0, 0), (values[-1], 0)] + ([(low, -1)] if low else [])
        for op in ("divide", "remainder"):
            undefined = _integer_rows(op, element, rows, lambda x, y: 0)
            yield draft(
                op,
                element,
                undefined.arguments,
                undefined.results or (),
                variant="zero divisor",
                compare=ANYTHING,
                oracle="exact",
            )
    yield from _shifts(element, values)


def _shifts(element: str, values: list[int]) -> Iterator[Draft]:
    """By less than the width, and by as much or more, which leaves none of the bits."""
    bits = elements.bits_of(element)
    high = elements.limits(element)[1]
    counts = {"": [n for n in range(bits) if n <= high]}
    counts["by the width or more"] = [
        n for n in (bits, bits + 1, 2 * bits, high) if bits <= n <= high
    ]
    functions: dict[str, Callable[[int, int], int]] = {
        "shift_left": lambda x, n: x << min(n, bits),
        "shift_right_logical": lambda x, n: (x % 2**bits) >> min(n, bits),
        "shift_right_arithmetic": lambda x, n: _signed(x, bits) >> min(n, bits),
    }
    for op, function in functions.items():
        for variant, numbers in counts.items():
            if numbers:
                short = [(x, n) for x in values[:16] + values[-16:] for n in numbers]
                rows = short if len(short) <= 128 else short[:: len(short) // 96]
                yield _integer_rows(op, element, rows, function, variant=variant)


def _signed(x: int, bits: int) -> int:
    return (x + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def _integer_rows(
    op: str,
    element: str,
    rows: Sequence[tuple[int, ...]],
    function: Callable[..., int],
    **more: Any,
) -> Draft:
    columns = [list(column) for column in zip(*rows, strict=True)]
    right = tensor(exact.integer(function, columns, element), element)
    given = [tensor(each, element) for each in columns]
    return draft(op, element, given, [right], oracle="exact", **more)


def _booleans() -> Iterator[Draft]:
    x, y = np.array([[False, False, True, True], [False, True, False, True]])
    logic: dict[str, Callable[..., Any]] = {
        "and": np.logical_and,
        "or": np.logical_or,
        "xor": np.logical_xor,
    }
    logic |= {op: logic[same] for op, same in BOOLEAN_ARITHMETIC.items()}
    for op, function in logic.items():
        given = [CorpusTensor.of(x, "i1"), CorpusTensor.of(y, "i1")]
        yield draft(op, "i1", given, [CorpusTensor.of(function(x, y), "i1")], oracle="exact")
    yield draft(
        "not", "i1", [CorpusTensor.of(x, "i1")], [CorpusTensor.of(~x, "i1")], oracle="exact"
    )


def _compare(element: str) -> Iterator[Draft]:
    """In all directions; floating-point numbers also by their total order."""
    columns = [tensor(each, element) for each in _columns("compare", element)]
    directions = ["EQ", "NE"] if element in COMPLEX else list(DIRECTIONS)
    kind = "FLOAT" if element in FLOATS + COMPLEX else "SIGNED"
    kind = "UNSIGNED" if element in UNSIGNED + BOOLEAN else kind
    keys = [column.array for column in columns]
    yield _comparison(element, columns, keys, directions, kind, "")
    if element in elements.WIDE:
        keys = [_total_order(column.array) for column in columns]
        yield _comparison(element, columns, keys, directions, "TOTALORDER", "total order")


def _comparison(
    element: str,
    columns: Sequence[CorpusTensor],
    keys: Sequence[Any],
    directions: Sequence[str],
    kind: str,
    variant: str,
) -> Draft:
    with np.errstate(invalid="ignore"):  # A NaN would cause a warning.
        results = [CorpusTensor.of(DIRECTIONS[each](*keys), "i1") for each in directions]
    lines = []
    for place, each in enumerate(directions):
        attributes = (
            f"comparison_direction = #stablehlo<comparison_direction {each}>, "
            f"compare_type = #stablehlo<comparison_type {kind}>"
        )
        line = call("compare", columns, [("i1", results[0].shape)], attributes=attributes)
        lines.append(line.replace("%r0", f"%r{place}", 1))
    return draft(
        "compare",
        kind_of(element),
        columns,
        results,
        body="\n".join(lines),
        variant=variant,
        oracle="exact",
        interpreted=not variant,  # The interpreter compares all floats by their values.
    )


def _total_order(values: Any) -> Any:
    """By sign and size of the bits: -NaN, -inf ... -0, +0 ... inf, NaN."""
    width = 8 * values.dtype.itemsize
    bits = values.view(f"i{width // 8}").astype(object)
    return np.where(bits < 0, -(2 ** (width - 1)) - 1 - bits, bits).astype(np.int64)


def _select(element: str) -> Draft:
    choices = [elements.pattern(element, 2, 6), elements.pattern(element, 6, 2)]
    other = CorpusTensor.of(choices[1].array.reshape(2, 6), element)
    which = CorpusTensor.of(np.arange(12).reshape(2, 6) % 3 == 0, "i1")
    right = np.where(which.array, choices[0].array, other.array)
    given = [which, choices[0], other]
    return draft(
        "select", kind_of(element), given, [CorpusTensor.of(right, element)], oracle="exact"
    )


def _clamp(element: str) -> Iterator[Draft]:
    samples = elements.samples(element)
    values = sorted(value for value in samples if value == value)
    low, high = values[len(values) // 4], values[3 * len(values) // 4]
    bounds = tensor([low], element).array[0], tensor([high], element).array[0]
    least, most = (CorpusTensor.of(bound, element) for bound in bounds)
    clamped = [min(max(value, low), high) for value in values]
    rows = {"": (values, clamped)}
    if element in EDGED:
        rows["nan"] = ([math.nan, low], [math.nan, low])
    for variant, (given, right) in rows.items():
        yield draft(
            "clamp",
            element,
            [least, tensor(given, element), most],
            [tensor(right, element)],
            oracle="exact",
            variant=variant,
        )
