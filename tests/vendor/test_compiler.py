"""Python functions that vendors' compilers call in the middle of their work."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg", "/dev/accel0")),
    reason="the hardware is here",
)

TARGETS = {"cuda12": "H100", "cuda13": "H100", "tpu": "v5e:2x2"}

TRANSFORM = """
from pjrt_hub.running.capi import wire
from pjrt_hub.running.extensions.xla_transform import XlaTransform
described = pjrt_hub.topology(NAME, TARGET, offline=True)
api = described.api
ADD = '''func.func @main(%a: tensor<8x128xf32>) -> tensor<8x128xf32> {
  %0 = stablehlo.add %a, %a : tensor<8x128xf32>
  return %0 : tensor<8x128xf32> }'''

def compile():
    return described.compile(ADD)

def changed(message, path, change):
    \"\"\"A message with the fields at a path of numbers changed.\"\"\"
    out = b""
    for number, value in wire.fields(memoryview(message)):
        if isinstance(value, int):
            out += wire.varint(number, value)
            continue
        data = bytes(value)
        if number == path[0]:
            data = changed(data, path[1:], change) if path[1:] else change(data)
        out += wire.length_delimited(number, data)
    return out

def multiplied(module):
    # HloModuleProto.computations, HloComputationProto.instructions, HloInstructionProto.opcode
    return changed(module, (3, 2, 2), lambda opcode: opcode.replace(b"add", b"multiply"))

def hlo(executable):
    return executable.optimized_program()[0]
"""


@pytest.fixture(scope="module")
def ask(child):
    """Runs code in a child."""

    def ask(name, prelude, code):
        return child(f"NAME, TARGET = {name!r}, {TARGETS[name]!r}\n" + prelude + code)

    return ask


@pytest.mark.parametrize("name", ["cuda13", "tpu"])
def test_a_transform_sees_and_changes_modules(ask, name):
    seen, after, late, product, stages = ask(
        name,
        TRANSFORM,
        """
seen = []
with XlaTransform(api, "look", seen.append):
    compile()
before = len(seen)
compile()
with XlaTransform(api, "change", multiplied) as transform:
    product = hlo(compile())
    ended = [transform.clear(), transform.clear()]
sum_ = hlo(compile())
XlaTransform(api, "late", lambda module: stages.append(1), "post_scheduler")
stages = []
compile()  # and the process ends with it
print(json.dumps([[before, all(b"add" in module for module in seen)], len(seen) - before, ended,
                  [b"multiply" in product, b"multiply" in sum_], len(stages) > 0]))
""",
    )
    assert seen == [1, True]
    assert after == 0
    assert late == [True, False]
    assert product == [True, False]
    assert stages


@pytest.mark.parametrize("name", ["cuda13", "tpu"])
def test_a_transform_that_fails(ask, name):
    raised, returned, junk, again, wrong = ask(
        name,
        TRANSFORM,
        """
def tried(function):
    with XlaTransform(api, "tried", function):
        return refusal(compile)

def fail(module):
    raise ValueError("no thanks")

with XlaTransform(api, "twice", fail):
    again = refusal(lambda: XlaTransform(api, "twice", fail))
print(json.dumps([tried(fail), tried(lambda module: 3), tried(lambda module: b"junk"), again, [
    refusal(call)["error"] for call in (
        lambda: XlaTransform(api, "", fail), lambda: XlaTransform(api, "x", None),
        lambda: XlaTransform(api, "x", fail, "never"))]]))
""",
    )
    assert "tried: ValueError: no thanks (<string>:" in raised["text"]
    assert "returned int, neither bytes nor None" in returned["text"]
    assert "parse" in junk["text"]
    assert again["error"] == "AlreadyExistsError"
    assert wrong == ["ValueError", "TypeError", "ValueError"]


PARTITION = """
from pjrt_hub.running.extensions import custom_partitioner
described = pjrt_hub.topology(NAME, TARGET, options={"topology": "1x1x2"}, offline=True)
api = described.api
CALL = '''module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func @main(%a: tensor<8x128xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"})
      -> (tensor<8x128xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"}) {
    %0 = stablehlo.custom_call @NAME(%a) {backend_config = "hello"}
        : (tensor<8x128xf32>) -> tensor<8x128xf32>
    return %0 : tensor<8x128xf32> } }'''
HALF = '''func.func @main(%a: tensor<4x128xf32>) -> tensor<4x128xf32> {
  %0 = stablehlo.multiply %a, %a : tensor<4x128xf32>
  return %0 : tensor<4x128xf32> }'''
asked = []

class Squares:
    def partition(self, arguments, result, config):
        asked.append((len(arguments), arguments[0].sharding == result.sharding, config.decode()))
        return HALF, [arguments[0].sharding], result.sharding
    def infer_sharding(self, arguments, shape, config):
        return arguments[0].sharding
    def propagate_user_sharding(self, shape, sharding, config):
        return sharding

def compile(target):
    options = pjrt_hub.CompileOptions(num_partitions=2, use_spmd_partitioning=True)
    return described.compile(CALL.replace("NAME", target), options)
"""


@pytest.mark.parametrize("name", ["cuda12", "cuda13"])
def test_a_custom_call_is_partitioned_in_python(ask, name):
    """The call is gone: were it still there, the compiler would miss its handler."""
    asked, partitions, raised, few, again, lacking = ask(
        name,
        PARTITION,
        """
class Fails(Squares):
    def partition(self, arguments, result, config):
        raise ValueError("no part")
class Few(Squares):
    def partition(self, arguments, result, config):
        return HALF, [], result.sharding
for target, partitioner in (("squares", Squares()), ("fails", Fails()), ("few", Few())):
    custom_partitioner.register(api, target, partitioner)
executable = compile("squares")
print(json.dumps([
    asked, executable.num_partitions, refusal(lambda: compile("fails")),
    refusal(lambda: compile("few")),
    refusal(lambda: custom_partitioner.register(api, "few", Few()))["error"],
    [refusal(lambda: custom_partitioner.register(api, "", Few()))["error"],
     refusal(lambda: custom_partitioner.register(api, "x", print))["error"]]]))
""",
    )
    assert asked == [[1, True, "hello"]]
    assert partitions == 2
    assert "fails: ValueError: no part" in raised["text"]
    assert "it gave 0 shardings for 1 arguments" in few["text"]
    assert again == "AlreadyExistsError"
    assert lacking == ["ValueError", "TypeError"]


@pytest.mark.parametrize(
    ("name", "expected"), [("cuda12", "UnsupportedByPluginError"), ("cuda13", None)]
)
def test_batches_are_for_newer_plugins(ask, name, expected):
    refused = ask(
        name,
        PARTITION,
        """
refused = refusal(lambda: custom_partitioner.register_batch_partitionable(api, "batched"))
print(json.dumps(refused and refused["error"]))
""",
    )
    assert refused == expected
