"""Which table a framework is given that may be older than a plugin."""

from types import SimpleNamespace

import pytest

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import FrameworkError
from pjrt_hub.frameworks import padding

PLUGIN = SimpleNamespace(name="cpu", api_version=ApiVersion(0, 81), api=SimpleNamespace(address=64))


def table(built_with: ApiVersion | None) -> int:
    return padding.table(PLUGIN, "JAX 0.4.33", built_with, "pjrt_hub.jax")


@pytest.mark.parametrize("minor", [81, 112])
def test_a_framework_as_new_as_the_plugin_has_the_plugin_s_own_table(monkeypatch, minor):
    monkeypatch.setenv("PJRT_HUB_LAYERS", "validate")
    assert table(ApiVersion(0, minor)) == 64


@pytest.mark.parametrize("built_with", [ApiVersion(0, 54), None])
def test_the_layers_of_a_process_must_pad_for_an_older_one(monkeypatch, built_with):
    monkeypatch.setenv("PJRT_HUB_LAYERS", "validate, trace")
    with pytest.raises(FrameworkError, match=r"smaller structs than cpu, 0\.81") as caught:
        table(built_with)
    assert "hint: PJRT_HUB_LAYERS=validate, trace,pad" in str(caught.value)


def test_a_plugin_that_is_seen_through_the_padding_already_is_not_wrapped_again(monkeypatch):
    monkeypatch.setenv("PJRT_HUB_LAYERS", "validate, pad")
    assert table(ApiVersion(0, 54)) == 64
