"""What fetching costs: the wheel of the CPU plugin from a server on this machine, against pip.

Both get the same file from the same server, round after round, as whole processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import report
import rounds

from pjrt_hub.finding.store.catalog import Artifact

ROUNDS = 7
FETCH = """
import os, sys
from pathlib import Path
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Catalog, shipped_registry
from pjrt_hub.finding.store.transfer.fetch import obtain
pin = next(row for row in Catalog([shipped_registry()]).rows() if row.file_name == sys.argv[1])
def peak():
    # Of this program alone; what getrusage tells begins with that of whoever started it.
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
obtain(pin, Cache(Path(os.environ["STORE"])), env=os.environ)
print(peak() - before)
"""
OURS, ZLIB, THEIRS = "pjrt-hub", "pjrt-hub, zlib only", "pip install --target"
BARS = (
    report.Bar("a fetch, verified and published, times pip's", OURS, "÷ pip", 0.7),
    report.Bar("a fetch's memory above its start, MiB", OURS, "MiB", 64),
)


def measure() -> report.Section:
    """The median of interleaved processes."""
    with TemporaryDirectory() as folder:
        served, target = Path(folder, "served"), Path(folder, "target")
        served.mkdir()
        wheel = put_wheel(served)
        with server(served) as address:
            nbytes: dict[str, list[int]] = {OURS: [], ZLIB: []}
            env = {"PJRT_HUB_MIRRORS": address, "STORE": str(target)}
            # With None in its place, isal cannot be imported.
            without = "import sys; sys.modules['isal'] = None\n"
            python, name = [sys.executable, "-c"], wheel.file_name
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir"]
            pip += ["--no-deps", "--disable-pip-version-check", "--target", str(target)]
            times = rounds.interleave(
                {
                    OURS: _process([*python, FETCH, name], env, target, nbytes[OURS]),
                    ZLIB: _process([*python, without + FETCH, name], env, target, nbytes[ZLIB]),
                    THEIRS: _process([*pip, f"{address}/{name}"], {}, target, []),
                },
                ROUNDS,
            )
    rows: rounds.Rows = {}
    for name, seconds in times.items():
        rows[name] = {"ms": median(seconds) * 1e3, "least ms": min(seconds) * 1e3}
        rows[name]["÷ pip"] = rounds.ratio(times, name, THEIRS)
        if name in nbytes:
            rows[name]["MiB"] = max(nbytes[name]) / 1024
    return report.Section(
        "Fetching",
        f"Milliseconds of whole processes that get {wheel.file_name}\n({wheel.size / 1e6:.0f} MB) "
        f"from a server on this machine: the median of {ROUNDS} interleaved rounds and the least. "
        "pjrt-hub verifies two\ndigests and syncs the disk, pip does neither. MiB is what the "
        "process grows by.",
        rows,
        BARS,
    )


def put_wheel(folder: Path) -> Artifact:
    """Put the wheel that a fetch takes here into a folder, from the user's index."""
    from pjrt_hub.door import process
    from pjrt_hub.finding.store.catalog import Catalog, newest_builds, shipped_registry
    from pjrt_hub.finding.store.transfer import download
    from pjrt_hub.finding.store.transfer.transport import Patience

    host = process.world().host
    fitting = [
        row
        for row in Catalog([shipped_registry()]).rows()
        if row.plugin == "cpu" and not row.runs(host)
    ]
    if not fitting:
        raise SystemExit("the registry has no CPU plugin for this machine")
    [pin, *_] = newest_builds(fitting)
    came = folder / "came"
    came.mkdir()
    archive_path = download.download(pin, came, env=os.environ, patience=Patience())
    archive_path.rename(folder / pin.file_name)
    return pin


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Serve a folder on the loopback interface; give its address."""
    handler = partial(_Silent, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def _process(
    command: list[str], env: dict[str, str], target: Path, nbytes: list[int]
) -> Callable[[], float]:
    def seconds() -> float:
        shutil.rmtree(target, ignore_errors=True)
        start = perf_counter()
        done = subprocess.run(
            command, env={**os.environ, **env}, cwd="/", stdout=subprocess.PIPE, check=True
        )
        took = perf_counter() - start
        if printed := done.stdout.split():
            nbytes.append(int(printed[0]))
        return took

    return seconds


if __name__ == "__main__":
    report.main(measure)
