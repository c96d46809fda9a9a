"""`python benchmarks/gate.py [NAME ...]`: what must hold of calls, transfers, starts, programs.

A benchmark that misses a bar is measured once more; both figures are shown, the better counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import machine
import session
from record import Part
from report import figure
from section import Bar

#: A benchmark whose bars must hold -> where to look if one does not.
GATES = {
    "call": "python benchmarks/instructions.py; pjrt_hub/running/capi/native/",
    "transfer": "pjrt_hub/running/capi/native/{upload,staging,buffer}.c",
    "start": "python -X importtime -c 'import pjrt_hub'; pjrt_hub/finding/discovery/",
    "compile": "pjrt_hub/running/compilation/; pjrt_hub/finding/store/cache/program_cache.py",
    "compute": "python benchmarks/compute.py --sweep; pjrt_plugins/cpu/pjrt_plugin.toml",
}


@dataclass(frozen=True)
class Verdict:
    """A bar and what each try measured for it."""

    benchmark: str
    bar: Bar
    values: tuple[float, ...]

    @property
    def holds(self) -> bool:
        """Whether a try did."""
        return min(self.values) <= self.bar.limit

    def cells(self) -> list[str]:
        """Word, measured, must, aim, what."""
        aim = "" if self.bar.aim is None else figure(self.bar.aim)
        measured = " then ".join(map(figure, self.values))
        word = "pass" if self.holds else "FAIL"
        return [word, measured, figure(self.bar.limit), aim, f"{self.benchmark}: {self.bar.what}"]


def main() -> int:
    """Give 1 where a bar is missed, 2 where a benchmark gave no figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(GATES)}; or all")
    names = parser.parse_args().names or list(GATES)
    if unknown := sorted(set(names) - set(GATES)):
        parser.error(f"no gate {', '.join(unknown)}\n\nhint: the gates are {', '.join(GATES)}")
    print("\n".join(machine.this().lines()), end="\n\n", flush=True)
    verdicts, without = judge(names, session.run)
    print(told(verdicts, without))
    return 2 if without else 0 if all(each.holds for each in verdicts) else 1


def judge(
    names: Iterable[str], run: Callable[[str], Part | None]
) -> tuple[list[Verdict], list[str]]:
    """The verdict on every bar, and the benchmarks that gave none.

    Args:
        names: the benchmarks.
        run: measures one in fresh processes.
    """
    verdicts: list[Verdict] = []
    without: list[str] = []
    for name in names:
        first = _values(run(name))
        missed = [bar for bar, value in first.items() if value > bar.limit]
        second = _values(run(name)) if missed or not first else {}
        if not first and not second:
            without.append(name)
        for bar in first or second:
            tries = (first.get(bar), second.get(bar) if bar in missed or not first else None)
            values = tuple(value for value in tries if value is not None)
            verdicts.append(Verdict(name, bar, values))
    return verdicts, without


def told(verdicts: list[Verdict], without: list[str]) -> str:
    """The table, and what to look at."""
    head = ["", "measured", "must", "aim", "what"]
    table = [head, *(each.cells() for each in verdicts)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    failed = {each.benchmark for each in verdicts if not each.holds}
    lines += [f"\n{name} gave no figures" for name in without]
    lines += [f"\nhint: {name}: {look}" for name, look in GATES.items() if name in failed]
    return "\n".join(lines)


def _values(part: Part | None) -> dict[Bar, float]:
    """No figures, and figures without bars, are the same here: nothing holds."""
    sections = part.sections if part else ()
    return {bar: section.value(bar) for section in sections for bar in section.bars}


if __name__ == "__main__":
    sys.exit(main())
