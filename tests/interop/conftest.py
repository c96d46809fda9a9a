"""The real XLA CPU plugin beside torch and JAX in one process."""

from __future__ import annotations

import os

import jax
import pytest

import pjrt_hub

jax.config.update("jax_enable_x64", True)


@pytest.fixture(scope="session")
def client(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PJRT_", "JAX_"))]:
            patch.delenv(name)
        patch.setenv("PJRT_HUB_CACHE", str(tmp_path_factory.mktemp("interop") / "cache"))
        plugin = pjrt_hub.load("cpu", offline=True)
    with plugin.client() as client:
        yield client
