"""Ahead of time by JAX's own API, for machines of vendors whose packages are here."""

from __future__ import annotations

import importlib.metadata

import pytest

COMPILE = """
import sys, logging
logging.basicConfig(level=logging.INFO)
import pjrt_hub.jax
name = pjrt_hub.jax.register(sys.argv[1])
import jax, jax.numpy as jnp
from jax.experimental import topologies
machine = topologies.get_topology_desc(sys.argv[2], platform=name)
device = machine.devices[0]
print(name, device.platform, device.device_kind)
x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
where = jax.sharding.SingleDeviceSharding(device)
compiled = jax.jit(lambda x: jnp.tanh(x @ x), in_shardings=where).lower(x).compile()
print(compiled.runtime_executable().serialize().count(b"\\x7fELF") > 0)
"""


def require(distribution: str) -> None:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed; the session jax_topologies has it")


def test_a_gpu_by_its_name(python):
    require("jax-cuda13-pjrt")
    ended = python(COMPILE, "cuda", "H100", JAX_PLATFORMS="cpu")
    assert ended.status == 0, ended.errors
    assert ended.printed == "hubcuda gpu NVIDIA H100 80GB HBM3\nTrue\n"
    assert "smaller structs than cuda13, 0.116, insists on: they are padded" in ended.errors


def test_a_tpu_by_its_name(python):
    require("libtpu")
    ended = python(COMPILE, "tpu", "v5e:2x2", JAX_PLATFORMS="cpu")
    assert ended.status == 0, ended.errors
    assert ended.printed == "hubtpu tpu TPU v5 lite\nFalse\n"


def test_a_machine_that_nobody_describes(python):
    require("jax-cuda13-pjrt")
    ended = python(COMPILE, "cuda", "H1000", JAX_PLATFORMS="cpu")
    assert ended.status == 1
    assert "TargetNotFoundError: cuda13 has no description of the target 'H1000'" in ended.errors


def compile_as_if_jax_wrote(python, *version):
    """Ask the CPU plugin for a topology; each release of JAX writes another StableHLO for one."""
    writes = f"""
from pjrt_hub.frameworks.jax import framework
framework.stablehlo_version = lambda: {version}
"""
    ended = python(writes + COMPILE, "cpu", "", JAX_PLATFORMS="cpu")
    assert ended.status == 1
    return ended


def test_a_plugin_that_describes_no_machine_says_so(python):
    ended = compile_as_if_jax_wrote(python, 1, 13, 3)
    assert "UNIMPLEMENTED: Topology not supported for CPU compilation" in ended.errors


def test_a_plugin_that_reads_only_an_older_stablehlo_is_refused(python, row):
    ended = compile_as_if_jax_wrote(python, 1, 99, 0)
    refused = f"IncompatiblePluginError: cpu reads StableHLO {row.stablehlo}; JAX"
    assert refused in ended.errors
    assert "writes 1.99.0 for a machine that is not there" in ended.errors
