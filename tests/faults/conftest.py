"""Faults on purpose, and a count of each at the end: `faults: kill -9 ...: 200 of 200 healed`.

A toy plugin of a few MiB stands in for the vendors'. `TESTED_FAULTS=full` makes every test use
the full number of faults; without it a seeded choice of them runs.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import wheels
from forks import STRACE, Forks
from loopback import Loopback
from toy import Bench, Toy, library_with_pages

from pjrt_hub import errors
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.finding.store.cache.cache import Cache

HERE = Path(__file__).parent
IS_FULL = os.environ.get("TESTED_FAULTS") == "full"
COUNTS = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test half an hour: the full numbers take minutes."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(1800))


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    for line in sorted(config.stash[COUNTS]):
        terminalreporter.write_line(f"faults: {line}")


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keep a line for the end of the report."""
    return request.config.stash[COUNTS].append


@pytest.fixture
def rounds() -> Callable[[int, int], int]:
    """How often to do something: the first number, or the second where everything runs."""
    return lambda short, full: full if IS_FULL else short


@pytest.fixture
def strace(tally: Callable[[str], None]) -> str:
    """Tests that use it are counted as skipped where strace is missing."""
    if STRACE is None:
        tally("skipped, strace is not installed")
        pytest.skip("strace is not installed")
    return STRACE


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Toy, Toy]]:
    """Two releases of the toy plugin, on a server that sends them honestly."""
    folder = tmp_path_factory.mktemp("toy")
    library = library_with_pages(folder)
    with Loopback() as server:
        made = []
        for version in ("1.0", "2.0"):
            members = wheels.contents(1)
            members[wheels.LIBRARY] = library + version.encode()
            wheel = wheels.build(members, stored=True)
            name = f"toy_plugin-{version}-py3-none-manylinux_2_17_x86_64.whl"
            pin = wheels.pin(wheel, members, version=version, file_name=name)
            pin = pin._replace(api_version=ApiVersion(0, 117))
            row = folder / f"{version}.json"
            row.write_text(json.dumps(pin.as_row()))
            server.file(f"/files/{name}", wheel)
            made.append(Toy(pin, wheel, members, row, server))
        yield made[0], made[1]


@pytest.fixture
def toy(toys: tuple[Toy, Toy], forks: Forks) -> Toy:
    """The older release; its server counts from zero, and sends as fast as it can."""
    toys[0].server.requests.clear()
    toys[0].server.sent = 0
    toys[0].server.pace_seconds = 0.0
    return toys[0]


@pytest.fixture(scope="session")
def forks(toys: tuple[Toy, Toy], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    python_path = [str(Path(errors.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PJRT_", "JAX_"))}
    told = {"FAULTS_ROW": str(toys[0].row), "FAULTS_SOURCES": json.dumps(toys[0].sources)}
    told["PYTHONPATH"] = os.pathsep.join(filter(None, python_path))
    with Forks({**kept, **told}) as forks:
        yield forks


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    yield Cache(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)


@pytest.fixture
def bench(toy: Toy, cache: Cache, forks: Forks) -> Bench:
    return Bench(toy, cache, forks)
