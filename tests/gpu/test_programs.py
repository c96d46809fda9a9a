"""What programs do with a device: donation, layouts, collectives, host memory, exchange, errors."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from children import ADD, IS_LAYERED, PLATFORM

import pjrt_hub
from pjrt_hub import CompileOptions, ExecuteOptions
from pjrt_hub.errors import DataLossError, PjrtHubError

PROGRAMS = Path(__file__).parents[1] / "programs"
EIGHT = np.arange(8, dtype=np.float32)
#: A program with each collective on one device, where each result equals the argument.
COLLECTIVES = """func.func @main(%a: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>,
    tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0 = "stablehlo.all_reduce"(%a) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %sum = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) {replica_groups = dense<0> : tensor<1x1xi64>} : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64,
    replica_groups = dense<0> : tensor<1x1xi64>} : (tensor<8xf32>) -> tensor<8xf32>
  %2 = "stablehlo.all_to_all"(%a) {split_dimension = 0 : i64, concat_dimension = 0 : i64,
    split_count = 1 : i64, replica_groups = dense<0> : tensor<1x1xi64>}
    : (tensor<8xf32>) -> tensor<8xf32>
  %3 = "stablehlo.collective_permute"(%a) {source_target_pairs = dense<0> : tensor<1x2xi64>}
    : (tensor<8xf32>) -> tensor<8xf32>
  %4 = "stablehlo.reduce_scatter"(%a) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %most = stablehlo.maximum %x, %y : tensor<f32>
      stablehlo.return %most : tensor<f32>
    }) {scatter_dimension = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>}
    : (tensor<8xf32>) -> tensor<8xf32>
  return %0, %1, %2, %3, %4 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>,
    tensor<8xf32>
}"""
DONATE = """func.func @main(%a: tensor<1048576xf32> {tf.aliasing_output = 0 : i32})
    -> tensor<1048576xf32> {
  %0 = stablehlo.add %a, %a : tensor<1048576xf32>
  return %0 : tensor<1048576xf32>
}"""
COLUMNS = """func.func @main(%a: tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"})
    -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}) {
  %0 = stablehlo.add %a, %a : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}"""


def moved(name, kind):
    """A line of a program that moves %name to a memory, as %name_there."""
    return f"""%{name}_there = stablehlo.custom_call @annotate_device_placement(%{name}) {{
      has_side_effect = true, mhlo.frontend_attributes = {{_xla_buffer_placement = "{kind}"}}}}
      : (tensor<8xf32>) -> tensor<8xf32>"""


#: A program that keeps a value in the host's memory until it is needed again: a² + a.
OFFLOAD = f"""func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
  %square = stablehlo.multiply %a, %a : tensor<8xf32>
  {moved("square", "pinned_host")}
  %back = stablehlo.add %square_there, %square_there : tensor<8xf32>
  return %back : tensor<8xf32>
}}""".replace(
    "%back = stablehlo.add %square_there, %square_there",
    moved("square_there", "device") + "\n  %back = stablehlo.add %square_there_there, %a",
)
#: A program that takes a from the host's memory, and leaves 2a there.
STREAMED = f"""func.func @main(%a: tensor<8xf32> {{mhlo.memory_kind = "pinned_host"}})
    -> (tensor<8xf32> {{mhlo.memory_kind = "pinned_host"}}) {{
  {moved("a", "device")}
  %sum = stablehlo.add %a_there, %a_there : tensor<8xf32>
  {moved("sum", "pinned_host")}
  return %sum_there : tensor<8xf32>
}}"""


@pytest.mark.skipif(PLATFORM != "cuda" or IS_LAYERED, reason="compiles for GPUs")
@pytest.mark.parametrize(
    "program",
    [COLLECTIVES, DONATE, COLUMNS, OFFLOAD, STREAMED, PROGRAMS / "exchange.mlir"],
    ids=["collectives", "donate", "columns", "offload", "streamed", "exchange"],
)
def test_they_compile_without_a_device(program):
    """This shows that a failure on a device is no mistake in their text."""
    options = CompileOptions(flags={"xla_gpu_autotune_level": 0})
    exe = pjrt_hub.topology(PLATFORM, "H100", offline=True).compile(program, options)
    assert len(exe.serialize()) > 1000


def test_collectives_of_one_device(client):
    results = client.compile(COLLECTIVES)(EIGHT)
    assert [each.tolist() for each in results] == [EIGHT.tolist()] * 5


def test_a_donated_argument_is_gone(client):
    exe, buffer = client.compile(DONATE), client.buffer_from_host(np.ones(1 << 20, np.float32))
    result = exe(buffer)
    assert buffer.is_deleted
    assert (result.to_numpy() == 2).all()


@pytest.mark.gpu("addresses that a program shows")
def test_a_donated_argument_gives_its_memory(client):
    exe, buffer = client.compile(DONATE), client.buffer_from_host(np.ones(1 << 20, np.float32))
    address = buffer.unsafe_pointer()
    for _ in range(10):
        buffer = exe(buffer)
        assert buffer.unsafe_pointer() == address
    assert (buffer.to_numpy() == 1024).all()


def test_columns_first(client):
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    for buffer in (
        client.buffer_from_host(matrix, layout=(0, 1)),
        client.compile(COLUMNS)(client.buffer_from_host(matrix / 2, layout=(0, 1))),
    ):
        lying = np.zeros(6, np.float32)
        buffer.copy_raw_to_host(lying).wait(60)
        assert buffer.layout == (0, 1)
        assert lying.tolist() == [0, 3, 1, 4, 2, 5]
        assert buffer.tolist() == matrix.tolist()


@pytest.mark.gpu("memory to spare in the host's")
def test_a_value_waits_in_the_hosts_memory(client):
    assert client.compile(OFFLOAD)(EIGHT).tolist() == (EIGHT**2 + EIGHT).tolist()


@pytest.mark.gpu("memory to spare in the host's")
def test_arguments_and_results_in_the_hosts_memory(client, memories):
    exe = client.compile(STREAMED)
    assert exe.parameter_memory_kinds == exe.output_memory_kinds == ("pinned_host",)
    result = exe(client.buffer_from_host(EIGHT, memory=memories["pinned_host"]))
    assert result.memory is memories["pinned_host"]
    assert result.tolist() == (2 * EIGHT).tolist()


@pytest.mark.gpu("talks with the host")
def test_a_program_sends_and_receives(client):
    sent, ends = bytearray(), []

    def send(chunk, total, done):
        assert total == 4096
        sent.extend(chunk)
        ends.append(done)

    def receive(stream):
        stream.add_chunk(np.frombuffer(bytes(sent), np.float32) * 2)

    def refuse(chunk, total, done):
        raise ValueError("not today")

    exe = client.compile(PROGRAMS / "exchange.mlir")
    value = np.arange(1024, dtype=np.float32).reshape(8, 128)
    buffer = client.buffer_from_host(value, device=exe.devices[0])

    def run(send):
        options = ExecuteOptions(
            send_callbacks=[{1: send}],
            recv_callbacks=[{2: receive}],
            use_major_to_minor_data_layout_for_callbacks=True,
        )
        [[result]] = exe.execute([[buffer]], options)
        return result.to_numpy()

    assert np.array_equal(run(send), 2 * value)
    assert bytes(sent) == value.tobytes()
    assert ends[-1:] == [True]
    with pytest.raises(PjrtHubError, match="not today"):
        run(refuse)


def test_callbacks_of_results(client):
    add, came = client.compile(ADD), []
    all_came = threading.Semaphore(0)

    def told(event):
        came.append(event.done())
        all_came.release()

    a = client.buffer_from_host(EIGHT)
    results = [add(a, a) for _ in range(100)]
    for each in results:
        each.ready.add_done_callback(told)
    assert all(all_came.acquire(timeout=60) for _ in results)
    assert came == [True] * 100


def test_an_error_in_a_buffer_is_the_results(client):
    if not client.api.has("PJRT_Client_CreateErrorBuffer"):
        pytest.skip("the plugin is older than buffers of errors")
    failed = client.create_error_buffer(DataLossError("the disk is gone"), (8,))
    add = client.compile(ADD)
    for each in (failed, add(failed, client.buffer_from_host(EIGHT))):
        with pytest.raises(PjrtHubError, match="the disk is gone"):
            each.to_numpy()
    assert add(EIGHT, EIGHT).tolist() == (2 * EIGHT).tolist()
