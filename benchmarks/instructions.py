"""Instructions of a call, counted by callgrind: a figure that no busy machine changes."""

from __future__ import annotations

import platform
import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from timeit import Timer

import callgrind
import programs
import report
import rounds

#: Variant -> the number of calls; another run counts twice as many, and the difference is taken.
COUNTS = {
    "raw C, 2 → 1": 2000,
    "`exe(a, a)`": 2000,
    "`call = exe.bind(a, a)`, `call()`": 2000,
    "raw C, 30 → 30": 200,
    "`exe(*thirty)`": 200,
    "raw C, numpy → numpy": 1000,
    "`np.asarray(exe(x, x))`": 1000,
}
WARM = 300
TITLE = "Instructions of a call"
TOTAL, OURS = "instructions", "not the plugin's"

#: Row -> the instructions of pjrt-hub and CPython in a call at the last review. They are the same
#: in every run of one build of CPython, while the plugin's part varies with malloc.
KNOWN = {
    "`exe(a, a)`": 1639,
    "`call = exe.bind(a, a)`, `call()`": 1042,
    "`exe(*thirty)`": 16447,
    "`np.asarray(exe(x, x))`": 6670,
}
KNOWN_FOR = ("CPython", "3.11", "x86_64")
#: The growth beyond which somebody must look for the cause.
TOLERANCE = 1.03

#: The columns, by the names of loaded files; instructions in all other files are the rest.
PARTS = {"pjrt-hub's C": r"hotpath\.|_pjrt\.", "Python and numpy": r"(lib)?python3|.*\.cpython-"}
REST = "plugin and libc"


def measure() -> report.Section:
    """One run suffices, because two agree."""
    if not callgrind.is_here():
        return report.Section(TITLE, "valgrind is not installed here, so nothing was counted.", {})
    return report.Section(
        TITLE,
        "Instructions of one call on float32[8] with the freeing of its results, counted by "
        "callgrind. What the plugin and libc\ntake varies by some hundredths; what is not the"
        " plugin's is the same in every run of one build of Python. The bars are\nfor "
        f"{' '.join(KNOWN_FOR)}. Callgrind runs the plugin without AVX-512.",
        _rows(callgrind.counted([__file__, "--counted"])),
        _bars(),
    )


def _bars() -> tuple[report.Bar, ...]:
    """None on another Python, which takes more or fewer."""
    version = ".".join(platform.python_version_tuple()[:2])
    if (platform.python_implementation(), version, platform.machine()) != KNOWN_FOR:
        return ()
    return tuple(
        report.Bar(f"instructions of {row} that are not the plugin's", row, OURS, most * TOLERANCE)
        for row, most in KNOWN.items()
    )


def _rows(profiles: list[Counter[str]]) -> rounds.Rows:
    rows: rounds.Rows = {}
    pairs = zip(COUNTS.items(), profiles[::2], profiles[1::2], strict=True)
    for (name, count), once, twice in pairs:
        parts = dict.fromkeys((*PARTS, REST), 0.0)
        for file in twice:
            parts[_part(file)] += (twice[file] - once[file]) / count
        total = sum(parts.values())
        rows[name] = {TOTAL: round(total)}
        if not name.startswith("raw C"):
            rows[name] |= {part: round(each) for part, each in parts.items()}
            rows[name][OURS] = round(total - parts[REST])
    return rows


def _part(file: str) -> str:
    """The column of the instructions in a loaded file."""
    return next((part for part, name in PARTS.items() if re.match(name, file)), REST)


def _run() -> None:
    """What callgrind watches: each variant's turns, once and twice as many."""
    rounds.pin()
    import numpy as np
    import raw

    import pjrt_hub

    client = pjrt_hub.client("cpu")
    loop = raw.RawLoop(client)
    x = np.linspace(0, 1, 8, dtype=np.float32)
    a = client.buffer_from_host(x)
    exe = client.compile(raw.PROGRAMS / "tanh_mul_add.mlir")
    thirty = client.compile(programs.sums(30))
    known = {"np": np, "x": x, "a": a, "exe": exe, "thirty": thirty}
    known["call"] = exe.bind(a, a)
    arguments = ", ".join(["a"] * 30)

    def timed(statement: str) -> Callable[[int], float]:
        return Timer(statement, globals=known).timeit

    turns: tuple[Callable[[int], object], ...] = (
        lambda count: loop.call(exe, [a, a], 1, count),
        timed("exe(a, a)"),
        timed("call()"),
        lambda count: loop.call(thirty, [a] * 30, 30, count),
        timed(f"thirty({arguments})"),
        lambda count: loop.round_trip(x, exe, count),
        timed("np.asarray(exe(x, x))"),
    )
    for count, turn in zip(COUNTS.values(), turns, strict=True):
        turn(WARM)
        loop.counted(partial(turn, count))
        loop.counted(partial(turn, 2 * count))


if __name__ == "__main__":
    if "--counted" in sys.argv:
        _run()
    else:
        report.main(measure)
