"""One program for all sizes, from the texts of the program at several sizes.

The numbers that differ are expressions of the sizes: those that torch.export knows, with a factor
and a summand. Everything else must be equal in all texts. Must not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pjrt_hub.errors import NotRunnableError
from pjrt_hub.frameworks.exported.aval import evaluate
from pjrt_hub.frameworks.exported.function import TemplateProgram

Sizes = Mapping[str, int]

#: All digits count, those in names too: they are equal in all texts.
_NUMBER = re.compile(r"(-?\d+\.\d+(?:[eE][+-]?\d+)?|-?\d+)")


def points(ranges: Mapping[str, tuple[int, int | None]]) -> list[Sizes]:
    """Return sizes to write a program at: all symbols change at once, and each alone."""

    def row(turn: int) -> dict[str, int]:
        wanted = ((name, bounds, 3 + 2 * k + (4 + k) * turn) for k, (name, bounds) in numbered)
        return {name: max(least, min(most or size, size)) for name, (least, most), size in wanted}

    numbered = list(enumerate(ranges.items()))
    first, *others = map(row, range(4))
    alone = [{**first, name: others[0][name]} for name in ranges] if len(ranges) > 1 else []
    return [first, *others, *alone]


def generalise(
    texts: Sequence[str], sizes: Sequence[Sizes], expressions: Iterable[str]
) -> TemplateProgram:
    """Return a program for any sizes.

    Args:
        texts: the program at each of `sizes`; the more there are, the surer the result.
        sizes: the sizes by name.
        expressions: what numbers may depend on, "2*b + 1".

    Raises:
        NotRunnableError: the texts differ in more than such numbers.
    """
    parts = [_NUMBER.split(text) for text in texts]
    if len({len(each) for each in parts}) > 1:
        raise _no_template("its operations change with the sizes")
    known = {text: [evaluate(text, each) for each in sizes] for text in expressions}
    text = "".join(_general(each, known) for each in zip(*parts, strict=True))
    return TemplateProgram(text.encode(), "mlir")


def _general(words: tuple[str, ...], known: Mapping[str, list[int]]) -> str:
    """Return what stands for a word that each text has in its own form."""
    if len(set(words)) == 1:
        return words[0]
    try:
        whole = "." not in words[0]
        numbers = [int(each) if whole else float(each) for each in words]
    except ValueError:
        raise _no_template(f"it has {words[0][:40]!r} or {words[1][:40]!r}") from None
    for form in _forms(numbers, known) if whole else _float_forms(numbers, known):
        return f"«{form}»"
    told = ", ".join(words[:3])
    raise _no_template(f"no expression of the sizes gives its numbers {told}")


def _forms(numbers: Sequence[float], known: Mapping[str, list[int]]) -> Iterator[str]:
    """Yield the expressions that give these integers."""
    for text, values in known.items():
        steps = [(n - numbers[0], v - values[0]) for n, v in zip(numbers, values, strict=True)]
        factor = next((n // v for n, v in steps if v and n % v == 0), 0)
        if factor and all(n == factor * v for n, v in steps):
            summand = int(numbers[0] - factor * values[0])
            yield f"{f'{factor:.0f}*' * (factor != 1)}({text})" + f" + {summand}" * (summand != 0)


def _float_forms(numbers: Sequence[float], known: Mapping[str, list[int]]) -> Iterator[str]:
    """Yield the products and quotients that give these floats, as a count's mean has them."""
    for text, values in known.items():
        if 0 in values:
            continue
        for by, factor in (("*", numbers[0] / values[0]), ("/", numbers[0] * values[0])):
            rounded = float(f"{factor:.6g}")
            given = [rounded * v if by == "*" else rounded / v for v in values]
            if all(abs(g - n) <= 1e-6 * abs(n) for g, n in zip(given, numbers, strict=True)):
                yield f"{rounded!r}{by}={text}"


def _no_template(why: str) -> NotRunnableError:
    return NotRunnableError(
        f"the module cannot be exported for dynamic sizes: {why}",
        hint="leave dynamic_shapes out, and export it once for each size",
    )
