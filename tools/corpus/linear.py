"""Ops of linear algebra and signals: products, convolutions, transforms, factors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import elements
import exact
import numpy as np
from draft import Draft, array, call, draft, pairs, together
from elements import COMPLEX, FLOATS, INTEGERS, NUMBERS, few, kind_of, numbers, tensor
from exact import mp

from pjrt_hub.kit.conformance.corpus import CorpusTensor

CONVOLVED = ("i8", "i32", "bf16", "f16", "f32", "f64", "complex<f32>")
SOLVED = ("f32", "f64", *COMPLEX)


def drafts() -> Iterator[Draft]:
    """Every program of this file."""
    for element in NUMBERS:
        yield together(list(_dots(element)))
    for element in ("bf16", "f16", "f32", "f64"):
        yield _rounded_dot(element)
    for pair in (("i8", "i32"), ("ui8", "ui32"), ("bf16", "f32"), ("f16", "f32"), ("f32", "f64")):
        yield _widening_dot(*pair)
    yield _widening_dot("f8E4M3FN", "f32")
    yield _widening_dot("f8E5M2", "f32")
    for element in CONVOLVED:
        yield from _convolutions(element)
    for element in ("f32", "f64"):
        yield from _transforms(element)
    for element in SOLVED:
        yield from _cholesky(element)
        yield together(list(_triangular(element)))
    for element in ("bf16", "f16", "f32", "f64"):
        yield from _batch_norms(element)


def _summed(values: Any, element: str, *shape: int) -> CorpusTensor:
    if element in INTEGERS:
        return tensor(elements.wrapped(values, element), element, *shape)
    return tensor(
        np.asarray(values).astype(complex if element in COMPLEX else float), element, *shape
    )


def _dots(element: str) -> Iterator[Draft]:
    """A product of matrices; one of batches whose dimensions are in other places."""
    terms = elements.FEW
    left, right = few(element, 2, terms), few(element, terms, 4, start=1)
    product = numbers(left) @ numbers(right)
    yield draft(
        "dot_general",
        kind_of(element),
        [left, right],
        [_summed(product, element, 2, 4)],
        attributes=(
            "dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], "
            "rhs_contracting_dimensions = [0]>"
        ),
    )
    left, right = few(element, terms, 2, 2), few(element, 2, terms, 2, start=3)
    product = np.einsum("kbm,bkn->bmn", numbers(left), numbers(right))
    yield draft(
        "dot_general",
        kind_of(element),
        [left, right],
        [_summed(product, element, 2, 2, 2)],
        attributes=(
            "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [1], "
            "rhs_batching_dimensions = [0], lhs_contracting_dimensions = [0], "
            "rhs_contracting_dimensions = [1]>"
        ),
    )


def _rounded_dot(element: str) -> Draft:
    """Of numbers that do round, all positive, at the highest precision that a device has."""
    terms = 24
    left = tensor([1 + (5 * n % 32) / 32 for n in range(2 * terms)], element, 2, terms)
    right = tensor([1 + (11 * n % 64) / 64 for n in range(2 * terms)], element, terms, 2)
    fractions = [np.vectorize(Fraction, otypes=[object])(numbers(each)) for each in (left, right)]
    product = fractions[0] @ fractions[1]
    rounded = [
        exact.rounded(mp.mpf(each.numerator) / each.denominator, element)
        for each in product.reshape(-1)
    ]
    return draft(
        "dot_general",
        element,
        [left, right],
        [tensor(rounded, element, 2, 2)],
        attributes=(
            "dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], "
            "rhs_contracting_dimensions = [0]>, precision_config = "
            "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"
        ),
        variant=f"{terms} rounded terms",
        terms=terms,
    )


def _widening_dot(element: str, wider: str) -> Draft:
    """A sum in a wider type, of products that the narrower one cannot hold."""
    low, high = (-7, 8) if element in elements.SIGNED + FLOATS else (0, 15)
    if element in ("i8", "ui8"):
        low, high = elements.limits(element)
    left = tensor([high, low, high, high, low, low], element, 2, 3)
    right = tensor([high, high, low, low, high, low], element, 3, 2)
    product = numbers(left) @ numbers(right)
    return draft(
        "dot_general",
        f"{element}_to_{wider}",
        [left, right],
        [_summed(product, wider, 2, 2)],
        attributes=(
            "dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], "
            "rhs_contracting_dimensions = [0]>"
        ),
    )


_NUMBERS = "dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>"
_Pair = tuple[int, int]


def _convolutions(element: str) -> Iterator[Draft]:
    """With edges and steps, spaces in either operand, groups of features and of batches."""
    some: list[tuple[str, int, int, int, _Pair, tuple[_Pair, _Pair], _Pair, _Pair]] = [
        ("", 1, 1, 2, (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
        ("edges and steps", 1, 1, 2, (2, 1), ((1, 1), (0, 2)), (1, 1), (1, 1)),
        ("spaces", 1, 1, 2, (1, 1), ((0, 0), (1, 0)), (2, 1), (1, 2)),
        ("groups of features", 2, 1, 4, (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
        ("groups of batches", 1, 2, 2, (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    ]
    for variant, groups, batches, outputs, strides, padding, left_space, right_space in some:
        left = few(element, 2, 4, 3, 2)
        right = few(element, 2, 2, 2 // groups, outputs, start=1)
        result = _convolved(
            numbers(left),
            numbers(right),
            groups,
            batches,
            strides,
            padding,
            left_space,
            right_space,
        )
        attributes = (
            f"window_strides = {array(strides)}, lhs_dilation = {array(left_space)}, "
            f"rhs_dilation = {array(right_space)}, {_NUMBERS}, "
            f"feature_group_count = {groups} : i64, batch_group_count = {batches} : i64"
        )
        padded = f"padding = {pairs(padding)}"
        right_result = _summed(result, element, *result.shape)
        yield draft(
            "convolution",
            kind_of(element),
            [left, right],
            [right_result],
            attributes=f"{attributes}, {padded}",
            variant=variant,
        )
        if not variant and element in ("i32", "f32"):
            body = call(
                "dynamic_conv",
                [left, right, ("i64", (2, 2))],
                [(element, result.shape)],
                attributes=attributes,
            )
            edges = f"%a2 = stablehlo.constant {pairs(padding)}"
            yield draft(
                "dynamic_conv", element, [left, right], [right_result], body=f"{edges}\n{body}"
            )


def _convolved(
    left: Any,
    right: Any,
    groups: int,
    batches: int,
    strides: _Pair,
    padding: Sequence[_Pair],
    left_space: _Pair,
    right_space: _Pair,
) -> Any:
    """By the definition: each output is a sum over its window and its group's features."""
    count, *sizes, _ = left.shape
    spaced = [(size - 1) * step + 1 for size, step in zip(sizes, left_space, strict=True)]
    total = [size + sum(edge) for size, edge in zip(spaced, padding, strict=True)]
    page = np.zeros((count, *total, left.shape[3]), object)
    (top, _), (front, _) = padding
    page[:, top : top + spaced[0] : left_space[0], front : front + spaced[1] : left_space[1]] = left
    window = [
        (size - 1) * step + 1 for size, step in zip(right.shape[:2], right_space, strict=True)
    ]
    shape = [
        (all_ - size) // step + 1 for all_, size, step in zip(total, window, strides, strict=True)
    ]
    per_group, outputs = right.shape[2], right.shape[3]
    result = np.zeros((count // batches, *shape, outputs), object)
    for batch, row, column, feature in itertools.product(*map(range, result.shape)):
        group = feature // (outputs // groups)
        source = batch + feature // (outputs // batches) * (count // batches)
        cut = page[
            source,
            row * strides[0] : row * strides[0] + window[0] : right_space[0],
            column * strides[1] : column * strides[1] + window[1] : right_space[1],
            group * per_group : (group + 1) * per_group,
        ]
        result[batch, row, column, feature] = (cut * right[..., feature]).sum()
    return result


def _transforms(element: str) -> Iterator[Draft]:
    """Fourier transforms by their definition, of lengths that are and are not powers of two."""
    complex_ = f"complex<{element}>"
    for length in (8, 6):
        real = [((5 * n + 3) % 11) / 4 - 1 for n in range(length)]
        both = [complex(a, b) for a, b in zip(real, real[2:] + real[:2], strict=True)]
        half = length // 2 + 1
        ends = [complex(z.real, 0 if n in (0, length // 2) else z.imag) for n, z in enumerate(both)]
        mirrored = ends[:half] + [z.conjugate() for z in ends[1 : half - 1][::-1]]
        for kind, given, result in (
            ("FFT", tensor(both, complex_), tensor(_fourier(both, -1), complex_)),
            ("IFFT", tensor(both, complex_), tensor(_inverse(both), complex_)),
            ("RFFT", tensor(real, element), tensor(_fourier(real, -1)[:half], complex_)),
            (
                "IRFFT",
                tensor(ends[:half], complex_),
                tensor([z.real for z in _inverse(mirrored)], element),
            ),
        ):
            yield draft(
                "fft",
                kind_of(complex_),
                [given],
                [result],
                attributes=(
                    f"fft_type = #stablehlo<fft_type {kind}>, fft_length = {array((length,))}"
                ),
                variant=f"{kind} of {length}",
                oracle="exact",
            )


def _fourier(values: Sequence[complex], sign: int) -> list[complex]:
    size = len(values)
    return [
        complex(
            mp.fsum(
                mp.mpc(x) * mp.expjpi(mp.mpf(2 * sign * k * n) / size) for n, x in enumerate(values)
            )
        )
        for k in range(size)
    ]


def _inverse(values: Sequence[complex]) -> list[complex]:
    return [z / len(values) for z in _fourier(values, 1)]


def _cholesky(element: str) -> Iterator[Draft]:
    """Of a matrix whose factor is known: small integers."""
    factor = np.array([[2, 0, 0, 0], [1, 3, 0, 0], [-1, 2, 1, 0], [0, 1, -2, 4]], complex)
    if element in COMPLEX:
        factor[1, 0] += 1j
        factor[3, 2] -= 2j
    matrix = factor @ factor.conj().T
    # These programs take long to compile.
    for lower in (True, False) if element in ("f32", COMPLEX[0]) else (True,):
        right = factor if lower else factor.conj().T
        yield draft(
            "cholesky",
            kind_of(element),
            [_matrix(matrix, element)],
            [_matrix(right, element)],
            body=call(
                "cholesky",
                [(element, (4, 4))],
                [(element, (4, 4))],
                attributes=f"lower = {str(lower).lower()}",
            ).replace("%r0", "%whole")
            + "\n"
            + _triangle(element, lower),
            variant="lower" if lower else "upper",
        )


def _triangle(element: str, lower: bool) -> str:
    """Zeros for the other triangle, which may hold anything."""
    kind = f"tensor<4x4x{element}>"
    direction = "GE" if lower else "LE"
    return (
        "%row = stablehlo.iota dim = 0 : tensor<4x4xi32>\n"
        "%column = stablehlo.iota dim = 1 : tensor<4x4xi32>\n"
        f"%mine = stablehlo.compare {direction}, %row, %column, SIGNED : "
        "(tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi1>\n"
        f"%none = stablehlo.constant {tensor([0] * 16, element, 4, 4).literal}\n"
        f"%r0 = stablehlo.select %mine, %whole, %none : tensor<4x4xi1>, {kind}"
    )


def _matrix(values: Any, element: str) -> CorpusTensor:
    return tensor(values if element in COMPLEX else values.real, element, *values.shape)


def _triangular(element: str) -> Iterator[Draft]:
    """For unknowns that are small integers, on either side, of every form of the triangle."""
    lower = np.array([[2, 0, 0], [1, 4, 0], [-1, 2, 1]], complex)
    known = np.array([[1, -2], [3, 0], [2, 5]], complex)
    if element in COMPLEX:
        lower[1, 0] += 1j
        known[0, 1] += 2j
    for left, low, unit, transpose in (
        (True, True, False, "NO_TRANSPOSE"),
        (True, False, False, "NO_TRANSPOSE"),
        (True, True, True, "NO_TRANSPOSE"),
        (True, True, False, "TRANSPOSE"),
        (True, False, False, "ADJOINT"),
        (False, True, False, "NO_TRANSPOSE"),
    ):
        factor = lower if low else lower.T
        used = factor.copy()
        if unit:
            np.fill_diagonal(used, 1)
        used = {"TRANSPOSE": used.T, "ADJOINT": used.conj().T}.get(transpose, used)
        unknown = known if left else known.T
        product = used @ unknown if left else unknown @ used
        yield draft(
            "triangular_solve",
            kind_of(element),
            [_matrix(factor, element), _matrix(product, element)],
            [_matrix(unknown, element)],
            attributes=(
                f"left_side = {str(left).lower()}, lower = {str(low).lower()}, "
                f"unit_diagonal = {str(unit).lower()}, "
                f"transpose_a = #stablehlo<transpose {transpose}>"
            ),
        )


_precise = np.vectorize(mp.mpf, otypes=[object])


def _batch_norms(element: str) -> Iterator[Draft]:
    """By their definitions, to 400 bits: normalized for each of two features."""
    x = tensor([((7 * n + 2) % 13) / 4 - 1 for n in range(16)], element, 2, 4, 2)
    grad = tensor([((5 * n + 1) % 9) / 4 - 1 for n in range(16)], element, 2, 4, 2)
    scale, offset = tensor([1.5, -0.5], element), tensor([0.25, 1.0], element)
    mean, variance = tensor([0.5, -0.25], element), tensor([1.25, 2.0], element)
    epsilon = mp.mpf(float(np.float32(0.125)))
    xs, gs, scales, offsets, means, variances = (
        _precise(numbers(each)) for each in (x, grad, scale, offset, mean, variance)
    )

    def rounded(values: Any) -> CorpusTensor:
        flat = [exact.rounded(value, element) for value in np.asarray(values).reshape(-1)]
        return tensor(flat, element, *np.shape(values))

    def normal(middle: Any, spread: Any) -> Any:
        return (xs - middle) / _precise([mp.sqrt(each + epsilon) for each in spread])

    own_mean = xs.mean((0, 1))
    own_variance = ((xs - own_mean) ** 2).mean((0, 1))
    attributes = "epsilon = 0.125 : f32, feature_index = 2 : i64"
    yield draft(
        "batch_norm_inference",
        element,
        [x, scale, offset, mean, variance],
        [rounded(normal(means, variances) * scales + offsets)],
        attributes=attributes,
        oracle="exact",
    )
    trained = normal(own_mean, own_variance) * scales + offsets
    yield draft(
        "batch_norm_training",
        element,
        [x, scale, offset],
        [rounded(trained), rounded(own_mean), rounded(own_variance)],
        attributes=attributes,
        oracle="exact",
    )
    deviation = _precise([mp.sqrt(each + epsilon) for each in variances])
    centred = xs - means
    scaled = centred / deviation
    shared = gs.sum((0, 1)) / 8
    along = (gs * centred).sum((0, 1)) / 8
    of_operand = scales / deviation * (gs - shared - centred * along / (deviation**2))
    yield draft(
        "batch_norm_grad",
        element,
        [x, scale, mean, variance, grad],
        [rounded(of_operand), rounded((gs * scaled).sum((0, 1))), rounded(gs.sum((0, 1)))],
        attributes=attributes,
        oracle="exact",
    )
