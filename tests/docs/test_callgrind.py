"""How the benchmarks read what callgrind counted."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: 12 instructions of a library, 30 of code that was made at run time, and a call between them.
PROFILE = """\
# callgrind format
version: 1
events: Ir

ob=(2) /opt/lib/libpython3.11.so.1.0
fl=(1) ceval.c
fn=(1) run
10 4
+2 3
cob=(3) ???
cfi=(2) ???
cfn=(2) 0x00000000
calls=2 0
* 30
-1 5

ob=(3)
fl=(2)
fn=(2)
0 10
* 20

totals: {total}
"""


@pytest.fixture(scope="module")
def callgrind():
    spec = importlib.util.spec_from_file_location(
        "benchmarks_callgrind", ROOT / "benchmarks" / "callgrind.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_a_call_takes_is_counted_where_it_was_spent(callgrind):
    counts = callgrind.by_file(PROFILE.format(total=42))
    assert counts == {"libpython3.11.so.1.0": 12, "???": 30}


def test_a_profile_that_was_not_read_whole_is_refused(callgrind):
    with pytest.raises(ValueError, match="42 instructions, its total is 43"):
        callgrind.by_file(PROFILE.format(total=43))
