"""One test file in processes: as many as it takes, for each death costs one test and no more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import recorder
from files import TestFile

HERE = Path(__file__).parent
#: The number of deaths after which a file is given up.
DEATHS = 40
#: The seconds that a single test may take, and those between two looks of the parent.
TEST_LIMIT, INTERVAL = 600.0, 0.2
LONGEST = 8000
#: pytest's exit statuses of a run that reached its end: passed, failed, nothing (left) to run.
TO_THE_END = (0, 1, 5)


@dataclass(frozen=True)
class Result:
    """What became of one test; `test` is empty where it is the file that failed."""

    file: str
    test: str
    outcome: str
    text: str = ""

    @property
    def name(self) -> str:
        """The test's id, on every machine the same."""
        return f"{self.file}::{self.test}" if self.test else self.file


@dataclass(frozen=True)
class Ending:
    """How a process ended, by itself or because the time of a test or of the file was over."""

    status: int
    late: str = ""

    def outcome(self, test: str) -> str:
        """What this makes of the test that ran, or of the file where none did."""
        if self.late:
            return "timeout"
        return "crash" if test or self.status < 0 else "error"

    def __str__(self) -> str:
        """A line for the reader of a report."""
        if self.late:
            return f"ended, because the {self.late}'s time was over"
        if self.status < 0:
            return f"died of {signal.Signals(-self.status).name}"
        return f"ended with status {self.status}"


def run(
    file: TestFile, platform: str, folder: Path, options: list[str], test_limit: float = TEST_LIMIT
) -> list[Result]:
    """Run a file's tests to their end, or to the file's time limit.

    Args:
        file: which.
        platform: the plugin, as `pjrt_hub.jax.register` takes it.
        folder: an empty one, for records and logs.
        options: more for pytest, such as -k.
        test_limit: the seconds that one test may take.

    Returns:
        A result for each test that was started, and one for the file where it could not be read,
        died outside of its tests, or was not finished.
    """
    record = folder / "record.jsonl"
    ends = time.monotonic() + file.minutes * 60
    dead: dict[str, Result] = {}
    for number in range(DEATHS + 1):
        log = folder / f"{number}.log"
        ending = _process(_command(file, platform, record, options), file, log, ends, test_limit)
        test = _running(record)
        test = "" if test is None or test in dead else test
        if ending.status in TO_THE_END and not ending.late and not test:
            break
        text = f"{ending}\n{log.read_text('utf-8', 'replace')[-LONGEST:]}"
        dead[test] = Result(file.name, test, ending.outcome(test), text)
        if ending.late == "file":
            dead[""] = Result(file.name, "", "timeout", text)
        if "" in dead:
            break
    else:
        dead[""] = Result(file.name, "", "crash", f"given up after {DEATHS} deaths")
    ended = {row["test"]: row for row in recorder.read(record) if row["outcome"]}
    told = [Result(file.name, name, r["outcome"], r["text"]) for name, r in ended.items()]
    return told + list(dead.values())


def _command(file: TestFile, platform: str, record: Path, options: list[str]) -> list[str]:
    # Neither the configuration beside the tests nor that of this project is meant for this run.
    own = ["-c", os.devnull, "--rootdir", str(file.path.parent), "--noconftest", "-p", "recorder"]
    # What native code prints as it dies bypasses Python and goes to the log.
    own += ["-q", "--tb=short", "--capture=sys", "-p", "no:randomly", "-p", "no:cacheprovider"]
    hub = [f"--hub-platform={platform}", f"--hub-record={record}", f"--hub-one-in={file.one_in}"]
    return [sys.executable, "-m", "pytest", *own, *hub, *options, str(file.path)]


def _process(
    command: list[str], file: TestFile, log: Path, ends: float, test_limit: float
) -> Ending:
    """Run one process, and end it when a test or the file takes too long."""
    env = os.environ | {"JAX_ENABLE_X64": str(int(file.x64)), "TF_CPP_MIN_LOG_LEVEL": "3"}
    env["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [env.get("PYTHONPATH")])])
    record = Path(next(o for o in command if o.startswith("--hub-record=")).partition("=")[2])
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
            # `python -m` looks for modules there, and tests write there.
            cwd=log.parent,
            start_new_session=True,
        )
        late, seen, since = "", 0, time.monotonic()
        try:
            while process.poll() is None and not late:
                time.sleep(INTERVAL)
                now, nbytes = time.monotonic(), record.stat().st_size if record.exists() else 0
                if nbytes != seen:
                    seen, since = nbytes, now
                late = (
                    "file" if now > ends else "test" if nbytes and now - since > test_limit else ""
                )
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return Ending(process.wait(), late)


def _running(record: Path) -> str | None:
    """The test that had started and not ended when the process was over."""
    rows = recorder.read(record)
    return rows[-1]["test"] if rows and rows[-1]["outcome"] is None else None
