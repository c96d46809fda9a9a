"""What plugins are called in torch_xla, without torch_xla."""

import pytest

from pjrt_hub.errors import FrameworkError
from pjrt_hub.frameworks.torch_xla.framework import name_in_torch_xla


@pytest.mark.parametrize(
    ("platform", "name", "wanted"),
    [
        ("cpu", None, "HUBCPU"),
        (None, None, "HUBPLUGIN"),
        ("vendor:my_chip", None, "HUBMYCHIP"),
        ("cuda,cpu", None, "HUBCUDA"),
        ("/opt/lib/pjrt_plugin_other.so", None, "HUBOTHER"),
        ("cpu", "mine2", "MINE2"),
    ],
)
def test_a_device_type_has_no_underscore(platform, name, wanted):
    assert name_in_torch_xla(platform, name, ()) == wanted


@pytest.mark.parametrize(
    ("name", "error", "why"),
    [
        *((name, ValueError, "is not a device type") for name in ("my_cpu", "", "2cpu", "a" * 33)),
        ("tpu", FrameworkError, "built into"),
        ("HUBX", FrameworkError, "another plugin's"),
    ],
)
def test_what_torch_xla_would_cut_and_taken_names_are_refused(name, error, why):
    with pytest.raises(error, match=why):
        name_in_torch_xla("cpu", name, {"HUBX"})
