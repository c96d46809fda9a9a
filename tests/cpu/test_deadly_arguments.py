"""What ends XLA's CPU plugin, as `pjrt-hub check` finds, never reaches it by public objects."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub import CompileOptions
from pjrt_hub.errors import InvalidArgumentError
from pjrt_hub.kit.conformance.programs import ADD

#: A build options message of XLA that says 0 or -1 replicas, or as many partitions.
COUNTS = [b"\x1a\x02\x20\x00", b"\x1a\x02\x28\x00", b"\x1a\x0b\x20" + b"\xff" * 9 + b"\x01"]
#: Options that say nothing, or what is not there: each is compiled with as with none.
SAY_NOTHING = {
    "None": None,
    "the defaults": CompileOptions(),
    "an empty message": CompileOptions.parse(b""),
    "empty build options": CompileOptions.parse(b"\x1a\x00"),
    **{f"unread {each.hex()}": CompileOptions(unread=each) for each in COUNTS},
}
RUN = """
import sys
from test_deadly_arguments import SAY_NOTHING
import pjrt_hub
from pjrt_hub.kit.conformance.programs import ADD
client = pjrt_hub.client("cpu", offline=True)
for how in (client.compile, client.topology.compile):
    try:
        print(type(how(ADD, SAY_NOTHING[sys.argv[1]])).__name__)
    except pjrt_hub.UnsupportedByPluginError as exc:
        print(exc.message)
"""
#: No element types: the numbers of INVALID and TOKEN, one of no type, and names.
NO_TYPES = [
    0,
    23,
    99,
    -1,
    "token",
    "invalid",
    "opaque",
    "f7",
    object,
    "U3",
    "M8[s]",
    "V4",
    "i4, f4",
]


@pytest.fixture(scope="module")
def client():
    with pjrt_hub.client("cpu", offline=True) as client:
        yield client


@pytest.mark.parametrize("name", SAY_NOTHING)
def test_options_that_say_nothing_are_those_of_one_device(name):
    """In a process of its own, which the plugin would end."""
    command = [sys.executable, "-c", RUN, name]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=__file__.rpartition("/")[0]
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("LoadedExecutable\n")


@pytest.mark.parametrize("message", COUNTS)
def test_counts_of_nothing_are_refused(client, message):
    with pytest.raises(ValueError, match="must be from 1 to"):
        client.compile(ADD, CompileOptions.parse(message))


@pytest.mark.parametrize("options", [b"", {}, 0, "", ADD])
def test_what_is_no_options_is_refused(client, options):
    for compile_ in (client.compile, client.topology.compile):
        with pytest.raises(TypeError, match="not CompileOptions"):
            compile_(ADD, options)


@pytest.mark.parametrize("count", ["replicas", "partitions"])
def test_a_program_for_no_device_is_refused(client, count):
    body = ADD.partition("module")[2].partition("{")[2]
    with pytest.raises(ValueError, match="must be from 1"):
        client.compile(f"module attributes {{mhlo.num_{count} = 0 : i32}} {{{body}")


WAYS = {
    "buffer_from_host": lambda client, dtype: client.buffer_from_host(np.zeros(2), dtype),
    "uninitialized": lambda client, dtype: client.create_uninitialized_buffer((2,), dtype),
    "error": lambda client, dtype: client.create_error_buffer(
        InvalidArgumentError("broken"), (2,), dtype
    ),
    "alias": lambda client, dtype: client.create_alias_buffer((2,), dtype),
    "view": lambda client, dtype: client.create_view_of_device_buffer(4096, (2,), dtype),
    "file": lambda client, dtype: client.buffer_from_file(__file__, (2,), dtype),
    "parts": lambda client, dtype: client.create_buffers_for_async_host_to_device([((2,), dtype)]),
    "bitcast": lambda client, dtype: client.buffer_from_host(np.zeros(2)).bitcast(dtype, (2,)),
}


@pytest.mark.parametrize("dtype", NO_TYPES, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_element_type_is_refused(client, way, dtype):
    with pytest.raises(TypeError):
        WAYS[way](client, dtype)
