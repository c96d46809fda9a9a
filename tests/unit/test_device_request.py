"""What PJRT_HUB_TORCH and PJRT_HUB_TORCH_XLA ask for."""

import re

import pytest

from pjrt_hub.frameworks.request import DeviceRequest


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
    assert DeviceRequest.read(text, "PJRT_HUB_TORCH") == wanted


@pytest.mark.parametrize("text", ["cpu;cpu_device_count", "cpu;=4"])
def test_a_malformed_variable_says_how_it_is_written(text):
    message = re.escape(repr(text.partition(";")[2])) + " is not an option(?s:.*)hint: write"
    with pytest.raises(ValueError, match=message):
        DeviceRequest.read(text, "PJRT_HUB_TORCH")
