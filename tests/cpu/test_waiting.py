"""What users of arrays and futures write: await, block_until_ready, indexes and formats."""

import asyncio

import numpy as np
import pytest
from children import ones, start

import pjrt_hub
from pjrt_hub import errors


def test_a_buffer_is_awaited(client):
    async def run():
        result = start(client, 500)
        assert await result is result
        return result

    result = asyncio.run(run())
    assert result.ready.is_ready()


def test_a_deleted_buffer_is_not_awaited(client):
    buffer = ones(client)
    buffer.delete()

    async def run():
        await buffer

    with pytest.raises(errors.ClosedError):
        asyncio.run(run())
    with pytest.raises(errors.ClosedError):
        pjrt_hub.block_until_ready([buffer])


def test_all_of_a_value_is_waited_for(client):
    class Other:
        waited = 0

        def block_until_ready(self):
            self.waited += 1

    results = [start(client, 300) for _ in range(3)]
    other = Other()
    value = {"a": results[0], "b": [(results[1],), {3, "text"}], "c": results[2].ready, "d": other}
    assert pjrt_hub.block_until_ready(value) is value
    assert [each.ready.is_ready() for each in results] == [True] * 3
    assert other.waited == 1


def test_a_part_of_the_hosts_copy(client):
    buffer = client.buffer_from_host(np.arange(6, dtype=np.int32).reshape(2, 3))
    assert buffer[1, 2] == 5
    assert buffer[:, 0].tolist() == [0, 3]
    assert [row.tolist() for row in buffer] == [[0, 1, 2], [3, 4, 5]]
    assert buffer.nbytes == 24
    with pytest.raises(IndexError):
        buffer[2]
    with pytest.raises(TypeError, match="0-d"):
        iter(client.buffer_from_host(np.float32(1)))


def test_a_scalar_is_formatted(client):
    assert f"{client.buffer_from_host(np.float32(2 / 3)):.3f}" == "0.667"
    assert f"{client.buffer_from_host(np.int32(7)):03d}" == "007"
    buffer = ones(client)
    assert f"{buffer}" == str(buffer)
    with pytest.raises(ValueError, match="size 1"):
        f"{buffer:.3f}"


def test_a_memory_by_its_kind(client):
    kind = client.memories[0].kind
    assert client.memory(kind) is client.memories[0]
    with pytest.raises(ValueError, match=f"has no memory 'pinned'(.|\n)*it has .*{kind}"):
        client.memory("pinned")


def test_a_program_is_printed_by_its_head():
    program = pjrt_hub.Program("module {\n" + "  line\n" * 30 + "}\n", "mlir")
    assert repr(program) == f"<Program mlir, {len(program.code)} bytes, from the program>"
    lines = str(program).splitlines()
    assert lines[:2] == ["module {", "  line"]
    assert (len(lines), lines[-1]) == (21, "... 13 more lines")
    short = pjrt_hub.Program.of("module {\n}")
    assert str(short) == "module {\n}"
