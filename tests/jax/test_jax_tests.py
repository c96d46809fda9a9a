"""The runner of JAX's own tests (tools/jax_tests), on tests of every kind of ending."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import finished
import pytest

RUNNER = Path(__file__).parents[2] / "tools" / "jax_tests"

ENDINGS = """
import os, time, unittest
import jax, numpy as np
from clients import is_plugin

class Endings(unittest.TestCase):
    def test_a_passes_on_the_plugin(self):
        [device] = jax.jit(lambda x: x + 1)(np.float32(1)).devices()
        assert is_plugin(device.client)
        assert not is_plugin(jax.devices("cpu")[0].client)

    def test_b_skips(self):
        self.skipTest("for another day")

    def test_c_dies(self):
        os.write(2, b"fatal: vhlo.future_v9 is unknown")
        os.abort()

    def test_d_calls_python(self):
        from jax.experimental.buffer_callback import buffer_callback

        f = buffer_callback(print, jax.ShapeDtypeStruct((), "float32"))
        jax.jit(f)(np.float32(1)).block_until_ready()

    def test_e_is_far_off(self):
        np.testing.assert_allclose(jax.numpy.sin(1.0), 2)

    def test_f_hangs(self):
        time.sleep(600)

    def test_g_is_beyond_the_rules(self):
        raise RuntimeError("no such thing")

    def test_h_has_64_bits_nowhere(self):
        assert jax.numpy.arange(2.0).dtype == "float32"
"""
EXPECTED = {
    "test_a_passes_on_the_plugin": ("passed", None),
    "test_b_skips": ("skipped", None),
    "test_c_dies": ("crash", "newer StableHLO"),
    "test_d_calls_python": ("failed", "Python callbacks"),
    "test_e_is_far_off": ("failed", "tolerance"),
    "test_f_hangs": ("timeout", "unexplained"),
    "test_g_is_beyond_the_rules": ("failed", "unexplained"),
    "test_h_has_64_bits_nowhere": ("passed", None),
}
UNREADABLE = "import there_is_no_such_package"


class Runner:
    """`python tools/jax_tests` on one folder, by what it writes."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.env = env
        self.json, self.known = folder / "results.json", folder / "known.json"
        self.tests = folder / "tests"
        self.tests.mkdir()
        (self.tests / "endings_test.py").write_text(ENDINGS)
        (self.tests / "unreadable_test.py").write_text(UNREADABLE)

    def __call__(self, *options: str) -> subprocess.CompletedProcess[str]:
        words = [RUNNER, "--test-seconds=25", self.tests, f"--json={self.json}"]
        words += [f"--known={self.known}", *options]
        return finished.python(*words, seconds=280, env=self.env)


@pytest.fixture
def runner(tmp_path: Path, environment: dict[str, str]) -> Runner:
    return Runner(tmp_path, environment)


@pytest.mark.cpu("JAX calls Python on platforms that it knows")
def test_every_ending_is_told_with_its_cause(runner: Runner) -> None:
    done = runner("--every", "--keep")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["test"]: row for row in json.loads(runner.json.read_text())}
    found = {name: (row["outcome"], row["cause"]) for name, row in rows.items()}
    expected = {
        f"jax/endings_test.py::Endings::{name}": (outcome, cause and f"{outcome}: {cause}")
        for name, (outcome, cause) in EXPECTED.items()
    }
    expected["jax/unreadable_test.py"] = ("error", "error: package missing")
    assert found == expected
    died = rows["jax/endings_test.py::Endings::test_c_dies"]["text"]
    assert died.startswith("died of SIGABRT\n")
    assert "fatal: vhlo.future_v9 is unknown" in died
    assert json.loads(runner.known.read_text()) == {
        "cpu": {name: cause for name, (_, cause) in expected.items() if cause}
    }


@pytest.mark.parametrize(
    ("known", "status", "printed"),
    [
        ("failed: tolerance", 0, "1 results, 1 failures, 0 of them not known"),
        ("crash: tolerance", 1, "not known: jax/endings_test.py::Endings::test_e_is_far_off"),
    ],
)
def test_only_what_is_not_known_fails(
    runner: Runner, known: str, status: int, printed: str
) -> None:
    name = "jax/endings_test.py::Endings::test_e_is_far_off"
    runner.known.write_text(json.dumps({"cpu": {name: known}}))
    done = runner("--every", "--file=endings", "-k", "far_off")
    assert (done.returncode, printed in done.stdout) == (status, True), done.stdout


def test_a_known_failure_that_passes_is_told(runner: Runner) -> None:
    name = "jax/endings_test.py::Endings::test_a_passes_on_the_plugin"
    runner.known.write_text(json.dumps({"cpu": {name: "failed: tolerance"}}))
    done = runner("--every", "--file=endings", "-k", "passes")
    assert done.returncode == 0, done.stdout
    assert f"passes now: {name} (failed: tolerance)" in done.stdout


def test_a_folder_without_chosen_files_is_told(runner: Runner) -> None:
    done = runner()
    assert done.returncode == 1
    assert "hint: give the folder tests/ of JAX" in done.stderr


def test_no_test_is_no_success(runner: Runner) -> None:
    done = runner("--every", "-k", "there_is_none", "--file=endings")
    assert done.returncode == 1
    assert "no test ran" in done.stdout
