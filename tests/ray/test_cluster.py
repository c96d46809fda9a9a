"""Ray on this machine: one executable, compiled here, runs over many inputs in its workers."""

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


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    """Ray with two workers, which start without a client and work for this process only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # Ray keeps its token there
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        ray.init(
            num_cpus=2,
            object_store_memory=100_000_000,
            include_dashboard=False,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
        )
        yield ray
        ray.shutdown()


@pytest.fixture(scope="module")
def client():
    with pjrt_hub.client("cpu", offline=True) as client:
        yield client


def test_one_executable_over_many_inputs(ray, client):
    @ray.remote
    def work(executable, number):
        array = np.full(1000, number, np.float32)
        buffer = executable.client.buffer_from_host(array)
        return os.getpid(), id(executable.client), executable(buffer, buffer)

    there = ray.put(client.compile(ADD))
    results = ray.get([work.remote(there, number) for number in range(200)], timeout=120)
    for number, (_, _, result) in enumerate(results):
        assert type(result) is np.ndarray
        assert result.tolist() == [2.0 * number] * 1000
    processes = {process for process, _, _ in results}
    assert os.getpid() not in processes
    # Each process makes one client, whatever the number of its tasks.
    assert len({(process, made) for process, made, _ in results}) == len(processes)


def test_buffers_travel_as_arrays_in_the_shared_memory_of_the_workers(ray, client):
    numbers = np.arange(100_000, dtype=np.float32)

    @ray.remote
    def look(array):
        return type(array).__name__, array.flags.owndata, array.sum(dtype=np.float64)

    there = ray.put(client.buffer_from_host(numbers))
    kind, owns, total = ray.get(look.remote(there), timeout=60)
    assert (kind, owns, total) == ("ndarray", False, numbers.sum(dtype=np.float64))


def test_an_actor_keeps_its_client(ray, client):
    @ray.remote
    class Runner:
        def __init__(self, executable):
            self.executable = executable

        def run(self, array):
            buffer = self.executable.client.buffer_from_host(array)
            return self.executable(buffer, buffer)

    runner = Runner.remote(client.compile(ADD))
    arrays = [np.full(1000, number, np.float32) for number in range(20)]
    results = ray.get([runner.run.remote(array) for array in arrays], timeout=60)
    assert [result.tolist() for result in results] == [[2.0 * n] * 1000 for n in range(20)]
