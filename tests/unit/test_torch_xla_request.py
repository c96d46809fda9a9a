"""What PJRT_HUB_TORCH_XLA asks for, and what plugins are called in torch_xla; without torch_xla."""

import re

import pytest

from pjrt_hub.errors import FrameworkError
from pjrt_hub.frameworks.torch_xla import request


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", (None, {})),
        ("cuda", ("cuda", {})),
        (" cpu ; cpu_device_count = 4;", ("cpu", {"cpu_device_count": "4"})),
        (";cpu_device_count=4", (None, {"cpu_device_count": "4"})),
    ],
)
def test_the_variable_is_read(text, wanted):
    assert request.read(text) == wanted


@pytest.mark.parametrize("text", ["cpu;cpu_device_count", "cpu;=4"])
def test_a_malformed_variable_says_how_it_is_written(text):
    message = re.escape(repr(text.partition(";")[2])) + " is not an option(?s:.*)hint: write"
    with pytest.raises(ValueError, match=message):
        request.read(text)


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
    assert request.device_type(platform, name, ()) == wanted


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
        request.device_type("cpu", name, {"HUBX"})
