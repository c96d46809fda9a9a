"""The real XLA CPU plugin in use for half an hour; the counts are printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import leaks
import pytest

CPU = Path(__file__).parents[1] / "cpu"
#: Kinds of use that take milliseconds -> how many fit the time; a compilation takes 20 ms.
SLOW_USES = {"compile": 10_000, "load": 50_000, "pickled_executable": 50_000, "one_client": 20_000}

pytestmark = pytest.mark.timeout(2400)


def run(capsys, tmp_path, *arguments):
    """Run one of the scripts of tests/cpu, and show what it printed."""
    ours = ("PJRT_", "JAX_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=CPU,
        capture_output=True,
        text=True,
        timeout=2300,
        env={**env, "PJRT_HUB_CACHE": str(tmp_path)},
    )
    with capsys.disabled():
        print("", *arguments[:1], done.stdout, sep="\n")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_fifty_thousand_steps(capsys, tmp_path):
    assert int(run(capsys, tmp_path, "usage", "50000")) >= 50_000


@pytest.mark.parametrize("kind", leaks.KINDS)
def test_nothing_grows(capsys, tmp_path, kind):
    """100,000 uses after as many others add under 20 bytes each and 1 MB, and no native object."""
    count = SLOW_USES.get(kind, 100_000)
    told = json.loads(run(capsys, tmp_path, "leaks", f"{kind}={count}"))
    _, _, nbytes, _, left = told
    assert nbytes < (1 << 20) + 20 * count
    assert left == 0
