"""Counts the instructions of what a script runs inside of `raw_collected`, by the file they are in.

Callgrind does not see a call that libffi makes, so that function is one below what ctypes calls.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

WITHIN = "raw_collected"


def is_here() -> bool:
    """Whether valgrind is installed."""
    return shutil.which("valgrind") is not None


def counted(arguments: Sequence[str]) -> list[Counter[str]]:
    """Run Python with such arguments; give a count for each turn in `raw_collected`, in order.

    Only the thread that called is counted. A count's keys are the names of loaded files, "???" for
    code that was made at run time.
    """
    with TemporaryDirectory() as folder:
        command = ["valgrind", "--quiet", "--tool=callgrind", "--collect-atstart=no"]
        command += [f"--toggle-collect={WITHIN}", f"--dump-after={WITHIN}"]
        command += [f"--callgrind-out-file={folder}/out", sys.executable, *arguments]
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "0"}, check=True)
        # The last profile, without a number, covers what follows the last turn.
        numbers = sorted(int(path.suffix[1:]) for path in Path(folder).glob("out.*"))
        profiles = [Path(folder, f"out.{number}").read_text("utf-8") for number in numbers]
    return [by_file(profile) for profile in profiles]


def by_file(profile: str) -> Counter[str]:
    """How many instructions a profile in callgrind's format has in each loaded file.

    Raises:
        ValueError: they are not as many as its total.
    """
    names: dict[str, str] = {}
    where, called, found, total = "???", False, Counter[str](), 0
    for line in profile.splitlines():
        if match := re.match(r"(c?)ob=(\(\d+\))(?: (.*))?$", line):
            if match[3] is not None:
                names[match[2]] = Path(match[3]).name
            if not match[1]:
                where = names[match[2]]
        elif line.startswith("calls="):
            called = True  # The next line is a call's cost, already counted where it arose.
        elif match := re.match(r"[+\-*\d]\d* (\d+)$", line):
            if not called:
                found[where] += int(match[1])
            called = False
        elif line.startswith("totals: "):
            total = int(line.split()[1])
    if found.total() != total:
        raise ValueError(f"the profile has {found.total()} instructions, its total is {total}")
    return found
