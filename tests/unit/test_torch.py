"""`pjrt_hub.torch` where torch is missing; tests/torch has the rest."""

from __future__ import annotations

import sys

import pytest

import pjrt_hub.torch
from pjrt_hub.errors import FrameworkError

CALLS = {
    "register": lambda: pjrt_hub.torch.register("cpu"),
    "export": lambda: pjrt_hub.torch.export(None, (), "model.pjrt"),
    "initialize": pjrt_hub.torch.initialize,
}


@pytest.mark.parametrize("name", CALLS)
def test_it_says_how_to_install_torch(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("PJRT_HUB_TORCH", "cpu")
    with pytest.raises(FrameworkError, match="TorchTPU cannot be imported") as caught:
        CALLS[name]()
    assert "pip install 'pjrt-hub[torch]'" in caught.value.hint


def test_nothing_is_registered_without_the_variable(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delenv("PJRT_HUB_TORCH", raising=False)
    pjrt_hub.torch.initialize()
