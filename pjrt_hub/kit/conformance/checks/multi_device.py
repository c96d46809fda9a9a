"""Programs on two devices: replicas, collectives, and programs that are split."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, equal, raise_as
from pjrt_hub.kit.conformance.programs import ADD, DOUBLE, NUMBERS
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.program.compile_options import CompileOptions


def _compile(subject: Subject, text: str, options: CompileOptions) -> int:
    with raise_as(Unsupported, "it compiles no such program:"):
        return subject.compile(text, options=options.serialize())


def _run_replicas(subject: Subject, text: str, *rows: np.ndarray[Any, Any]) -> list[list[float]]:
    """Return the output of each of two replicas, each run on its own row."""
    executable = _compile(subject, text, CompileOptions(num_replicas=2))
    devices = subject.call("PJRT_LoadedExecutable_AddressableDevices", executable=executable)
    placed = zip(rows, devices, strict=True)
    arguments = [[subject.put(row, device=device)] for row, device in placed]
    outputs, _ = subject.launch(executable, arguments)
    return [subject.get(row[0]).tolist() for row in outputs]


def _doubles_on(subject: Subject, executable: int, device: int, **how: Any) -> None:
    """Fail unless a loaded `DOUBLE` gives the exact values on a device."""
    row = [subject.put(NUMBERS, device=device)]
    ((output,),), _ = subject.launch(executable, [row], **how)
    equal(subject.get(output).tolist(), (2 * NUMBERS).tolist(), "twice the argument")
    equal(subject.call("PJRT_Buffer_Device", buffer=output), device, "the output's device")


@check(area="execute", needs="devices:2", number=80)
def argument_of_another_device(subject: Subject) -> None:
    """Run a + b for the first device on a buffer of the second -> refused."""
    executable = subject.compile(ADD)
    arguments = [subject.put(NUMBERS), subject.put(NUMBERS, device=subject.devices[1])]
    run = partial(subject.values, executable, arguments)
    subject.expect_refusal(run, "an argument on another device than the program's")


@check(area="execute", needs="devices:2", number=80)
def on_the_second_device(subject: Subject) -> None:
    """Compile for the second device and run there -> the exact values, on that device."""
    second = subject.devices[1]
    options = CompileOptions(device_ids=[[subject.describe(second, "Id")]])
    executable = subject.compile(DOUBLE, options=options.serialize())
    _doubles_on(subject, executable, second)


@check(area="execute", needs="devices:2", number=82)
def portable(subject: Subject) -> None:
    """Compile a portable program, run it on each device -> the exact values, on that device."""
    executable = _compile(subject, DOUBLE, CompileOptions(compile_portable_executable=True))
    for device in subject.devices[:2]:
        _doubles_on(subject, executable, device, execute_device=device)


@check(area="execute", needs="devices:2", number=87)
def two_replicas(subject: Subject) -> None:
    """Run two replicas on different values -> each has its own result, on its own device."""
    found = _run_replicas(subject, DOUBLE, NUMBERS, 10 * NUMBERS)
    equal(found, [(2 * NUMBERS).tolist(), (20 * NUMBERS).tolist()], "each replica's output")


@check(area="execute", needs="devices:2", number=88)
def all_reduce(subject: Subject) -> None:
    """Sum over two replicas -> the sum on both."""
    text = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %sum = "stablehlo.all_reduce"(%a) ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %0 = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %0 : tensor<f32>
      }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
      return %sum : tensor<4xf32>
    }"""
    found = _run_replicas(subject, text, NUMBERS, 10 * NUMBERS)
    equal(found, [(11 * NUMBERS).tolist()] * 2, "each replica's sum")


@check(area="execute", needs="devices:2", number=88)
def all_gather(subject: Subject) -> None:
    """Gather from two replicas -> both have both parts, in order."""
    text = """func.func @main(%a: tensor<4xf32>) -> tensor<8xf32> {
      %all = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64,
          replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<8xf32>
      return %all : tensor<8xf32>
    }"""
    found = _run_replicas(subject, text, NUMBERS, 10 * NUMBERS)
    both = [*NUMBERS.tolist(), *(10 * NUMBERS).tolist()]
    equal(found, [both] * 2, "what each replica has gathered")


@check(area="execute", needs="devices:2", number=88)
def all_to_all(subject: Subject) -> None:
    """Exchange halves between two replicas -> first halves on one, second halves on the other."""
    text = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %t = "stablehlo.all_to_all"(%a) {split_dimension = 0 : i64, concat_dimension = 0 : i64,
          split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
          : (tensor<4xf32>) -> tensor<4xf32>
      return %t : tensor<4xf32>
    }"""
    found = _run_replicas(subject, text, NUMBERS, 10 * NUMBERS)
    equal(found, [[1.0, 2.0, 10.0, 20.0], [3.0, 4.0, 30.0, 40.0]], "what each replica has")


@check(area="execute", needs="devices:2", number=88)
def reduce_scatter(subject: Subject) -> None:
    """Sum over two replicas and scatter -> the first half on one, the second on the other."""
    text = """func.func @main(%a: tensor<4xf32>) -> tensor<2xf32> {
      %part = "stablehlo.reduce_scatter"(%a) ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %0 = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %0 : tensor<f32>
      }) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
          : (tensor<4xf32>) -> tensor<2xf32>
      return %part : tensor<2xf32>
    }"""
    found = _run_replicas(subject, text, NUMBERS, 10 * NUMBERS)
    equal(found, [[11.0, 22.0], [33.0, 44.0]], "each replica's part of the sum")


@check(area="execute", needs="devices:2", number=88)
def collective_permute(subject: Subject) -> None:
    """Send from replica 0 to replica 1 -> zeros on 0, the values of 0 on 1."""
    text = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %moved = "stablehlo.collective_permute"(%a) {
          source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}
          : (tensor<4xf32>) -> tensor<4xf32>
      return %moved : tensor<4xf32>
    }"""
    found = _run_replicas(subject, text, NUMBERS, 10 * NUMBERS)
    equal(found, [[0.0] * 4, NUMBERS.tolist()], "what each replica has")


def _product(mesh: str, rows: str, whole: str) -> str:
    """Write a product; `rows` are the attributes of arrays split by rows, `whole` of the other."""
    return f"""{mesh}
    func.func @main(%a: tensor<4x8xf32> {rows}, %b: tensor<8x6xf32> {whole})
        -> (tensor<4x6xf32> {rows}) {{
      %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
          : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
      return %p : tensor<4x6xf32>
    }}"""


def _splits(subject: Subject, text: str, *, shardy: bool) -> None:
    """Fail unless a product split by rows over two devices has the bytes of one on one device."""
    a = np.arange(32, dtype=np.float32).reshape(4, 8)
    b = np.arange(48, dtype=np.float32).reshape(8, 6) % 5
    arguments = [subject.put(a), subject.put(b)]
    (alone,) = subject.execute(subject.compile(_product("", "", "")), arguments)
    options = CompileOptions(
        num_partitions=2, use_spmd_partitioning=True, use_shardy_partitioner=shardy
    )
    executable = _compile(subject, text, options)
    plain = subject.executable(executable)
    (shape,) = subject.api.call("PJRT_Executable_OutputDimensions", executable=plain)
    if shape == (4, 6):
        raise Unsupported("it heeds no such sharding: each device would give the whole product")
    devices = subject.call("PJRT_LoadedExecutable_AddressableDevices", executable=executable)
    rows = [
        [subject.put(part, device=device), subject.put(b, device=device)]
        for part, device in zip((a[:2], a[2:]), devices, strict=True)
    ]
    outputs, _ = subject.launch(executable, rows)
    parts = [subject.get(row[0]) for row in outputs]
    equal([each.shape for each in parts], [(2, 6), (2, 6)], "the shapes of the parts")
    found, wanted = np.concatenate(parts), subject.get(alone)
    equal(found.tobytes().hex(), wanted.tobytes().hex(), "the bytes of both parts")


@check(area="execute", needs="devices:2", number=89)
def split_by_shardy(subject: Subject) -> None:
    """Run a product whose rows Shardy splits over two devices -> the bytes of one device."""
    mesh = 'sdy.mesh @mesh = <["x"=2]>'
    rows = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'
    whole = "{sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}"
    _splits(subject, _product(mesh, rows, whole), shardy=True)


@check(area="execute", needs="devices:2", number=89)
def split_by_annotation(subject: Subject) -> None:
    """Run a product split over two devices by annotations -> the same bytes as on one device."""
    rows, whole = '{mhlo.sharding = "{devices=[2,1]<=[2]}"}', '{mhlo.sharding = "{replicated}"}'
    _splits(subject, _product("", rows, whole), shardy=False)
