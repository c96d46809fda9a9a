"""A training loop on JAX through pjrt-hub: it learns, and as JAX's own CPU backend does."""

import json
from pathlib import Path

import finished
import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("training.py")


@pytest.fixture(scope="module")
def runs():
    """The same training by JAX's own backend and by the plugin, a process each."""
    return {backend: train(backend) for backend in ("cpu", "pjrt_hub")}


def train(backend):
    done = finished.python(SCRIPT, backend, seconds=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_ran_where_it_says(runs):
    assert not runs["cpu"]["on a plugin"]
    assert runs["pjrt_hub"]["on a plugin"]


@pytest.mark.parametrize("backend", ["cpu", "pjrt_hub"])
def test_the_loss_falls(runs, backend):
    losses = runs[backend]["losses"]
    assert len(losses) == 300
    assert losses[0] > 0.2
    assert losses[-1] < 0.005
    assert runs[backend]["held out"] < 0.005


def test_the_losses_are_jaxs(runs):
    """Rounding drifts apart with each step, so the first ones are held closer than the last."""
    ours, theirs = (np.array(runs[name]["losses"]) for name in ("pjrt_hub", "cpu"))
    assert np.allclose(ours[:20], theirs[:20], rtol=1e-5)
    assert np.allclose(ours[-1], theirs[-1], rtol=0.05)
    assert np.isclose(runs["pjrt_hub"]["held out"], runs["cpu"]["held out"], rtol=0.05)
