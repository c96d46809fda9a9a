"""Instructions of a call, counted by callgrind: a figure that no busy machine changes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from timeit import Timer

import programs
import report
import rounds

#: Variant -> how many calls are counted; twice as many are counted again, and subtracted.
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
TOTAL, OVER, RATIO = "instructions", "over raw C", "÷ raw C"

#: The columns of where instructions are, by what a loaded file is called; else they are the rest.
PARTS = {"pjrt-hub's C": r"hotpath\.|_pjrt\.", "Python and numpy": r"(lib)?python3|.*\.cpython-"}
REST = "plugin and libc"


def measure() -> report.Section:
    """One run suffices: two agree within a hundredth."""
    rows = _rows(_counted()) if shutil.which("valgrind") else {}
    note = (
        "Instructions of one call on float32[8] with the freeing of its results, counted by "
        "callgrind in the calling thread:\na loop of n calls subtracted from one of 2n. The raw C "
        "loop makes the same calls of the plugin. Callgrind runs the\nplugin without AVX-512, and "
        "the count depends on the build of Python."
    )
    if not rows:
        note = "valgrind is not installed here, so nothing was counted."
    return report.Section("Instructions of a call", note, rows)


def _rows(counts: dict[str, Counter[str]]) -> rounds.Rows:
    rows: rounds.Rows = {}
    raw_c = 0
    for name, parts in counts.items():
        total = parts.total()
        rows[name] = {TOTAL: total, **{part: parts[part] for part in (*PARTS, REST)}}
        if name.startswith("raw C"):
            raw_c = total
        else:
            rows[name] |= {OVER: total - raw_c, RATIO: total / raw_c}
    return rows


def _counted() -> dict[str, Counter[str]]:
    """Instructions of one call of each variant, by where they are."""
    with TemporaryDirectory() as folder:
        command = ["valgrind", "--quiet", "--tool=callgrind", "--collect-atstart=no"]
        command += ["--toggle-collect=raw_collected", "--dump-after=raw_collected"]
        command += [f"--callgrind-out-file={folder}/out", sys.executable, __file__, "--counted"]
        env = os.environ | {"PYTHONHASHSEED": "0"}
        subprocess.run(command, env=env, check=True)
        profiles = [
            _instructions(Path(folder, f"out.{number}")) for number in range(1, 2 * len(COUNTS) + 1)
        ]
    counted = {}
    for (name, count), once, twice in zip(
        COUNTS.items(), profiles[::2], profiles[1::2], strict=True
    ):
        counted[name] = Counter({part: (twice[part] - once[part]) / count for part in twice})
    return counted


def _instructions(profile: Path) -> Counter[str]:
    """How many instructions a profile holds for each column."""
    files: dict[str, str] = {}
    where, called, found = REST, False, Counter[str]()
    for line in profile.read_text("utf-8").splitlines():
        if match := re.match(r"ob=(\(\d+\))(?: (.*))?", line):
            if match[2]:
                files[match[1]] = match[2]
            name = Path(files[match[1]]).name
            where = next((part for part, known in PARTS.items() if re.match(known, name)), REST)
        elif match := re.match(r"cob=(\(\d+\)) (.*)", line):
            files[match[1]] = match[2]
        elif line.startswith("calls="):
            called = True  # the next line is what the call took, counted where it went
        elif match := re.match(r"[+\-*\d]\d* (\d+)$", line):
            if not called:
                found[where] += int(match[1])
            called = False
    return found


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

    turns = (
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
        loop.counted(lambda turn=turn, count=count: turn(count))
        loop.counted(lambda turn=turn, count=count: turn(2 * count))


if __name__ == "__main__":
    if "--counted" in sys.argv:
        _run()
    else:
        report.main(measure)
