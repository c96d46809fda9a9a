"""Compiling for a GPU and a TPU that are not here, with the vendors' own plugins."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest

from pjrt_hub.runtime import serialized

TARGETS = {"cuda:H100": ("jax_plugins.xla_cuda13", "cuda"), "tpu:v5e:2x2": ("libtpu", "tpu")}


@pytest.mark.parametrize("target", TARGETS)
def test_hello_is_compiled_for_a_machine_that_is_not_here(run, target, tmp_path):
    package, platform = TARGETS[target]
    try:
        found = find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(f"{package} is not installed: nox -s vendor")
    printed = run("ahead_of_time.py", target, cwd=tmp_path)
    assert re.match(rf"{re.escape(target)}: (1 x NVIDIA H100|4 x TPU v5)", printed)
    assert "takes and gives (8xf32, 8xf32) -> (8xf32)" in printed
    guards, code = serialized.read((tmp_path / f"hello.{platform}").read_bytes())
    assert guards.platform == platform
    assert f"holds {len(code):,} bytes of code for {platform}" in printed
    assert len(code) > 1000
