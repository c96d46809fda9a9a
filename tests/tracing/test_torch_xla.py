"""torch_xla, which is older than the plugin, under the layers."""

from __future__ import annotations

import sys
from importlib.metadata import version
from importlib.util import find_spec

import pytest

SCRIPT = """
import torch, torch_xla
x = torch.arange(4., device=torch_xla.device())
print((x * x).cpu().tolist())
"""


@pytest.mark.skipif(find_spec("torch_xla") is None, reason="needs torch_xla")
def test_an_old_torch_xla_drives_a_newer_plugin(trace, library):
    library_of_torch_xla = {"PJRT_DEVICE": "LIBRARY", "PJRT_LIBRARY_PATH": str(library)}
    command = ["--", sys.executable, "-c", SCRIPT]
    alone = trace("--validate", *command, **library_of_torch_xla)
    if version("torch_xla").startswith("2.8."):
        assert alone.returncode == 128 + 6  # it died of SIGABRT
        assert "VAL007 thread 1: struct_size is smaller than the struct ever was: #" in alone.stderr
        assert "PJRT_Plugin_Attributes; it says 24" in alone.stderr
    else:
        assert alone.returncode == 1
        assert "Unexpected PJRT_ExecuteOptions size: expected 112, got 80." in alone.stderr
    padded = trace("--summary", "--pad", *command, **library_of_torch_xla)
    assert padded.stdout == "[0.0, 1.0, 4.0, 9.0]\n"
    assert padded.returncode == 0
    assert "PJRT_LoadedExecutable_Execute  " in padded.stderr
