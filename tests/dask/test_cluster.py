"""A Dask cluster on this machine: one executable, compiled here, runs over many inputs there."""

from __future__ import annotations

import os

import numpy as np
import pytest

import pjrt_hub

ADD = """
func.func @main(%a: tensor<1000xf32>, %b: tensor<1000xf32>) -> tensor<1000xf32> {
  %c = stablehlo.add %a, %b : tensor<1000xf32>
  return %c : tensor<1000xf32>
}
"""

pytestmark = pytest.mark.filterwarnings("ignore:::distributed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two worker processes of two threads each, which start without a PJRT client."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=str(tmp_path_factory.mktemp("dask")),
        ) as local,
        Client(local) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def client():
    with pjrt_hub.client("cpu", offline=True) as client:
        yield client


@pytest.fixture(scope="module")
def executable(client):
    return client.compile(ADD)


def test_one_executable_over_many_inputs(cluster, executable):
    def work(executable, number):
        array = np.full(1000, number, np.float32)
        buffer = executable.client.buffer_from_host(array)
        return os.getpid(), id(executable.client), executable(buffer, buffer)

    there = cluster.scatter(executable, broadcast=True)
    futures = cluster.map(work, [there] * 200, range(200), pure=False)
    results = cluster.gather(futures)
    for number, (_, _, result) in enumerate(results):
        assert type(result) is np.ndarray
        assert result.tolist() == [2.0 * number] * 1000
    processes = {process for process, _, _ in results}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert len({(process, client) for process, client, _ in results}) == 2  # each has one client


def test_an_executable_travels_with_every_task(cluster, executable):
    def work(executable, array):
        buffer = executable.client.buffer_from_host(array)
        return executable(buffer, buffer)

    arrays = [np.full(1000, number, np.float32) for number in range(8)]
    futures = [cluster.submit(work, executable, array, pure=False) for array in arrays]
    assert [future.result().tolist() for future in futures] == [
        [2.0 * number] * 1000 for number in range(8)
    ]


def test_buffers_travel_as_arrays(cluster, client):
    numbers = np.arange(100_000, dtype=np.float32)
    buffer = client.buffer_from_host(numbers)
    arrived = cluster.submit(lambda array: (type(array).__name__, array), buffer, pure=False)
    kind, array = arrived.result()
    assert kind == "ndarray"
    assert array.tobytes() == numbers.tobytes()


def test_a_program_is_compiled_there(cluster):
    def work(program, options):
        import pjrt_hub

        with pjrt_hub.client("cpu", offline=True) as client:
            executable = client.compile(program, options)
            ones = client.buffer_from_host(np.ones(1000, np.float32))
            return executable(ones, ones).to_numpy().sum()

    options = pjrt_hub.CompileOptions(flags={"xla_cpu_enable_fast_math": True})
    future = cluster.submit(work, pjrt_hub.Program.of(ADD), options, pure=False)
    assert future.result() == 2000
