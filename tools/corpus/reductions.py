"""Ops that put many elements together: sums, windows, products, in any order.

Nearly all are given -1, 0 and 1, whose sums are exact, so that the order does not matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import elements
import numpy as np
from draft import Draft, array, draft, pairs, region, together
from elements import COMPLEX, FLOATS, INTEGERS, NUMBERS, few, kind_of, numbers, pattern, tensor

from pjrt_hub.kit.conformance.corpus import CorpusTensor, type_of

BOTH = ("and", "or", "xor")
ORDERED = ("maximum", "minimum")
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "multiply": lambda x, y: x * y,
    "maximum": max,
    "minimum": min,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
}
#: The types in which windows are tried: one for each kind of arithmetic.
SOME = ("i8", "i32", "i64", "ui32", "bf16", "f16", "f32", "f64", "f8E4M3FN")


def drafts() -> Iterator[Draft]:
    """Every program of this file."""
    for element in ("i1", *NUMBERS):
        yield together(list(_reductions(element)))
    for element in SOME:
        yield from _windows(element)
        yield _select_and_scatter(element)
        yield _scatter_add(element)
    for element in ("i32", "f32"):
        yield _largest_and_where(element)
    for element in ("bf16", "f16", "f32", "f64"):
        yield _rounded_sum(element)


def _folded(op: str, values: Any, element: str) -> Any:
    """Python's numbers put together in their order."""
    total = reduce(FUNCTIONS[op], values)
    return elements.wrapped(total, element).item() if element in INTEGERS else total


def _initial(op: str, given: CorpusTensor) -> Any:
    """What changes nothing."""
    if op in ORDERED:
        values = numbers(given).reshape(-1)
        return max(values) if op == "minimum" else min(values)
    if op == "and":
        return (
            -1 if given.element in elements.SIGNED else (1 << elements.bits_of(given.element)) - 1
        )
    return 1 if op == "multiply" else 0


def _ops(element: str) -> tuple[str, ...]:
    if element == "i1":
        return ("and", "or")
    ordered = () if element in COMPLEX else ORDERED
    return ("add", "multiply", *ordered, *(BOTH if element in INTEGERS else ()))


def _reductions(element: str) -> Iterator[Draft]:
    """Along a middle dimension, by each function that the type has."""
    for op in _ops(element):
        moves = op in ORDERED + BOTH
        given = pattern(element, 2, 3, 2) if moves else few(element, 2, elements.FEW, 2)
        start = tensor(_initial(op, given), element).array.reshape(())
        columns = np.moveaxis(numbers(given), 1, -1).reshape(4, -1)
        first = numbers(CorpusTensor.of(start, element)).item()
        right = [_folded(op, [first, *column], element) for column in columns]
        yield draft(
            "reduce",
            kind_of(element),
            [given, CorpusTensor.of(start, element)],
            [tensor(right, element, 2, 2)],
            attributes=f"dimensions = {array((1,))}",
            regions=region(op, element),
        )


def _rounded_sum(element: str) -> Draft:
    """Of numbers that do round, all positive, so that the error has a bound."""
    terms = 64
    given = tensor([1 + ((7 * n) % terms) / terms for n in range(terms)], element)
    exact = sum(numbers(given))
    return draft(
        "reduce",
        element,
        [given, tensor(0, element)],
        [tensor(exact, element)],
        attributes=f"dimensions = {array((0,))}",
        regions=region("add", element),
        variant="add of 64 terms",
        terms=terms,
    )


def _largest_and_where(element: str) -> Draft:
    """Two reductions in one, whose function compares: how frameworks write argmax."""
    page = pattern(element, 3, 8)
    values = numbers(page)
    least = tensor(min(values.reshape(-1)), element)
    places = CorpusTensor.of(np.broadcast_to(np.arange(8, dtype=np.int32), (3, 8)), "i32")
    where = [max(range(8), key=lambda place: (row[place], -place)) for row in values]
    scalar = type_of(element, ())
    kind = "FLOAT" if element in FLOATS else "SIGNED"
    body = f"""{{
^bb0(%x: {scalar}, %i: tensor<i32>, %y: {scalar}, %j: tensor<i32>):
  %more = stablehlo.compare GE, %x, %y, {kind} : ({scalar}, {scalar}) -> tensor<i1>
  %v = stablehlo.select %more, %x, %y : tensor<i1>, {scalar}
  %equal = stablehlo.compare EQ, %x, %y, {kind} : ({scalar}, {scalar}) -> tensor<i1>
  %first = stablehlo.minimum %i, %j : tensor<i32>
  %other = stablehlo.select %more, %i, %j : tensor<i1>, tensor<i32>
  %k = stablehlo.select %equal, %first, %other : tensor<i1>, tensor<i32>
  "stablehlo.return"(%v, %k) : ({scalar}, tensor<i32>) -> ()
}}"""
    return draft(
        "reduce",
        element,
        [page, places, least, CorpusTensor.of(np.int32(8), "i32")],
        [
            tensor([row[place] for row, place in zip(values, where, strict=True)], element),
            CorpusTensor.of(where, "i32"),
        ],
        attributes=f"dimensions = {array((1,))}",
        regions=body,
        variant="largest and where",
    )


def _windows(element: str) -> Iterator[Draft]:
    """Sums and extremes of windows, with steps, spaces between elements, and edges."""
    page = pattern(element, 5, 6)
    for op, variant, dimensions, strides, base, window, padding in (
        ("add", "sum", (3, 1), (1, 2), (1, 1), (1, 1), ((1, 1), (0, 0))),
        ("maximum", "maximum", (2, 2), (2, 1), (1, 1), (1, 2), ((0, 0), (0, 0))),
        ("minimum", "spaced", (2, 2), (1, 1), (2, 1), (1, 1), ((0, 1), (1, 0))),
    ):
        given = few(element, 5, 6) if op == "add" else page
        start = tensor(_initial(op, given), element)
        spaced = _edged(numbers(given), _initial(op, given), base, padding)
        starts = [
            range(0, size - step * (width - 1), stride)
            for size, width, stride, step in zip(
                spaced.shape, dimensions, strides, window, strict=True
            )
        ]
        right = [
            _folded(op, [_initial(op, given), *cut.reshape(-1)], element)
            for corner in itertools.product(*starts)
            for cut in [
                spaced[
                    tuple(
                        slice(at, at + step * (width - 1) + 1, step)
                        for at, width, step in zip(corner, dimensions, window, strict=True)
                    )
                ]
            ]
        ]
        yield draft(
            "reduce_window",
            element,
            [given, start],
            [tensor(right, element, *map(len, starts))],
            attributes=(
                f"window_dimensions = {array(dimensions)}, window_strides = {array(strides)}, "
                f"base_dilations = {array(base)}, window_dilations = {array(window)}, "
                f"padding = {pairs(padding)}"
            ),
            regions=region(op, element),
            variant=variant,
        )


def _edged(values: Any, filling: Any, base: Sequence[int], padding: Any) -> Any:
    """The elements with others between and around them."""
    sizes = [
        low + (size - 1) * step + 1 + high
        for size, step, (low, high) in zip(values.shape, base, padding, strict=True)
    ]
    page = np.full(sizes, filling, object)
    places = tuple(
        slice(low, low + (size - 1) * step + 1, step)
        for size, step, (low, _) in zip(values.shape, base, padding, strict=True)
    )
    page[places] = values
    return page


def _select_and_scatter(element: str) -> Draft:
    """To the largest of each window: what a gradient of a maximum does."""
    given = pattern(element, 4, 6)
    values = numbers(given)
    source = few(element, 2, 3)
    right = np.zeros((4, 6), object)
    for row, column in itertools.product(range(2), range(3)):
        cut = values[2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        # Of equal elements the first is selected, since a later one must be larger.
        best = max(range(4), key=lambda place, cut=cut: (cut.reshape(-1)[place], -place))
        at = (2 * row + best // 2, 2 * column + best % 2)
        right[at] += numbers(source)[row, column]
    scalar = type_of(element, ())
    kind = "FLOAT" if element in FLOATS else "SIGNED"
    kind = "UNSIGNED" if element in elements.UNSIGNED else kind
    selects = f"""{{
^bb0(%x: {scalar}, %y: {scalar}):
  %z = stablehlo.compare GE, %x, %y, {kind} : ({scalar}, {scalar}) -> tensor<i1>
  "stablehlo.return"(%z) : (tensor<i1>) -> ()
}}"""
    return draft(
        "select_and_scatter",
        element,
        [given, source, tensor(0, element)],
        [tensor(right, element, 4, 6)],
        attributes=(
            f"window_dimensions = {array((2, 2))}, window_strides = {array((2, 2))}, "
            f"padding = {pairs(((0, 0), (0, 0)))}"
        ),
        regions=f"{selects}, {region('add', element)}",
    )


def _scatter_add(element: str) -> Draft:
    """Added where several go to the same row; a row too far out is left out."""
    page, new = few(element, 4, 3), few(element, 4, 3, start=2)
    rows = [2, 0, 2, -1]
    right = numbers(page)
    for row, values in zip(rows, numbers(new), strict=True):
        if row >= 0:
            right[row] += values
    return draft(
        "scatter",
        element,
        [page, CorpusTensor.of(np.array(rows).reshape(4, 1), "i32"), new],
        [tensor(right, element, 4, 3)],
        attributes=(
            "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], "
            "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
            "index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false"
        ),
        regions=region("add", element),
        variant="add",
    )
