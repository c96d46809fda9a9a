"""The programs of docs/from_pytorch.md and docs/torch.md, run as a reader would."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def programs(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)


def test_a_model_is_trained_and_exported_and_runs_without_torch(python):
    train, export, run, *_ = programs("from_pytorch.md")
    done = python(train + export)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.01
    done = python(run + "import sys\nassert 'torch' not in sys.modules")
    assert done.stdout == "(3, 1)\n", done.stderr


def test_a_state_is_carried_without_torch(python):
    *_, export, run = programs("from_pytorch.md")
    done = python(export)
    assert done.returncode == 0, done.stderr
    done = python(run + "import sys\nassert 'torch' not in sys.modules")
    assert done.stdout == "[0.0, 1.0, 3.0, 6.0]\n", done.stderr


def test_a_device_that_is_registered(python):
    [program] = programs("torch.md")
    done = python(program.replace('"cuda"', '"cpu"') + "print(device, model.weight.device)")
    assert done.stdout == "tpu tpu:0\n", done.stderr
