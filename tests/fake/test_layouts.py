"""The layout that a buffer really has, where the plugin's compiler or a host says another one."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from stubbed import ONE_TO_FOUR, begin, func, raises, replace, with_stub

from pjrt_hub import errors
from pjrt_hub.running.buffer.buffer import HostBufferSemantics
from pjrt_hub.running.capi import irregular

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def layout_of(array):
    return {(12, 4): (1, 0), (4, 8): (0, 1)}[array.strides]


def matrix(client, words=""):
    return client.compile(func("matrix " + words))


def read_everywhere(buffer, values, layout):
    assert buffer.to_numpy().tolist() == np.asarray(buffer).tolist() == values.tolist()
    assert buffer.layout == layout_of(buffer.to_numpy()) == layout, buffer.layout
    for wish in ((0, 1), (1, 0)):
        array = buffer.to_numpy(layout=wish)
        assert (array.tolist(), layout_of(array)) == (values.tolist(), wish)
    assert str(buffer) == str(buffer.to_numpy())
    raw = np.zeros(6, np.float32)
    buffer.copy_raw_to_host(raw).wait()
    assert raw.tolist() == values.ravel("C" if layout == (1, 0) else "F").tolist()
    if buffer.client.platform_name == "cpu":
        assert memoryview(buffer).tolist() == values.tolist()
        assert layout_of(memoryview(buffer)) == layout
        assert np.from_dlpack(buffer).tolist() == values.tolist()


#: Words about the layout that the compiler tells and the buffers get, and the buffers' layout.
WORDS = [
    ("", (1, 0)),
    ("tells_columns", (1, 0)),
    ("gives_columns", (0, 1)),
    ("tells_columns gives_columns", (0, 1)),
]


@pytest.mark.parametrize("platform", ["cpu", "other"])
@pytest.mark.parametrize(("words", "layout"), WORDS)
@with_stub('PLATFORM="{platform}"')
def test_a_result_is_read_in_the_layout_of_its_buffer(client, platform, words, layout):
    exe, argument = matrix(client, words), client.buffer_from_host(MATRIX)
    calls = (
        lambda: exe(argument),
        lambda: exe(MATRIX),
        exe.bind(argument),
        lambda: exe.execute([[argument]])[0][0],
        lambda: exe.execute_on([argument], client.devices[0])[0][0],
    )
    for call in calls:
        for _ in range(2):
            read_everywhere(call(), MATRIX, layout)


@pytest.mark.parametrize("platform", ["cpu", "other"])
@pytest.mark.parametrize(("words", "layout"), WORDS)
@with_stub('PLATFORM="{platform}"')
def test_a_result_is_an_argument_in_the_layout_of_its_buffer(client, platform, words, layout):
    first, second = matrix(client, words), matrix(client, "add donate")
    for _ in range(2):
        result = first(client.buffer_from_host(MATRIX))
        if layout == (1, 0):
            assert second(result, result).tolist() == (2 * MATRIX).tolist()
        else:
            for use in (second, second.bind, lambda *both: second.execute([both])):
                refused = raises(ValueError, use, result, result)
                assert "the buffer has (0, 1)" in str(refused), refused


@pytest.mark.parametrize("platform", ["cpu", "other"])
@with_stub('PLATFORM="{platform}"', "COLUMNS=1")
def test_what_is_put_is_read_in_the_layout_of_its_buffer(client, platform):
    for _ in range(2):
        for given in (MATRIX, MATRIX.tolist(), MATRIX.T.copy().T):
            read_everywhere(client.buffer_from_host(given), MATRIX, (0, 1))
        for semantics in HostBufferSemantics:
            read_everywhere(
                client.buffer_from_host(MATRIX.copy(), semantics=semantics), MATRIX, (0, 1)
            )
        read_everywhere(client.buffer_from_host(MATRIX, layout=(1, 0)), MATRIX, (1, 0))
        assert client.buffer_from_host(ONE_TO_FOUR).tolist() == memoryview(ONE_TO_FOUR).tolist()
    exe = matrix(client)
    for _ in range(2):  # the argument is put in rows, as the program wants it
        read_everywhere(exe(MATRIX), MATRIX, (0, 1))
    assert "the buffer has (0, 1)" in str(raises(ValueError, exe, client.buffer_from_host(MATRIX)))


@pytest.mark.parametrize("told", ["TILES=1", "STRIDES=1"])
@pytest.mark.parametrize("platform", ["cpu", "other"])
@with_stub('PLATFORM="{platform}"', "{told}")
def test_only_the_plugin_reads_tiles_and_strides(client, platform, told):
    results = [
        matrix(client, words)(client.buffer_from_host(MATRIX))
        for words in ("", "tells_columns", "gives_columns")
    ]
    for buffer, layout in zip(
        [client.buffer_from_host(MATRIX), *results], [(1, 0)] * 3 + [(0, 1)], strict=True
    ):
        assert buffer.layout == layout
        first, second = buffer.to_numpy(), buffer.to_numpy()
        assert first.tolist() == second.tolist() == MATRIX.tolist()
        assert not np.shares_memory(first, second)
        raises(BufferError, memoryview, buffer)
        if client.platform_name == "cpu":
            assert np.from_dlpack(buffer).tolist() == MATRIX.tolist()
    assert matrix(client)(results[0]).tolist() == MATRIX.tolist()
    assert client.buffer_from_host(ONE_TO_FOUR).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "silence",
    [
        'return fail(12, "what is a layout?")',
        "memset(&args->layout, 0, sizeof args->layout)",  # it gives no error and no layout
        "args->layout.tiled.minor_to_major_size = 0",
    ],
)
@with_stub('PLATFORM="other"', "ON_LAYOUT={silence}")
def test_a_plugin_that_does_not_say_is_read_as_its_compiler_says(client, silence):
    for words in ("", "tells_columns", "gives_columns"):
        assert matrix(client, words)(client.buffer_from_host(MATRIX)).tolist() == MATRIX.tolist()
    assert client.buffer_from_host(MATRIX).layout == (1, 0)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ("args->layout.tiled.minor_to_major = NULL", "another number of dimensions"),
        ("args->layout.tiled.minor_to_major_size = 1", "another number of dimensions"),
        ("args->layout.tiled.minor_to_major_size = 1ull << 60", "another number of dimensions"),
        ("buffer->minor_to_major[0] = 5", "not a permutation"),
        ("buffer->minor_to_major[0] = -1", "not a permutation"),
        ("buffer->minor_to_major[0] = buffer->minor_to_major[1]", "not a permutation"),
    ],
)
@with_stub("ON_LAYOUT={lie}")
def test_a_layout_that_cannot_be_is_an_error(client, lie, words):
    exe, buffers = (
        matrix(client),
        [client.buffer_from_host(MATRIX), client.buffer_from_host(MATRIX)],
    )
    uses = [lambda: exe(MATRIX), lambda: exe(buffers[0])]
    for buffer in buffers:
        uses += [buffer.to_numpy, partial(getattr, buffer, "layout"), partial(memoryview, buffer)]
    for use in uses:
        error = raises(errors.PluginError, use)
        assert str(error).startswith("PJRT_Buffer_GetMemoryLayout: the plugin answered"), error
        assert words in str(error), error


@with_stub('PLATFORM="other"', "COLUMNS=1")
def test_a_client_that_closes_while_a_layout_is_asked():
    """Another thread may close it; the layout that was told is then freed with the buffer."""
    replace("PJRT_Buffer_GetMemoryLayout", lambda truth, args: (truth(args), client.close())[0])
    client = begin()
    buffer = client.buffer_from_host(MATRIX)
    assert buffer.layout == (0, 1), buffer.layout
    assert client.closed
    raises(errors.ClosedError, buffer.to_numpy)


@pytest.mark.parametrize("words", ["", "gives_columns"])
@with_stub('PLATFORM="other"', 'ON_TO_HOST=if (args->dst == NULL) return fail(3, "where to?")')
def test_a_plugin_that_does_not_tell_sizes_is_read(client, words):
    """JAX never asks for the size of a value on the host, so plugins exist that refuse to tell."""
    read_everywhere(
        matrix(client, words)(client.buffer_from_host(MATRIX)), MATRIX, (0, 1) if words else (1, 0)
    )
    assert client.buffer_from_host(np.float32(3)).tolist() == 3
    failed = client.create_error_buffer(errors.CancelledError("why"), (2, 3))
    assert "why" in str(raises(errors.CancelledError, failed.to_numpy))


@with_stub('PLATFORM="other"', "ON_LAYOUT=args->layout.tiled.minor_to_major_size = 0")
def test_a_file_is_read_where_the_plugin_does_not_tell_layouts(client, tmp_path):
    file = f"{tmp_path}/matrix"
    MATRIX.tofile(file)
    buffer = client.buffer_from_file(file, (2, 3), "f32")
    assert buffer.tolist() == MATRIX.tolist()
    assert not irregular.is_plain(client.api, buffer.address, 2)
    scalar = client.buffer_from_host(np.float32(3))
    assert irregular.is_plain(client.api, scalar.address, 0)
