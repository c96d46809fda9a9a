"""Programs over several TPU slices, none of which is here, by libtpu itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from children import in_child, refusal

import pjrt_hub
from pjrt_hub import CompileOptions
from pjrt_hub.running.extensions.multi_slice import (
    MultiSliceConfig,
    device_of_megascale_id,
    megascale_id,
)

PROGRAMS = Path(__file__).parents[1] / "programs"

pytestmark = pytest.mark.skipif(
    any(Path(device).exists() for device in ("/dev/accel0", "/dev/vfio")),
    reason="the hardware is here",
)


def describe(**options):
    return pjrt_hub.topology("tpu", "v5e:2x2", options=options, offline=True)


def compile(config, num_replicas):
    config = config.serialize()
    options = CompileOptions(num_replicas=num_replicas, serialized_multi_slice_config=config)
    return describe().compile(PROGRAMS / "add.mlir", options)


@in_child
def test_a_config_ahead_of_time():
    topology = describe()
    one = MultiSliceConfig(topology, 1)
    for count in (1, 2, 4):
        config = MultiSliceConfig(topology, count)
        assert (config.num_slices, config.slice_id) == (count, 0)
        assert config.num_devices_per_slice == dict.fromkeys(range(count), 4)
        assert repr(config) == f"<MultiSliceConfig slice 0 of {count}>"
        assert (config.serialize() == one.serialize()) is (count == 1)


@in_child
def test_compiling_for_slices():
    """Devices are numbered by slice; every slice has a part of the replicas."""
    config = MultiSliceConfig(describe(), 2)
    two, all_devices, uneven, too_many = [
        compile(config, 2).compile_options.device_ids,
        compile(config, 8).compile_options.num_replicas,
        refusal(lambda: compile(config, 3)),
        refusal(lambda: compile(config, 16)),
    ]
    assert two == ((100000,), (200000,))
    assert all_devices == 8
    assert uneven["error"] == too_many["error"] == "InvalidArgumentError"
    assert "divisible by the number of slices" in uneven["text"]


@in_child
def test_the_number_of_a_device_among_slices():
    api = describe().api
    assert megascale_id(api, 1, 2) == 200002
    assert device_of_megascale_id(api, 200002) == (1, 2)


@in_child
def test_what_would_end_the_process():
    """A topology of several slices is a segmentation fault of 0.116."""
    several = describe(num_slices=2)
    topology = describe()
    refused = [
        refusal(call)
        for call in (
            lambda: MultiSliceConfig(several, 1),
            lambda: MultiSliceConfig(topology, 0),
            lambda: MultiSliceConfig(topology, 2**31 - 1),
            lambda: MultiSliceConfig(topology, True),
            lambda: topology.compile(
                b"func.func @main() { return }",
                CompileOptions(serialized_multi_slice_config=b"junk"),
            ),
        )
    ]
    assert [each["error"] for each in refused] == [
        *["ValueError"] * 3,
        "TypeError",
        "InvalidArgumentError",
    ]
    assert "is of several slices already" in refused[0]["text"]
    assert "must be from 1 to 16384" in refused[2]["text"]


@in_child
def test_a_plugin_without_slices():

    topology = pjrt_hub.topology("cuda13", "H100", offline=True)
    refused = refusal(lambda: MultiSliceConfig(topology, 1))
    assert refused["error"] == "UnsupportedByPluginError"
