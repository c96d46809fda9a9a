"""Proves pjrt-hub on the accelerator that is here: tests, checks and figures, without a network.

`python tools/gpu/run.py --output FOLDER`, with what tools/gpu/pack.py packed. What a step prints is
in FOLDER/NAME.txt, what came of all in report.json and report.md, written anew after each. Where a
command may take only so long, `--stage N` runs a part, and `--join` makes one report of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
PACKED = ROOT / ".nox" / "gpu"
TESTS = ROOT / "tests"
#: Warnings of the machine's other packages are no errors of this project.
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", "-W", "default")
#: Children of a test may print why it failed.
PRINTED = ("-o", "junit_logging=system-err")
PRINTED_NCHARS = 1000
#: The seconds that all steps of a stage may take together.
STAGE = 570


@dataclass
class Step:
    """One command: its name, its words after `python`, its limit, and what came of it.

    Attributes:
        name: of the step and of the file with its words.
        words: the command line.
        limit: in seconds.
        stage: in which it runs, where they are run apart.
        status: of the process; None where it was ended, or has not begun.
        seconds: that it took.
        counts: of tests or checks, by their outcome.
        failed: those that did, each with its error and the end of what it printed.
        differs: why tests were left out on this platform, and how many for each reason.
    """

    name: str
    words: tuple[str, ...]
    limit: float
    stage: int
    status: int | None = None
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    differs: dict[str, int] = field(default_factory=dict)


def steps(platform: str, output: Path) -> list[Step]:
    """Give all steps, what says most first."""
    hub, tests = ("-m", "pjrt_hub.cli"), (*PYTEST, *PRINTED, "--timeout=120")
    report = ("--json", "-o", str(output / "check.json"), "--html", str(output / "check.html"))
    figures = ("--json", str(output / "figures.json"))
    many = ("-n", str(min(os.cpu_count() or 1, 8)), "--dist=loadfile")
    return [
        Step("doctor", (*hub, "doctor", platform), 60, 1),
        Step("list", (*hub, "list", platform), 30, 1),
        Step("gpu", (*tests, junit(output, "gpu"), "gpu"), 240, 1),
        Step("figures", (str(ROOT / "benchmarks" / "accelerator.py"), *figures), 300, 1),
        Step("check", (*hub, "check", platform, "--jobs", "4", *report), 500, 2),
        Step("cpu", (*tests, *many, "-m", "not slow", junit(output, "cpu"), "cpu"), 540, 3),
    ]


def junit(output: Path, name: str) -> str:
    """Give pytest's option for its report of a step."""
    return f"--junit-xml={output / name}.xml"


def main() -> None:
    """Run the steps; give 1 where one failed or was left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--platform", default="cuda", help="the plugin (default: cuda)")
    parser.add_argument("--output", type=Path, default=PACKED / "report", help="a folder")
    parser.add_argument("--stage", type=int, choices=(1, 2, 3), help=f"one part, within {STAGE} s")
    parser.add_argument("--step", action="append", help="only this one; repeatable")
    parser.add_argument("--join", nargs="+", type=Path, metavar="FOLDER", help="run nothing")
    given = parser.parse_args()
    begun = time.monotonic()
    given.output.mkdir(parents=True, exist_ok=True)
    if given.join:
        write(join(given.join), given.output)
        return
    wanted = [
        step
        for step in steps(given.platform, given.output)
        if given.stage in (None, step.stage) and (not given.step or step.name in given.step)
    ]
    facts = describe(given.platform)
    with TemporaryDirectory() as folder:
        env = environment(given.platform, Path(folder))
        for step in wanted:
            if given.stage:
                step.limit = min(step.limit, STAGE - (time.monotonic() - begun))
            if step.limit > 0:
                run(step, env, given.output)
            write(facts | {"steps": [asdict(each) for each in wanted]}, given.output)
            print(line(asdict(step)), flush=True)
    sys.exit(1 if any(step.status != 0 for step in wanted) else 0)


def environment(platform: str, folder: Path) -> dict[str, str]:
    """Installs what was packed into a folder, and gives the variables that find it."""
    site = folder / "site"
    wheels = sorted(map(str, PACKED.glob("wheels/*.whl")))
    if wheels:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        quick = ["--no-compile", "--disable-pip-version-check"]
        subprocess.run([*pip, *quick, "--upgrade", f"--target={site}", *wheels], check=True)
    before = os.environ.get("PYTHONPATH")
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(site), before))),
        "PJRT_HUB_OFFLINE": "1",
        "PJRT_HUB_CACHE": str(folder / "cache"),
        "TESTED_PLATFORM": platform,
        "TESTED_PACKED": str(PACKED),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # Several processes share the device.
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def run(step: Step, env: dict[str, str], output: Path) -> None:
    """Run one, and keep what it prints and what came of it."""
    begun = time.monotonic()
    with open(output / f"{step.name}.txt", "wb") as file:
        process = subprocess.Popen(
            [sys.executable, *step.words],
            cwd=TESTS,
            env=env,
            stdout=file,
            stderr=file,
            start_new_session=True,  # A timeout then ends its children, too.
        )
        try:
            step.status = process.wait(step.limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    step.seconds = round(time.monotonic() - begun, 1)
    tests, checks = output / f"{step.name}.xml", output / f"{step.name}.json"
    if tests.exists():
        read_tests(step, tests)
    elif step.name == "check" and checks.exists():
        read_checks(step, checks)


def read_tests(step: Step, path: Path) -> None:
    """Take what came of tests from pytest's report."""
    counts = Counter({"passed": 0, "failed": 0, "skipped": 0})
    differs: Counter[str] = Counter()
    for case in ElementTree.parse(path).iter("testcase"):
        found = {child.tag: child.get("message") or "" for child in case}
        printed = (case.findtext("system-err") or "").strip()[-PRINTED_NCHARS:]
        if errors := [found[tag] for tag in ("failure", "error") if tag in found]:
            counts["failed"] += 1
            step.failed[f"{case.get('classname')}::{case.get('name')}"] = f"{errors[0]}\n{printed}"
        elif "skipped" in found:
            counts["skipped"] += 1
            differs[found["skipped"]] += 1
        else:
            counts["passed"] += 1
    step.counts, step.differs = dict(counts), dict(differs.most_common())


def read_checks(step: Step, path: Path) -> None:
    """Take what came of `pjrt-hub check` from its report."""
    checks = json.loads(path.read_text("utf-8"))["results"]
    step.counts = dict(Counter(check["verdict"] for check in checks))
    fine = ("pass", "skip", "unsupported")
    step.failed = {each["name"]: each["text"] for each in checks if each["verdict"] not in fine}


def describe(platform: str) -> dict[str, Any]:
    """What is the same for all steps."""
    return {
        "platform": platform,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": device(),
        "python": sys.version.split()[0],
    }


def join(folders: list[Path]) -> dict[str, Any]:
    """Make one report of those of several stages; a step that ran again is told as the last."""
    reports = [json.loads((each / "report.json").read_text("utf-8")) for each in folders]
    made = {step["name"]: step for report in reports for step in report["steps"]}
    return reports[-1] | {"steps": list(made.values())}


def write(facts: dict[str, Any], output: Path) -> None:
    """Write what came of the steps so far, for programs and for people."""
    (output / "report.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    made = facts["steps"]
    rows = [f"| {step['name']} | {line(step).partition(': ')[2]} |" for step in made]
    page = [
        f"# {facts['device'] or facts['platform']}, {facts['date']}",
        "\n".join(["| step | what came of it |", "|---|---|", *rows]),
    ]
    for step in made:
        failed = [f"- `{name}`: {first_line(text)}" for name, text in step["failed"].items()]
        differs = [f"- {count}: {first_line(why)}" for why, count in step["differs"].items()]
        if failed:
            page += [f"## {step['name']}: what failed", "\n".join(failed)]
        if differs:
            page += [f"## {step['name']}: what was left out, and why", "\n".join(differs)]
    (output / "report.md").write_text("\n\n".join(page) + "\n", encoding="utf-8")


def first_line(text: str) -> str:
    """The first line of a message, at most two of the page's."""
    return re.sub(r"\s+", " ", text.strip().partition("\n")[0])[:240]


def line(step: dict[str, Any]) -> str:
    """One step in a line."""
    if not step["seconds"]:
        return f"{step['name']}: not run"
    counts = ", ".join(f"{count} {what}" for what, count in step["counts"].items())
    ended = f"ended after {step['limit']:.0f} s"
    end = ended if step["status"] is None else f"status {step['status']}"
    return f"{step['name']}: {'; '.join(filter(None, (counts, end)))}, {step['seconds']:.0f} s"


def device() -> str:
    """The device and its driver, as NVIDIA's tool tells them; nothing where it is not."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=60).stdout.strip()
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    main()
