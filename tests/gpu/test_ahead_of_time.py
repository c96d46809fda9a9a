"""Programs compiled for this device on a machine without it, loaded and run here."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(os.environ.get("TESTED_EXECUTABLES", "none"))


@pytest.mark.gpu("a machine to compile for")
def test_there_are_some():
    assert sorted(FOLDER.glob("*.pjrt")), f"tools/gpu/pack.py puts them into {FOLDER}"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.pjrt")), ids=lambda path: path.stem)
def test_it_runs(client, path):
    with np.load(path.with_suffix(".npz")) as known:
        arguments = [known[name] for name in sorted(known) if name.startswith("argument")]
        expected = known["result"]
    result = client.load(path.read_bytes())(*arguments)
    np.testing.assert_allclose(result, expected, rtol=0.02, atol=0.02)
