"""Programs compiled for this device on a machine without it, loaded and run here."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.gpu("a machine to compile for")
PROGRAMS = ("add", "tanh_mul_add", "matmul_64")


@pytest.fixture
def executables(client, packed):
    """The folder of the executables for this device."""
    kind = client.devices[0].kind
    folders = sorted((packed / "executables").iterdir())
    chosen = [each for each in folders if each.name in kind]
    named = ", ".join(each.name for each in folders)
    assert chosen, f"{kind} is none of {named}: tools/gpu/pack.py --gpu NAME compiles for it"
    return chosen[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs(client, executables, name):
    with np.load(executables / f"{name}.npz") as known:
        arguments = [known[name] for name in sorted(known) if name.startswith("argument")]
        expected = known["result"]
    result = client.load((executables / f"{name}.pjrt").read_bytes())(*arguments)
    np.testing.assert_allclose(result, expected, rtol=0.02, atol=0.02)


def test_a_model(client, executables, minilm):
    exe = client.load((executables / "encoder.pjrt").read_bytes())
    assert minilm.cosines(exe).min() >= 0.999  # matrix units round their inputs
