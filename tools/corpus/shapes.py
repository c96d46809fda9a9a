"""Ops that move elements and compute nothing: numpy says where each of them goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import elements
import numpy as np
from draft import Draft, array, call, draft, together
from elements import ALL, kind_of, pattern, tensor

from pjrt_hub.kit.conformance.corpus import CorpusTensor, dtype_of, type_of


def drafts() -> Iterator[Draft]:
    """Every program of this file."""
    for element in ALL:
        yield from _moved(element)
        yield from _dynamic(element)
        yield together(list(_pads(element)))
        yield together(list(_gathers(element)))
        yield _scatter(element)
        yield from _whole(element)
        if element not in elements.BOOLEAN + elements.SCALE:
            yield together(list(_iotas(element)))
    for element in ("i1", "i8", "i32", "i64", "bf16", "f32", "complex<f32>"):
        yield from _shapes_at_run_time(element)


def _one(
    op: str, element: str, arguments: Sequence[CorpusTensor], result: Any, **more: Any
) -> Draft:
    return draft(op, kind_of(element), arguments, [CorpusTensor.of(result, element)], **more)


def _moved(element: str) -> Iterator[Draft]:
    """Ops whose only operands are the elements."""
    cube = pattern(element, 2, 3, 4)
    x = cube.array
    moved: dict[str, list[tuple[Any, str]]] = {
        "reshape": [(x.reshape(4, 6), "")],
        "transpose": [(x.transpose(2, 0, 1), f"permutation = {array((2, 0, 1))}")],
        "reverse": [(x[::-1, :, ::-1], f"dimensions = {array((0, 2))}")],
        "slice": [
            (x[1:2, 0:3:2, 1:4], _bounds((1, 0, 1), (2, 3, 4), (1, 2, 1))),
            (x[0:0], _bounds((0, 0, 0), (0, 3, 4), (1, 1, 1))),
        ],
        "broadcast_in_dim": [
            (
                np.broadcast_to(x[:, :, None, :], (2, 3, 5, 4)),
                f"broadcast_dimensions = {array((0, 1, 3))}",
            )
        ],
    }
    for op, ways in moved.items():
        yield together(
            [_one(op, element, [cube], right, attributes=given) for right, given in ways]
        )
    more = pattern(element, 2, 2, 4)
    both = np.concatenate([x, more.array], 1)
    yield _one("concatenate", element, [cube, more], both, attributes="dimension = 1 : i64")


def _bounds(start: Sequence[int], limit: Sequence[int], strides: Sequence[int]) -> str:
    return (
        f"start_indices = {array(start)}, limit_indices = {array(limit)}, "
        f"strides = {array(strides)}"
    )


def _dynamic(element: str) -> Iterator[Draft]:
    """Places known when the program runs; those too far out are moved in."""
    page, part = pattern(element, 4, 5), pattern(element, 2, 3)
    slices, updates = [], []
    for at in ((1, 2), (9, -3)):
        row, column = (min(max(place, 0), 2) for place in at)
        starts = [CorpusTensor.of(np.int32(place), "i32") for place in at]
        window = page.array[row : row + 2, column : column + 3]
        sizes = f"slice_sizes = {array((2, 3))}"
        slices.append(_one("dynamic_slice", element, [page, *starts], window, attributes=sizes))
        right = page.array.copy()
        right[row : row + 2, column : column + 3] = part.array
        updates.append(_one("dynamic_update_slice", element, [page, part, *starts], right))
    yield together(slices)
    yield together(updates)


def _pads(element: str) -> Iterator[Draft]:
    """At the edges, between elements, and by less than nothing."""
    page, value = pattern(element, 3, 4), CorpusTensor.of(pattern(element, 5).array[4], element)
    for low, high, interior in (
        ((1, 0), (2, 1), (0, 0)),
        ((0, 1), (1, 0), (2, 1)),
        ((-1, 2), (1, -2), (0, 0)),
        ((-2, 0), (0, -1), (1, 2)),
    ):
        yield _one(
            "pad",
            element,
            [page, value],
            _padded(page.array, value.array, low, high, interior),
            attributes=_padding(low, high, interior),
        )


def _padding(low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> str:
    return (
        f"edge_padding_low = {array(low)}, edge_padding_high = {array(high)}, "
        f"interior_padding = {array(interior)}"
    )


def _padded(
    x: Any, value: Any, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> Any:
    """Padded between the elements, then at the edges, where less than nothing is cut off."""
    for axis in range(x.ndim):
        moved = np.moveaxis(x, axis, 0)
        size = max(len(moved) + (len(moved) - 1) * interior[axis], 0)
        spaced = np.full((size, *moved.shape[1:]), value)
        spaced[:: interior[axis] + 1] = moved
        before = np.full((max(low[axis], 0), *moved.shape[1:]), value)
        after = np.full((max(high[axis], 0), *moved.shape[1:]), value)
        cut = spaced[max(-low[axis], 0) : size - max(-high[axis], 0)]
        x = np.moveaxis(np.concatenate([before, cut, after]), 0, axis)
    return x


def _gathers(element: str) -> Iterator[Draft]:
    """Rows by number, and windows by two; indices too far out are moved in."""
    page = pattern(element, 4, 5)
    rows = CorpusTensor.of([[2], [0], [3], [7]], "i32")
    numbers = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], "
        "start_index_map = [0], index_vector_dim = 1>, "
        f"slice_sizes = {array((1, 5))}, indices_are_sorted = false"
    )
    right = page.array[[2, 0, 3, 3]]
    yield _one("gather", element, [page, rows], right, attributes=numbers)
    corners = CorpusTensor.of([[1, 2], [0, 0], [-4, 9]], "i64")
    numbers = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], "
        "start_index_map = [0, 1], index_vector_dim = 1>, "
        f"slice_sizes = {array((2, 2))}, indices_are_sorted = false"
    )
    windows = [page.array[r : r + 2, c : c + 2] for r, c in ((1, 2), (0, 0), (0, 3))]
    yield _one("gather", element, [page, corners], np.stack(windows), attributes=numbers)


def _scatter(element: str) -> Draft:
    """The last value wins, at places that differ; rows too far out are left out."""
    page, new = pattern(element, 4, 3), pattern(element, 3, 3)
    rows = CorpusTensor.of([[2], [0], [9]], "i32")
    right = page.array.copy()
    right[[2, 0]] = new.array[:2]
    scalar = type_of(element, ())
    return _one(
        "scatter",
        element,
        [page, rows, new],
        right,
        attributes=(
            "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], "
            "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
            "index_vector_dim = 1>, indices_are_sorted = false, unique_indices = true"
        ),
        regions=(
            f"{{\n^bb0(%x: {scalar}, %y: {scalar}):\n"
            f'  "stablehlo.return"(%y) : ({scalar}) -> ()\n}}'
        ),
    )


def _whole(element: str) -> Iterator[Draft]:
    """Ops that give what they take."""
    page = pattern(element, 3, 5)
    kind = page.type
    yield _one(
        "constant",
        element,
        [],
        page.array,
        body=f"%r0 = stablehlo.constant {page.literal}",
    )
    yield _one("optimization_barrier", element, [page], page.array)
    yield _one(
        "tuple",
        element,
        [page],
        page.array,
        body=(
            f'%t = "stablehlo.tuple"(%a0, %a0) : ({kind}, {kind}) -> tuple<{kind}, {kind}>\n'
            f'%r0 = "stablehlo.get_tuple_element"(%t) {{index = 1 : i32}} : '
            f"(tuple<{kind}, {kind}>) -> {kind}"
        ),
    )
    bits = elements.bits_of(element)
    if bits >= 2 and element not in elements.COMPLEX:
        yield from _bitcasts(element, bits)


def _bitcasts(element: str, bits: int) -> Iterator[Draft]:
    """The same bits as an integer of the same size, and as several smaller ones."""
    other = f"ui{bits}" if element[0] != "u" else f"i{bits}"
    given = pattern(element, 6)
    if bits in (2, 4):
        raw = given.array.view("u1") & (2**bits - 1)
        yield _cast(element, other, given, tensor(raw, other))
    elif bits != 6:
        yield _cast(
            element, other, given, CorpusTensor.of(given.array.view(dtype_of(other)), other)
        )
    if bits > 8:
        bytes_ = CorpusTensor.of(given.array.view("u1").reshape(6, bits // 8), "ui8")
        yield _cast(element, "ui8", given, bytes_)
        yield _cast("ui8", element, bytes_, given)


def _cast(element: str, other: str, given: CorpusTensor, right: CorpusTensor) -> Draft:
    return draft("bitcast_convert", f"{element}_to_{other}", [given], [right])


def _iotas(element: str) -> Iterator[Draft]:
    """Counting as far as the type does."""
    size = {"i2": 2, "ui2": 4, "f4E2M1FN": 4, "i4": 8}.get(element, 8)
    for axis, shape in ((0, (size, 2)), (1, (2, size))):
        count = np.broadcast_to(np.arange(size).reshape((-1, 1) if axis == 0 else (1, -1)), shape)
        right = tensor(count.reshape(-1).tolist(), element, *shape)
        yield draft(
            "iota",
            kind_of(element),
            [],
            [right],
            attributes=f"iota_dimension = {axis} : i64",
        )


def _shapes_at_run_time(element: str) -> Iterator[Draft]:
    """The ops that take a shape, given a constant one: what exporters of dynamic shapes write."""
    page, value = pattern(element, 3, 4), CorpusTensor.of(pattern(element, 5).array[4], element)
    x = page.array
    low, high, interior = (1, 0), (0, 2), (0, 1)
    rows = CorpusTensor.of([[2], [0]], "i32")
    gather = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], "
        "start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false"
    )
    some: list[tuple[str, list[CorpusTensor], list[tuple[int, ...]], Any, str]] = [
        ("dynamic_reshape", [page], [(2, 6)], x.reshape(2, 6), ""),
        (
            "dynamic_broadcast_in_dim",
            [page],
            [(2, 3, 4)],
            np.broadcast_to(x, (2, 3, 4)),
            f"broadcast_dimensions = {array((1, 2))}",
        ),
        (
            "real_dynamic_slice",
            [page],
            [(1, 0), (3, 4), (1, 2)],
            x[1:3, 0:4:2],
            "",
        ),
        (
            "dynamic_pad",
            [page, value],
            [low, high, interior],
            _padded(x, value.array, low, high, interior),
            "",
        ),
        ("dynamic_gather", [page, rows], [(1, 4)], x[[2, 0]], gather),
    ]
    for op, given, constants, right, attributes in some:
        lines = [
            f"%a{len(given) + i} = stablehlo.constant {tensor(values, 'i64', len(values)).literal}"
            for i, values in enumerate(constants)
        ]
        operands = [*given, *(("i64", (len(values),)) for values in constants)]
        lines.append(call(op, operands, [(element, right.shape)], attributes=attributes))
        yield _one(op, element, given, right, body="\n".join(lines))
