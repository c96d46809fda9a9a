"""What an interrupt leaves: records of long work, and whose they are."""

import json
from pathlib import Path

import finished
import pytest

from pjrt_hub.finding.store.cache.journal import Journal


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def kept(root: Path) -> list[dict[str, int]]:
    [path] = root.rglob("*.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def resumed(root: Path) -> list[dict[str, int]]:
    journal = Journal(root, "check", resume=True)
    journal.close(finished=False)
    return journal.records


@pytest.fixture
def interrupted(root: Path) -> Path:
    """The file of a work that was interrupted after its first record."""
    first = Journal(root, "check", resume=False)
    first.add({"a": 1})
    first.close(finished=False)
    [path] = root.rglob("*.jsonl")
    return path


def test_what_is_not_resumed_is_forgotten(root, interrupted):
    Journal(root, "check", resume=False).close(finished=False)
    assert kept(root) == []


def test_a_line_that_was_cut_short_is_passed_over(root, interrupted):
    interrupted.write_bytes(interrupted.read_bytes() + b'\n{"b": ')
    again = Journal(root, "check", resume=True)
    again.add({"c": 3})
    again.close(finished=False)
    assert resumed(root) == [{"a": 1}, {"c": 3}]


SECOND = """
import json, sys
from pathlib import Path
from pjrt_hub.finding.store.cache.journal import Journal
journal = Journal(Path(sys.argv[1]), "check", resume=True)
journal.add({"of": 2})
journal.close(finished=True)
print(json.dumps(journal.records))
"""


def second(root: Path) -> list[dict[str, int]]:
    """What another process finds, which adds a record and ends its work."""
    done = finished.python("-c", SECOND, root, seconds=60, check=True)
    return json.loads(done.stdout)


def test_another_process_neither_reads_nor_ends_it(root):
    mine = Journal(root, "check", resume=False)
    mine.add({"of": 1})
    assert second(root) == []
    mine.add({"of": 1})
    assert kept(root) == [{"of": 1}, {"of": 1}]
    mine.close(finished=False)
    assert second(root) == [{"of": 1}, {"of": 1}]
    assert list(root.rglob("*.jsonl")) == []
