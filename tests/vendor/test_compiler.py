"""Vendors' compilers: Python functions that they call in their work, and programs over slices."""

from functools import partial
from pathlib import Path

import pytest
from children import in_child, refusal

import pjrt_hub
from pjrt_hub import CompileOptions, errors
from pjrt_hub.running.capi import wire
from pjrt_hub.running.extensions import custom_partitioner
from pjrt_hub.running.extensions.multi_slice import (
    MultiSliceConfig,
    device_of_megascale_id,
    megascale_id,
)
from pjrt_hub.running.extensions.xla_transform import XlaTransform

pytestmark = pytest.mark.usefixtures("without_hardware")

TARGETS = {"cuda12": "H100", "cuda13": "H100", "tpu": "v5e:2x2"}

ADD = """func.func @main(%a: tensor<8x128xf32>) -> tensor<8x128xf32> {
  %0 = stablehlo.add %a, %a : tensor<8x128xf32>
  return %0 : tensor<8x128xf32> }"""


def describe(name, **options):
    return pjrt_hub.topology(name, TARGETS[name], options=options, offline=True)


def change_at(message, path, change):
    """A copy of a message, with the fields changed at a path of field numbers."""
    out = b""
    for number, value in wire.fields(memoryview(message)):
        if isinstance(value, int):
            out += wire.varint(number, value)
            continue
        data = bytes(value)
        if number == path[0]:
            data = change_at(data, path[1:], change) if path[1:] else change(data)
        out += wire.length_delimited(number, data)
    return out


def multiply(module):
    # The path leads to the computations of a module, their instructions, and their opcodes.
    return change_at(module, (3, 2, 2), lambda opcode: opcode.replace(b"add", b"multiply"))


@pytest.mark.parametrize("name", ["cuda13", "tpu"])
@in_child
def test_a_transform_sees_and_changes_modules(name):
    topology, seen, stages = describe(name), [], []
    api = topology.api
    with XlaTransform(api, "look", seen.append):
        topology.compile(ADD)
    assert [b"add" in module for module in seen] == [True]
    topology.compile(ADD)
    assert len(seen) == 1
    with XlaTransform(api, "change", multiply) as transform:
        assert b"multiply" in topology.compile(ADD).optimized_program().code
        assert [transform.clear(), transform.clear()] == [True, False]
    assert b"multiply" not in topology.compile(ADD).optimized_program().code
    XlaTransform(api, "late", lambda module: stages.append(1), "post_scheduler")
    topology.compile(ADD)  # the transform is still there as the process ends
    assert stages


@pytest.mark.parametrize("name", ["cuda13", "tpu"])
@in_child
def test_a_transform_that_fails(name):
    topology = describe(name)
    api = topology.api

    def fail(module):
        raise ValueError("no thanks")

    with XlaTransform(api, "twice", fail), pytest.raises(errors.AlreadyExistsError):
        XlaTransform(api, "twice", fail)
    for function, said in (
        (fail, r"tried: ValueError: no thanks \(test_compiler.py:"),
        (lambda module: 3, "returned int, neither bytes nor None"),
        (lambda module: b"junk", "parse"),
    ):
        with XlaTransform(api, "tried", function), pytest.raises(errors.PjrtError, match=said):
            topology.compile(ADD)
    for given in (("", fail), ("x", None), ("x", fail, "never")):
        with pytest.raises(TypeError if None in given else ValueError):
            XlaTransform(api, *given)


CALL = """module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func @main(%a: tensor<8x128xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"})
      -> (tensor<8x128xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"}) {
    %0 = stablehlo.custom_call @NAME(%a) {backend_config = "hello"}
        : (tensor<8x128xf32>) -> tensor<8x128xf32>
    return %0 : tensor<8x128xf32> } }"""
HALF = """func.func @main(%a: tensor<4x128xf32>) -> tensor<4x128xf32> {
  %0 = stablehlo.multiply %a, %a : tensor<4x128xf32>
  return %0 : tensor<4x128xf32> }"""


class Squares:
    def __init__(self):
        self.asked = []

    def partition(self, arguments, result, config):
        same = arguments[0].sharding == result.sharding
        self.asked.append((len(arguments), same, config.decode()))
        return HALF, [arguments[0].sharding], result.sharding

    def infer_sharding(self, arguments, shape, config):
        return arguments[0].sharding

    def propagate_user_sharding(self, shape, sharding, config):
        return sharding


class Fails(Squares):
    def partition(self, arguments, result, config):
        raise ValueError("no part")


class Few(Squares):
    def partition(self, arguments, result, config):
        return HALF, [], result.sharding


@pytest.mark.parametrize("name", ["cuda12", "cuda13"])
@in_child
def test_a_custom_call_is_partitioned_in_python(name):
    """The call is gone, or else the compiler would miss its handler."""
    topology, squares = describe(name, topology="1x1x2"), Squares()
    options = CompileOptions(num_partitions=2, use_spmd_partitioning=True)
    register = partial(custom_partitioner.register, topology.api)
    for target, partitioner in (("squares", squares), ("fails", Fails()), ("few", Few())):
        register(target, partitioner)
    executable = topology.compile(CALL.replace("NAME", "squares"), options)
    assert squares.asked == [(1, True, "hello")]
    assert executable.num_partitions == 2
    with pytest.raises(errors.PjrtError, match="fails: ValueError: no part"):
        topology.compile(CALL.replace("NAME", "fails"), options)
    with pytest.raises(errors.PjrtError, match="it gave 0 shardings for 1 arguments"):
        topology.compile(CALL.replace("NAME", "few"), options)
    for wrong, target, partitioner in (
        (errors.AlreadyExistsError, "few", Few()),
        (ValueError, "", Few()),
        (TypeError, "x", print),
    ):
        with pytest.raises(wrong):
            register(target, partitioner)


@pytest.mark.parametrize(
    ("name", "expected"), [("cuda12", "UnsupportedByPluginError"), ("cuda13", None)]
)
@in_child
def test_batches_are_for_newer_plugins(name, expected):
    api = describe(name, topology="1x1x2").api
    refused = refusal(lambda: custom_partitioner.register_batch_partitionable(api, "batched"))
    assert (refused and refused["error"]) == expected


ADD_FILE = Path(__file__).parents[1] / "programs" / "add.mlir"


def slices(**options):
    return pjrt_hub.topology("tpu", "v5e:2x2", options=options, offline=True)


def compile(config, num_replicas):
    config = config.serialize()
    options = CompileOptions(num_replicas=num_replicas, serialized_multi_slice_config=config)
    return slices().compile(ADD_FILE, options)


@in_child
def test_a_config_ahead_of_time():
    topology = slices()
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
    config = MultiSliceConfig(slices(), 2)
    assert compile(config, 2).compile_options.device_ids == ((100000,), (200000,))
    assert compile(config, 8).compile_options.num_replicas == 8
    uneven, too_many = [refusal(partial(compile, config, count)) for count in (3, 16)]
    assert uneven["error"] == too_many["error"] == "InvalidArgumentError"
    assert "divisible by the number of slices" in uneven["text"]
    api = slices().api
    assert megascale_id(api, 1, 2) == 200002
    assert device_of_megascale_id(api, 200002) == (1, 2)


@in_child
def test_what_would_end_the_process():
    """With a topology of several slices, 0.116 would end in a segmentation fault."""
    topology = slices()
    junk = CompileOptions(serialized_multi_slice_config=b"junk")
    several, none, too_many, boolean, told = [
        refusal(call)
        for call in (
            lambda: MultiSliceConfig(slices(num_slices=2), 1),
            lambda: MultiSliceConfig(topology, 0),
            lambda: MultiSliceConfig(topology, 2**31 - 1),
            lambda: MultiSliceConfig(topology, True),
            lambda: topology.compile(b"func.func @main() { return }", junk),
        )
    ]
    assert several["error"] == none["error"] == too_many["error"] == "ValueError"
    assert (boolean["error"], told["error"]) == ("TypeError", "InvalidArgumentError")
    assert "is of several slices already" in several["text"]
    assert "must be from 1 to 16384" in too_many["text"]


@in_child
def test_a_plugin_without_slices():
    topology = pjrt_hub.topology("cuda13", "H100", offline=True)
    refused = refusal(lambda: MultiSliceConfig(topology, 1))
    assert refused["error"] == "UnsupportedByPluginError"
