"""Programs over several TPU slices, none of which is here, by libtpu itself."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "programs"

PREPARE = f"""
from pjrt_hub import CompileOptions
from pjrt_hub.running.extensions.multi_slice import (
    MegascaleContext,
    MultiSliceConfig,
    device_of_megascale_id,
    megascale_id,
)
topology = pjrt_hub.topology("tpu", "v5e:2x2", offline=True)

def compile(config, num_replicas):
    options = CompileOptions(
        num_replicas=num_replicas, serialized_multi_slice_config=config.serialize())
    return topology.compile({str(PROGRAMS / "add.mlir")!r}, options)
"""

pytestmark = pytest.mark.skipif(
    any(Path(device).exists() for device in ("/dev/accel0", "/dev/vfio")),
    reason="the hardware is here",
)


@pytest.fixture(scope="module")
def ask(child):
    """Runs code in a child that has loaded libtpu."""
    return lambda code: child(PREPARE + code)


def test_a_config_ahead_of_time(ask):
    told = ask("""
configs = [MultiSliceConfig(topology, count) for count in (1, 2, 4)]
print(json.dumps([[each.num_slices, each.slice_id, each.num_devices_per_slice, repr(each),
                   configs[0].serialize() != each.serialize()] for each in configs]))
""")
    assert told == [
        [1, 0, {"0": 4}, "<MultiSliceConfig slice 0 of 1>", False],
        [2, 0, {"0": 4, "1": 4}, "<MultiSliceConfig slice 0 of 2>", True],
        [4, 0, {str(n): 4 for n in range(4)}, "<MultiSliceConfig slice 0 of 4>", True],
    ]


def test_compiling_for_slices(ask):
    """Devices are numbered by slice; every slice has a part of the replicas."""
    two, all_devices, uneven, too_many = ask("""
config = MultiSliceConfig(topology, 2)
print(json.dumps([compile(config, 2).compile_options.device_ids,
                  compile(config, 8).compile_options.num_replicas,
                  refusal(lambda: compile(config, 3)), refusal(lambda: compile(config, 16))]))
""")
    assert two == [[100000], [200000]]
    assert all_devices == 8
    assert uneven["error"] == too_many["error"] == "InvalidArgumentError"
    assert "divisible by the number of slices" in uneven["text"]


def test_the_part_of_a_process(ask):
    config, after, ids, port, unblock, there = ask("""
context = MegascaleContext(topology.api)
config = MultiSliceConfig.of_slice(context, topology, 3, 2)
states = [refusal(lambda: context.port), refusal(lambda: context.unblock_pending_work(1, 10))]
del context
print(json.dumps([[config.slice_id, config.num_slices], config.num_devices_per_slice,
    megascale_id(topology.api, 1, 2), *states, device_of_megascale_id(topology.api, 200002)]))
""")
    assert config == [2, 3]
    assert after == {"0": 4, "1": 4, "2": 4}
    assert ids == 200002
    assert there == [1, 2]
    assert port["error"] == unblock["error"] == "FailedPreconditionError"


def test_what_would_end_the_process(ask):
    """A topology of several slices and no context at all are segmentation faults of 0.116."""
    refused = ask("""
several = pjrt_hub.topology("tpu", "v5e:2x2", options={"num_slices": 2}, offline=True)
context = MegascaleContext(topology.api)
part = MultiSliceConfig.of_slice
print(json.dumps([refusal(call) for call in (
    lambda: MultiSliceConfig(several, 1), lambda: part(context, several, 2, 0),
    lambda: MultiSliceConfig(topology, 0), lambda: MultiSliceConfig(topology, 2**31 - 1),
    lambda: MultiSliceConfig(topology, True), lambda: part(context, topology, 2, 2),
    lambda: part(context, topology, 2, 0, host_id=-1),
    lambda: part(context, topology, 2, 0, dcn_topology=b"\\xff"),
    lambda: part(None, topology, 2, 0),
    lambda: topology.compile(b"func.func @main() { return }",
                             CompileOptions(serialized_multi_slice_config=b"junk")))]))
""")
    assert [each["error"] for each in refused] == [
        *["ValueError"] * 4,
        "TypeError",
        *["ValueError"] * 2,
        "PluginInternalError",
        "TypeError",
        "InvalidArgumentError",
    ]
    assert "is of several slices already" in refused[0]["text"]
    assert "must be from 1 to 16384" in refused[3]["text"]


def test_a_plugin_without_slices(child):
    refused = child("""
from pjrt_hub.running.extensions.multi_slice import MegascaleContext, MultiSliceConfig
topology = pjrt_hub.topology("cuda13", "H100", offline=True)
print(json.dumps([refusal(lambda: MultiSliceConfig(topology, 1)),
                  refusal(lambda: MegascaleContext(topology.api))]))
""")
    assert {each["error"] for each in refused} == {"UnsupportedByPluginError"}
