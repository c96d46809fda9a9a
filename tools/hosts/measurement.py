"""A host's profile: what it does without each function, from its walk to the file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.running.capi import table
from pjrt_hub.running.capi.status import FIRST_SLOT
from pjrt_hub.running.capi.unchecked import Entry
from pjrt_hub.running.interpose import layers

HERE = Path(__file__).parent
#: The build on which every profile is measured, so that profiles differ by the hosts alone.
PLUGIN = "xla-cpu-pjrt:cpu"
#: Hosts that need more functions than that one has.
BUILDS = {"torch_tpu": "lammps-jax-pjrt-cpu:cpu"}
#: How a function is missing -> how `PJRT_HUB_WITHOUT` names it.
FORMS = {"null": "{}:null", "unimplemented": "{}"}
#: The characters of a line in a profile.
WIDTH = 118
RIGHT, EXIT = "right", "exit"


class Run(NamedTuple):
    """A walk without one function: how the process ended, and each step that was begun."""

    without: str
    status: int
    steps: dict[str, str]


class Walked(NamedTuple):
    """All walks through one release of a host.

    Attributes:
        release: of the host.
        needs: the steps, each with those that it needs.
        left_out: the steps that the host cannot do on the whole plugin either; no walk takes them.
        runs: what `PJRT_HUB_WITHOUT` held -> how it went; "" for the whole plugin.
        asked_of: a trait -> the functions that the host calls only of plugins that have it.
    """

    release: str
    needs: dict[str, list[str]]
    left_out: list[str]
    runs: dict[str, Run]
    asked_of: dict[str, list[str]]


def functions(library: Path) -> tuple[ApiVersion, list[str]]:
    """The plugin's version of the PJRT API, and the functions that its table has."""
    entry = Entry.of(library)
    assert entry is not None
    count = (entry.struct_size - FIRST_SLOT) // 8
    slots = entry.slots()
    names = [name for name, each in table.FUNCTIONS.items() if each.slot < count]
    return entry.version, [name for name in names if slots[table.FUNCTIONS[name].slot]]


def walk(
    module: str, library: Path, names: Sequence[str], python: str = sys.executable, jobs: int = 2
) -> Walked:
    """Walks through a host on the whole plugin, then once for each name.

    Args:
        module: of the walk, "jax_walk".
        library: the plugin that functions are taken away from.
        names: of them, as `PJRT_HUB_WITHOUT` takes it.
        python: the interpreter that has the host.
        jobs: processes at once.
    """
    env = {
        name: text for name, text in os.environ.items() if not name.startswith(("PJRT_", "JAX_"))
    }
    env |= {
        "LD_PRELOAD": str(layers.preload_path()),
        "PJRT_HUB_LAYERS": "pad,without",
        "PJRT_NAMES_AND_LIBRARY_PATHS": f"walked:{library}",
        "JAX_PLATFORMS": "walked",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "WALKED": str(library),
    }

    def take(*asked: str) -> list[dict[str, Any]]:
        command = [python, "-W", "ignore", str(HERE / f"{module}.py"), *asked]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    head, whole = take("")
    needs = head["steps"]
    left_out = [step for step in needs if whole["steps"].get(step) != RIGHT]
    env["WALK_LEAVES_OUT"] = ",".join(left_out)
    with ThreadPoolExecutor(jobs) as pool:
        parts = list(pool.map(lambda number: take(*names[number::jobs]), range(jobs)))
    runs = {row["without"]: Run(**row) for rows in parts for row in rows[1:]}
    needs = {step: needed for step, needed in needs.items() if step not in left_out}
    runs = {"": Run(**whole), **runs}
    return Walked(head["release"], needs, left_out, runs, head["asked_of"])


def without(run: Run, needs: dict[str, list[str]]) -> str:
    """What becomes of the host, as the profile has it; empty where every step was right."""
    begun = list(run.steps)
    if run.status:
        name = signal.Signals(-run.status).name if run.status < 0 else f"exit {run.status}"
        return f"{name} at {begun[-1] if begun else next(iter(needs))}"
    fails = [step for step in needs if run.steps.get(step, RIGHT) != RIGHT]
    return f"fails {', '.join(fails)}" if fails else ""


def text(host: str, walked: Walked, names: Sequence[str], learned: str) -> str:
    """The file of a profile."""
    return "\n".join([*_lines(host, walked, names, learned), ""])


def _lines(host: str, walked: Walked, names: Sequence[str], learned: str) -> Iterator[str]:
    yield "# Made by tools/hosts: what the host does without each function. What is left out runs."
    yield f"host = {json.dumps(host)}"
    yield f"release = {json.dumps(walked.release)}"
    yield f"learned = {json.dumps(learned)}"
    if walked.left_out:
        yield "# Steps that it cannot do on the whole plugin either."
        yield f"left_out = {json.dumps(walked.left_out)}"
    yield ""
    yield "# The steps of the walk, each with those that it needs; what comes last is the exit."
    yield "[needs]"
    yield from (f"{step} = {json.dumps(needed)}" for step, needed in walked.needs.items())
    yield f"{EXIT} = []"
    if walked.asked_of:
        yield ""
        yield "# What is called only of plugins with a trait, which that of the measurement has."
        yield "[asked_of]"
        yield from (f"{trait} = {json.dumps(each)}" for trait, each in walked.asked_of.items())
    for form, named in FORMS.items():
        yield ""
        yield f"[{form}]"
        outcomes: dict[str, list[str]] = {}
        for name in names:
            if found := without(walked.runs[named.format(name)], walked.needs):
                outcomes.setdefault(found, []).append(json.dumps(name))
        for outcome, those in sorted(outcomes.items()):
            row = f"{json.dumps(outcome)} = [{', '.join(those)}]"
            yield row if len(row) <= WIDTH else _wrap(row)


def _wrap(row: str) -> str:
    head, _, names = row.partition("[")
    lines = textwrap.fill(names.rstrip("]"), WIDTH, initial_indent="  ", subsequent_indent="  ")
    return f"{head}[\n{lines}\n]"


def measured(library: Path, version: ApiVersion, names: Sequence[str]) -> str:
    """Say how a profile was learned."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return f"measured on {day} with {library.name} of PJRT API {version}, {len(names)} functions"
