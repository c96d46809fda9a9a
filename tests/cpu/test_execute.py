"""Executing: right values for every number of arguments and results, donation, and no leaks."""

import numpy as np
import pytest
from children import promise
from texts import doubling

from pjrt_hub.errors import ClosedError

NUMBERS = np.arange(8, dtype=np.float32)


def test_one_result_is_a_buffer(executables, vector):
    result = executables("add")(vector(), vector(1))
    assert (result.shape, result.dtype) == ((8,), np.float32)
    assert result.tolist() == (2 * NUMBERS + 1).tolist()


def test_simplify(executables, vector):
    add = executables("add")
    [result] = add(vector(), vector(), simplify=False)
    assert result.tolist() == (2 * NUMBERS).tolist()
    assert add(vector(), vector(), simplify=True).shape == (8,)
    assert isinstance(executables("two_outputs").signature.outputs, tuple)


def test_no_arguments(executables):
    assert executables("no_args")().tolist() == list(range(8))
    assert [r.tolist() for [r] in executables("no_args").execute([[]])] == [list(range(8))]


def test_no_results(client, vector):
    executable = client.compile("func.func @main(%a: tensor<8xf32>) { return }")
    assert executable(vector()) == ()
    assert executable.execute([[vector()]]) == [()]


@pytest.mark.parametrize(("name", "count"), [("eight_to_eight", 8), ("thirty_to_thirty", 30)])
def test_many_to_many(executables, vector, name, count):
    arguments = [vector(start) for start in range(count)]
    results = executables(name)(*arguments)
    assert len(results) == count
    for index, result in enumerate(results):
        expected = 2 * NUMBERS + index + (index + 1) % count
        assert result.tolist() == expected.tolist()


@pytest.mark.parametrize("count", [64, 200, 255, 256, 257])
def test_more_arguments_than_fit_on_the_stack(client, count):
    """i32 argument n is n; result n is argument n doubled, and the last result is their sum."""
    names = [f"%a{index}" for index in range(count)]
    lines = [f"  %d{index} = stablehlo.add {n}, {n} : tensor<i32>" for index, n in enumerate(names)]
    lines += ["  %s0 = stablehlo.constant dense<0> : tensor<i32>"]
    lines += [
        f"  %s{index + 1} = stablehlo.add %s{index}, {name} : tensor<i32>"
        for index, name in enumerate(names)
    ]
    results = [f"%d{index}" for index in range(count)] + [f"%s{count}"]
    kinds = ", ".join(["tensor<i32>"] * len(results))
    head = ", ".join(f"{name}: tensor<i32>" for name in names)
    body = "\n".join([*lines, f"  return {', '.join(results)} : {kinds}"])
    executable = client.compile(f"func.func @main({head}) -> ({kinds}) {{\n{body}\n}}")
    outputs = executable(*(client.buffer_from_host(index) for index in range(count)))
    assert [output.item() for output in outputs] == [
        *range(0, 2 * count, 2),
        count * (count - 1) // 2,
    ]
    outputs = executable(*(np.array(index, np.int32) for index in range(count)))
    assert outputs[count - 1].item() == 2 * (count - 1)
    with pytest.raises(TypeError, match=f"takes {count} arguments, {count - 1} given"):
        executable(*(client.buffer_from_host(0) for _ in range(count - 1)))


def test_a_pending_argument_does_not_block(client):
    total = client.compile(doubling("256x256xf32"))
    pending, keep = promise(client)
    result = total(pending)
    assert "pending" in repr(result)
    pending.delete()
    keep()
    assert np.array_equal(result.to_numpy(), 2 * np.eye(256, dtype=np.float32))


def test_mlp(client, executables):
    random = np.random.default_rng(0)
    shapes = [(4, 64), (64, 32), (32,), (32, 10), (10,)]
    x, w1, b1, w2, b2 = arrays = [random.normal(size=s).astype(np.float32) for s in shapes]
    result = executables("mlp")(*map(client.buffer_from_host, arrays))
    expected = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    np.testing.assert_allclose(result.to_numpy(), expected, rtol=1e-5, atol=1e-5)


def test_donation_takes_the_argument(executables, vector):
    given, kept = vector(), vector(1)
    result = executables("donate")(given, kept)
    assert result.tolist() == (2 * NUMBERS + 1).tolist()
    assert (given.is_deleted, kept.is_deleted) == (True, False)
    for use in (
        lambda: executables("donate")(given, kept),
        lambda: executables("donate")(kept, given),
        lambda: executables("add")(given, kept),
        lambda: executables("add").execute([[kept, given]]),
    ):
        with pytest.raises(ClosedError, match=r"argument [01] is a buffer that was .* donated"):
            use()
    assert kept.tolist() == (NUMBERS + 1).tolist()


@pytest.mark.parametrize(("name", "links"), [("add", 64), ("donate", 1000)])
def test_a_chain_whose_links_are_gone_or_donated(executables, vector, name, links):
    value, step = vector(), vector()
    for _ in range(links):
        value = executables(name)(value, step)
    assert value.tolist() == ((links + 1) * NUMBERS).tolist()


def test_a_refused_call_leaves_its_arguments(executables, vector, client):
    given = vector()
    with pytest.raises(ValueError, match="argument 1"):
        executables("donate")(given, client.buffer_from_host(np.ones(9, np.float32)))
    assert executables("donate")(given, vector()).tolist() == (2 * NUMBERS).tolist()
