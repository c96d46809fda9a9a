"""Proves pjrt-hub on the accelerator that is here: tests, checks and figures, without a network.

`python tools/gpu/run.py --output FOLDER`, with what tools/gpu/pack.py packed in `.nox/gpu`. The
steps are in the order of their value, each within a time; what one prints is in FOLDER/NAME.txt,
and what came of all in report.json and report.md, written anew after each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
PACKED = ROOT / ".nox" / "gpu"
TESTS = ROOT / "tests"
#: What other packages of that machine warn of is not ours.
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", "-W", "default")


@dataclass
class Step:
    """One command: its name, its words after `python`, its limit, and what came of it.

    Attributes:
        name: of the step and of the file with its words.
        words: the command line.
        limit: in seconds.
        status: of the process; None where it was ended.
        seconds: that it took.
        counts: of tests, by their outcome.
        failed: the tests that did.
    """

    name: str
    words: tuple[str, ...]
    limit: float
    status: int | None = None
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def steps(platform: str, output: Path) -> list[Step]:
    """Gives all steps, what says most first."""
    hub, tests = ("-m", "pjrt_hub.cli"), (*PYTEST, "--timeout=120")
    report = ("--json", "-o", str(output / "check.json"), "--html", str(output / "check.html"))
    figures = ("--json", str(output / "figures.json"))
    return [
        Step("doctor", (*hub, "doctor", platform), 60),
        Step("list", (*hub, "list", platform), 60),
        Step("gpu", (*tests, junit(output, "gpu"), "gpu"), 240),
        Step("check", (*hub, "check", platform, "--jobs", "4", *report), 400),
        Step("figures", (str(ROOT / "benchmarks" / "accelerator.py"), *figures), 300),
        Step("cpu", (*tests, "-n", "6", "-m", "not slow", junit(output, "cpu"), "cpu"), 590),
    ]


def junit(output: Path, name: str) -> str:
    """Gives pytest's option for its report of a step."""
    return f"--junit-xml={output / name}.xml"


def main() -> None:
    """Runs the steps; gives 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--platform", default="cuda", help="the plugin (default: cuda)")
    parser.add_argument("--output", type=Path, default=PACKED / "report", help="a folder")
    parser.add_argument("--step", action="append", help="only this one; repeatable")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    made = steps(given.platform, given.output)
    wanted = [step for step in made if step.name in (given.step or [each.name for each in made])]
    with TemporaryDirectory() as folder:
        env = environment(given.platform, Path(folder))
        for step in wanted:
            run(step, env, given.output)
            write(wanted, given.output, given.platform)
            print(line(step), flush=True)
    sys.exit(1 if any(step.status for step in wanted) else 0)


def environment(platform: str, folder: Path) -> dict[str, str]:
    """Installs what was packed into a folder, and gives the variables that find it."""
    site = folder / "site"
    wheels = sorted(map(str, PACKED.glob("wheels/*.whl")))
    if wheels:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        subprocess.run([*pip, "--upgrade", f"--target={site}", *wheels], check=True)
    before = os.environ.get("PYTHONPATH")
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(site), before))),
        "PJRT_HUB_OFFLINE": "1",
        "PJRT_HUB_CACHE": str(folder / "cache"),
        "TESTED_PLATFORM": platform,
        "TESTED_EXECUTABLES": str(PACKED / "executables"),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several processes share the device
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def run(step: Step, env: dict[str, str], output: Path) -> None:
    """Runs one, and keeps what it prints and what came of it."""
    begun = time.monotonic()
    with open(output / f"{step.name}.txt", "wb") as file:
        process = subprocess.Popen(
            [sys.executable, *step.words], cwd=TESTS, env=env, stdout=file, stderr=file
        )
        try:
            step.status = process.wait(step.limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    step.seconds = round(time.monotonic() - begun, 1)
    path = output / f"{step.name}.xml"
    if path.exists():
        step.counts, step.failed = read(path)


def read(path: Path) -> tuple[dict[str, int], list[str]]:
    """Counts the tests of one of pytest's reports, and names those that failed."""
    counts, failed = {"passed": 0, "failed": 0, "skipped": 0}, []
    for case in ElementTree.parse(path).iter("testcase"):
        found = {child.tag for child in case}
        outcome = "skipped" if "skipped" in found else "passed"
        if found & {"failure", "error"}:
            outcome = "failed"
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        counts[outcome] += 1
    return counts, failed


def write(made: list[Step], output: Path, platform: str) -> None:
    """Writes what came of the steps so far, for programs and for people."""
    facts = {
        "platform": platform,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": device(),
        "python": sys.version.split()[0],
        "steps": [asdict(step) for step in made],
    }
    (output / "report.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    title = f"{facts['device'] or platform}, {facts['date']}"
    head = f"# {title}\n\n| step | what came of it |\n|---|---|\n"
    rows = [f"| {step.name} | {line(step).partition(': ')[2]} |" for step in made]
    failed = [f"- {step.name}: `{each}`" for step in made for each in step.failed]
    page = head + "\n".join(rows) + "\n" + ("\n" + "\n".join(failed) + "\n" if failed else "")
    (output / "report.md").write_text(page, encoding="utf-8")


def line(step: Step) -> str:
    """One step in a line."""
    if not step.seconds:
        return f"{step.name}: not yet"
    counts = ", ".join(f"{count} {what}" for what, count in step.counts.items())
    end = f"ended after {step.limit:g} s" if step.status is None else f"status {step.status}"
    return f"{step.name}: {'; '.join(filter(None, (counts, end)))}, {step.seconds:.0f} s"


def device() -> str:
    """The device and its driver, as NVIDIA's tool tells them; nothing where it is not."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=60).stdout.strip()
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    main()
