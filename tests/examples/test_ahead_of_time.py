"""Compiling for a GPU and a TPU that are not here, with the vendors' own plugins."""

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from pjrt_hub.running.executable import serialized

from .conftest import EXAMPLES

TARGETS = {"cuda:H100": ("jax_plugins.xla_cuda13", "cuda"), "tpu:v5e:2x2": ("libtpu", "tpu")}

#: Compiles a training step of minijit. It runs in a child, because plugins change their process.
TRAIN = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import mlp
import pjrt_hub
rng = np.random.default_rng(0)
points, which = mlp.spirals(rng, 400)
layers = mlp.initial(rng)
program = mlp.step.stablehlo(layers, layers, points, which, rate=0.1)
options = pjrt_hub.CompileOptions(flags={"xla_gpu_autotune_level": 0} if "cuda" in sys.argv else {})
executable = pjrt_hub.topology(*sys.argv[2:], offline=True).compile(program, options)
print(executable.signature)
"""


@pytest.fixture(params=TARGETS)
def target(request):
    """The name of a machine; the test is skipped if its plugin is not installed."""
    package = TARGETS[request.param][0]
    try:
        found = find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(f"{package} is not installed: nox -s vendor")
    return request.param


def test_minijits_training_is_compiled_for_a_machine_that_is_not_here(target, clean_env):
    command = [sys.executable, "-c", TRAIN, str(EXAMPLES / "minijit"), *target.split(":", 1)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=clean_env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("f32[32,32]") == 4  # weights and velocity go in and come out
    assert "f32[400,2], f32[400]) -> (f32[], " in done.stdout


def test_hello_is_compiled_for_a_machine_that_is_not_here(run, target, tmp_path):
    platform = TARGETS[target][1]
    printed = run("ahead_of_time.py", target, cwd=tmp_path)
    assert re.match(rf"{re.escape(target)}: (1 x NVIDIA H100|4 x TPU v5)", printed)
    assert "takes and gives (f32[8], f32[8]) -> (f32[8])" in printed
    guards, code, _ = serialized.parse((tmp_path / f"hello.{platform}").read_bytes())
    assert guards.platform == platform
    assert f"holds {len(code):,} bytes of code for {platform}" in printed
    assert len(code) > 1000
