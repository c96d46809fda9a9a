"""Which table a framework is given that may be older than a plugin."""

from types import SimpleNamespace

import pytest

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import FrameworkError
from pjrt_hub.frameworks import padding

PLUGIN = SimpleNamespace(name="cpu", api_version=ApiVersion(0, 81), api=SimpleNamespace(address=64))


def table(built_with: ApiVersion | None) -> int:
    return padding.table(PLUGIN, "JAX 0.4.33", built_with, "pjrt_hub.jax")


@pytest.mark.parametrize(
    ("layers", "minor"), [("validate", 81), ("validate", 112), ("validate, pad", 54)]
)
def test_a_newer_framework_or_one_that_is_padded_for_has_the_plugin_s_own_table(
    monkeypatch, layers, minor
):
    monkeypatch.setenv("PJRT_HUB_LAYERS", layers)
    assert table(ApiVersion(0, minor)) == 64


@pytest.mark.parametrize("built_with", [ApiVersion(0, 54), None])
def test_the_layers_of_a_process_must_pad_for_an_older_one(monkeypatch, built_with):
    monkeypatch.setenv("PJRT_HUB_LAYERS", "validate, trace")
    with pytest.raises(FrameworkError, match=r"smaller structs than cpu, 0\.81") as caught:
        table(built_with)
    assert "hint: PJRT_HUB_LAYERS=validate, trace,pad" in str(caught.value)
