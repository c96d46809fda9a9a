"""Ops with programs inside, ops of several devices on one, and those that were first in HLO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import elements
import numpy as np
from draft import Draft, array, call, draft, region, together
from elements import COMPLEX, FLOATS, few, kind_of, pattern, tensor

from pjrt_hub.kit.conformance.corpus import REPEATABLE, CorpusTensor, type_of

SOME = ("i1", "i8", "i32", "i64", "ui32", "bf16", "f16", "f32", "f64", *COMPLEX)
REDUCED = ("i32", "ui8", "bf16", "f32", "f64")


def drafts() -> Iterator[Draft]:
    """Every program of this file."""
    for element in elements.ALL:
        if element not in COMPLEX:
            yield from _sorts(element)
    for element in SOME:
        yield together(list(_ifs(element)))
        yield together(list(_cases(element)))
        yield from _moved_between_devices(element)
        if element != "i1":
            yield _map(element)
            yield _while(element)
            yield _composite(element)
    for element in REDUCED:
        yield from _reduced_between_devices(element)
    for element in ("i32", "f32"):
        yield from _legacy(element)
    yield from _numbers_of_devices()
    yield from _random()
    for element in ("i32", "i64", "bf16", "f32", "f64"):
        yield _dynamic_iota(element)
    yield _dimension_size()


def _sorts(element: str) -> Iterator[Draft]:
    """Up and down, with what belongs to each key; equal keys stay in their order."""
    given = pattern(element, 3, 8)
    places = CorpusTensor.of(np.broadcast_to(np.arange(8, dtype=np.int32), (3, 8)), "i32")
    kind = "UNSIGNED" if element in elements.UNSIGNED + elements.BOOLEAN else "SIGNED"
    kind = "FLOAT" if element in FLOATS + elements.SCALE else kind
    keys = elements.numbers(given).tolist()
    ways = (("", "LT", False), ("down", "GT", True))
    for variant, direction, reverse in (
        ways if element in ("i32", "ui8", "bf16", "f32") else ways[:1]
    ):
        # Python's sort keeps the order of equal keys, in reverse too.
        order = [sorted(range(8), key=row.__getitem__, reverse=reverse) for row in keys]
        scalar = type_of(element, ())
        body = (
            f"{{\n^bb0(%x: {scalar}, %y: {scalar}, %i: tensor<i32>, %j: tensor<i32>):\n"
            f"  %less = stablehlo.compare {direction}, %x, %y, {kind} : "
            f"({scalar}, {scalar}) -> tensor<i1>\n"
            f'  "stablehlo.return"(%less) : (tensor<i1>) -> ()\n}}'
        )
        yield draft(
            "sort",
            element,
            [given, places],
            [
                CorpusTensor.of(np.take_along_axis(given.array, np.array(order), 1), element),
                CorpusTensor.of(np.array(order, np.int32), "i32"),
            ],
            attributes="dimension = 1 : i64, is_stable = true",
            regions=body,
            variant=variant,
        )


def _ifs(element: str) -> Iterator[Draft]:
    page = pattern(element, 2, 3)
    kind, ways, bodies = page.type, *_ways(page)
    for flag in (True, False):
        yield draft(
            "if",
            kind_of(element),
            [CorpusTensor.of(flag, "i1"), page],
            [CorpusTensor.of(ways[0 if flag else 1], element)],
            body=f'%r0 = "stablehlo.if"(%a0) ({bodies[0]}, {bodies[1]}) : (tensor<i1>) -> {kind}',
        )


def _cases(element: str) -> Iterator[Draft]:
    """Of a number that no branch has, the last one."""
    page = pattern(element, 2, 3)
    kind, ways, bodies = page.type, *_ways(page)
    for number in (0, 1, -1, 7):
        branches = ", ".join(bodies)
        yield draft(
            "case",
            kind_of(element),
            [CorpusTensor.of(np.int32(number), "i32"), page],
            [CorpusTensor.of(ways[number] if 0 <= number < len(ways) else ways[-1], element)],
            body=f'%r0 = "stablehlo.case"(%a0) ({branches}) : (tensor<i32>) -> {kind}',
        )


def _ways(page: CorpusTensor) -> tuple[list[np.ndarray], list[str]]:
    """What branches give of %a1, and their regions: it, or one of its dimensions turned."""
    kind = page.type
    turned = [
        f'{{\n  %z = "stablehlo.reverse"(%a1) {{dimensions = {array((n,))}}} : ({kind}) -> {kind}\n'
        f'  "stablehlo.return"(%z) : ({kind}) -> ()\n}}'
        for n in (0, 1)
    ]
    as_it_is = f'{{\n  "stablehlo.return"(%a1) : ({kind}) -> ()\n}}'
    return [page.array, page.array[::-1], page.array[:, ::-1]], [as_it_is, *turned]


def _map(element: str) -> Draft:
    x, y = few(element, 2, 4), few(element, 2, 4, start=3)
    right = np.minimum(x.array, y.array) if element not in COMPLEX else x.array * y.array
    return draft(
        "map",
        kind_of(element),
        [x, y],
        [CorpusTensor.of(right, element)],
        attributes=f"dimensions = {array((0, 1))}",
        regions=region("minimum" if element not in COMPLEX else "multiply", element),
    )


def _while(element: str) -> Draft:
    """Five steps, each of which moves the elements by one."""
    page = pattern(element, 6)
    kind = page.type
    body = f"""%zero = stablehlo.constant dense<0> : tensor<i32>
%n, %r0 = "stablehlo.while"(%zero, %a0) ({{
^bb0(%i: tensor<i32>, %x: {kind}):
  %five = stablehlo.constant dense<5> : tensor<i32>
  %more = stablehlo.compare LT, %i, %five, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  "stablehlo.return"(%more) : (tensor<i1>) -> ()
}}, {{
^bb0(%i: tensor<i32>, %x: {kind}):
  %one = stablehlo.constant dense<1> : tensor<i32>
  %next = stablehlo.add %i, %one : tensor<i32>
  %first = stablehlo.slice %x [0:1] : ({kind}) -> {type_of(element, (1,))}
  %rest = stablehlo.slice %x [1:6] : ({kind}) -> {type_of(element, (5,))}
  %moved = stablehlo.concatenate %rest, %first, dim = 0 : \
({type_of(element, (5,))}, {type_of(element, (1,))}) -> {kind}
  "stablehlo.return"(%next, %moved) : (tensor<i32>, {kind}) -> ()
}}) : (tensor<i32>, {kind}) -> (tensor<i32>, {kind})"""
    right = np.roll(page.array, -5)
    return draft("while", kind_of(element), [page], [CorpusTensor.of(right, element)], body=body)


def _composite(element: str) -> Draft:
    """An op that is named, with its meaning as a function."""
    page = pattern(element, 2, 3)
    kind = page.type
    return draft(
        "composite",
        kind_of(element),
        [page],
        [CorpusTensor.of(page.array[::-1], element)],
        attributes='name = "pjrt_hub.upside_down", decomposition = @upside_down',
        functions=(
            f"func.func private @upside_down(%x: {kind}) -> {kind} {{\n"
            f"  %y = stablehlo.reverse %x, dims = [0] : {kind}\n  return %y : {kind}\n}}\n"
        ),
    )


_GROUP = "replica_groups = dense<0> : tensor<1x1xi64>"


def _moved_between_devices(element: str) -> Iterator[Draft]:
    """Among the one device that there is, all is as it was; what nobody sends is zero."""
    page = pattern(element, 2, 4)
    for op, attributes in {
        "all_gather": f"all_gather_dim = 0 : i64, {_GROUP}",
        "all_to_all": (
            "split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 1 : i64, "
            + _GROUP
        ),
        "collective_broadcast": _GROUP,
        "collective_permute": "source_target_pairs = dense<0> : tensor<1x2xi64>",
    }.items():
        yield draft(op, kind_of(element), [page], [page], attributes=attributes, interpreted=False)
    yield draft(
        "collective_permute",
        kind_of(element),
        [page],
        [CorpusTensor.of(np.zeros_like(page.array), element)],
        attributes="source_target_pairs = dense<> : tensor<0x2xi64>",
        variant="of nothing",
        interpreted=False,
    )


def _reduced_between_devices(element: str) -> Iterator[Draft]:
    page = pattern(element, 2, 4)
    for op, attributes in {
        "all_reduce": _GROUP,
        "reduce_scatter": f"scatter_dimension = 0 : i64, {_GROUP}",
    }.items():
        yield draft(
            op,
            element,
            [page],
            [page],
            attributes=attributes,
            regions=region("add", element),
            interpreted=False,
        )


def _numbers_of_devices() -> Iterator[Draft]:
    for op in ("replica_id", "partition_id"):
        zero = CorpusTensor.of(np.uint32(0), "ui32")
        yield draft(op, "ui32", [], [zero], interpreted=False)


def _legacy(element: str) -> Iterator[Draft]:
    """Ops that StableHLO keeps for programs written before it."""
    page, row, places = (
        pattern(element, 2, 3),
        pattern(element, 4),
        CorpusTensor.of([2, 0, 1], "i32"),
    )
    left, right = few(element, 2, 3), few(element, 3, 4, start=1)
    product = left.array @ right.array
    some: list[tuple[str, Sequence[CorpusTensor], np.ndarray, str]] = [
        (
            "broadcast",
            [row],
            np.broadcast_to(row.array, (2, 3, 4)),
            f"broadcast_sizes = {array((2, 3))}",
        ),
        ("dot", [left, right], product, ""),
        ("einsum", [left, right], product, 'einsum_config = "ij,jk->ik"'),
        ("unary_einsum", [page], page.array.T, 'einsum_config = "ij->ji"'),
        (
            "torch_index_select",
            [page, places],
            page.array[:, [2, 0, 1]],
            "dim = 1 : i64, batch_dims = 0 : i64",
        ),
    ]
    for op, given, result, attributes in some:
        yield draft(op, element, given, [CorpusTensor.of(result, element)], attributes=attributes)


def _random() -> Iterator[Draft]:
    """Whatever an algorithm gives, it gives again; distributions of a single value have it."""
    for algorithm in ("THREE_FRY", "PHILOX", "DEFAULT"):
        for element in ("ui8", "ui32", "ui64"):
            yield draft(
                "rng_bit_generator",
                element,
                [tensor([7, 11], "ui64")],
                [("ui64", (2,)), (element, (3, 5))],
                attributes=f"rng_algorithm = #stablehlo<rng_algorithm {algorithm}>",
                compare=REPEATABLE,
                variant=algorithm,
            )
    for element, distribution, low, high in (
        ("i32", "UNIFORM", 5, 6),
        ("ui32", "UNIFORM", 5, 6),
        ("f32", "NORMAL", 5, 0),
        ("f64", "NORMAL", 5, 0),
    ):
        given = [tensor(low, element), tensor(high, element)]
        shape = "%a2 = stablehlo.constant dense<[2, 3]> : tensor<2xi64>\n"
        operands = [*given, ("i64", (2,))]
        attributes = f"rng_distribution = #stablehlo<rng_distribution {distribution}>"
        yield draft(
            "rng",
            element,
            given,
            [tensor([5] * 6, element, 2, 3)],
            body=shape + call("rng", operands, [(element, (2, 3))], attributes=attributes),
            variant=distribution.lower(),
            interpreted=False,
        )


def _dynamic_iota(element: str) -> Draft:
    shape = "%a0 = stablehlo.constant dense<[2, 5]> : tensor<2xi64>\n"
    body = call(
        "dynamic_iota",
        [("i64", (2,))],
        [(element, (2, 5))],
        attributes="iota_dimension = 1 : i64",
    )
    right = tensor([*range(5), *range(5)], element, 2, 5)
    return draft("dynamic_iota", element, [], [right], body=shape + body)


def _dimension_size() -> Draft:
    return draft(
        "get_dimension_size",
        "f32",
        [pattern("f32", 3, 5)],
        [CorpusTensor.of(np.int32(5), "i32")],
        attributes="dimension = 1 : i64",
    )
