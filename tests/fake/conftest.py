"""Stub plugins, compiled on the fly, and child processes that may crash with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import finished
import pytest

from pjrt_hub.running.interpose import layers

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    returncode: int
    stdout: str
    stderr: str


Stub = Callable[..., Path]
Script = Callable[..., object]
Run = Callable[..., Ended]
Host = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how many faulty libraries were met; if this process had died, nothing is printed."""
    told = {
        outcome: sum("test_probes.py::test_a_f" in each.nodeid for each in reports)
        for outcome, reports in terminalreporter.stats.items()
        if outcome in ("passed", "failed")
    }
    if told_apart := told.get("passed", 0):
        met = sum(told.values())
        line = f"faults: faulty plugins: {told_apart} of {met} told apart, 0 deaths of the process"
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def host(compiled: Callable[..., Path], stub: Stub) -> Host:
    """`host("leak", PJRT_HUB_LAYERS="validate")` runs the host in C over the stub."""
    program = compiled("misuse", HERE / "misuse.c", "-std=gnu11", "-rdynamic")

    def run(name: str, *macros: str, **env: str) -> subprocess.CompletedProcess[str]:
        plugins = [stub(*macros), *([stub("MINOR=116")] if name == "another_plugin" else [])]
        own = {**os.environ, "LD_PRELOAD": str(layers.preload_path()), **env}
        return finished.run(program, *plugins, name, seconds=60, env=own)

    return run


@pytest.fixture
def environment(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment, with a file to which each load of a stub adds its process."""
    return {**environment, "STUB_LOADS": str(tmp_path / "loads")}


@pytest.fixture
def start(environment: dict[str, str]) -> Callable[..., subprocess.Popen[str]]:
    """`start(library, script)` starts a child process, which is killed if it outlives the test.

    The script is a function in a file of tests, and is called with the other arguments. There, the
    library is `stubbed.path`.
    """
    children: list[subprocess.Popen[str]] = []

    def begin(
        library: Path, script: Script, *args: object, env: Mapping[str, str] = {}
    ) -> subprocess.Popen[str]:
        given = tuple(str(each) if isinstance(each, Path) else each for each in args)
        words = [HERE / "stubbed.py", library, Path(script.__code__.co_filename).stem]
        words += [script.__name__, given]
        child = subprocess.Popen(
            # Since 3.12, Python warns when a process that has threads forks.
            [sys.executable, "-W", "ignore:This process", *map(str, words)],
            env={**environment, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        children.append(child)
        return child

    yield begin
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


@pytest.fixture
def run(start: Callable[..., subprocess.Popen[str]]) -> Run:
    """`run(library, script)` runs a script in a child, and says how it ended."""

    def to_end(
        library: Path, script: Script, *args: object, seconds: float = 60, **kwargs: Any
    ) -> Ended:
        child = start(library, script, *args, **kwargs)
        stdout, stderr = child.communicate(timeout=seconds)
        return Ended(child.returncode, stdout, stderr)

    return to_end


@pytest.fixture
def check(run: Run) -> Callable[..., None]:
    """Like `run`, for a script of assertions, which must end well and print nothing."""

    def passes(library: Path, script: Script, *args: object, **kwargs: Any) -> None:
        ended = run(library, script, *args, **kwargs)
        assert ended == Ended(0, "", ""), f"{ended.stdout}\n{ended.stderr}"

    return passes
