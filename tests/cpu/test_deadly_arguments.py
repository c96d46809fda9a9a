"""Arguments that crash XLA's CPU plugin, as `pjrt-hub check` finds, never reach the plugin."""

import numpy as np
import pytest
from children import in_child

import pjrt_hub
from pjrt_hub import CompileOptions
from pjrt_hub.errors import InvalidArgumentError
from pjrt_hub.kit.conformance.programs import ADD

#: Serialized options with 0 or -1 replicas, or with 0 partitions.
COUNTS = [b"\x1a\x02\x20\x00", b"\x1a\x0b\x20" + b"\xff" * 9 + b"\x01", b"\x1a\x02\x28\x00"]
#: Options without valid counts: each program is for one device, as without options.
SAY_NOTHING = [
    *(None, CompileOptions(), CompileOptions.parse(b""), CompileOptions.parse(b"\x1a\x00")),
    *(CompileOptions(unread=each) for each in COUNTS),
]
#: Values that are no element type: numbers of INVALID, TOKEN and of nothing, and names.
NO_TYPES = [0, 23, 99, -1, "token", "invalid", "opaque", "f7", object, "U3", "M8[s]", "V4"]
NO_TYPES += ["i4, f4"]
#: Every function that takes the element type of a buffer.
WAYS = {
    "from_host": lambda client, dtype: client.buffer_from_host(np.zeros(2), dtype),
    "uninitialized": lambda client, dtype: client.create_uninitialized_buffer((2,), dtype),
    "error": lambda client, dtype: client.create_error_buffer(InvalidArgumentError(""), 2, dtype),
    "alias": lambda client, dtype: pjrt_hub.Alias(client, (2,), dtype),
    "view": lambda client, dtype: client.create_view_of_device_buffer(4096, (2,), dtype),
    "file": lambda client, dtype: client.buffer_from_file(__file__, (2,), dtype),
    "parts": lambda client, dtype: pjrt_hub.Transfer(client, [((2,), dtype)]),
    "bitcast": lambda client, dtype: client.buffer_from_host(np.zeros(2)).bitcast(dtype, (2,)),
}


@in_child
def test_options_that_say_nothing_are_those_of_one_device(client):
    for options in SAY_NOTHING:
        assert client.compile(ADD, options)(*[np.ones(4, np.float32)] * 2).tolist() == [2.0] * 4


@pytest.mark.parametrize("options", [b"", {}, 0, "", *map(CompileOptions.parse, COUNTS)], ids=str)
def test_what_is_no_options_is_refused(client, options):
    with pytest.raises((TypeError, ValueError), match=r"not CompileOptions|must be from 1 to"):
        client.compile(ADD, options)


@pytest.mark.parametrize("dtype", NO_TYPES, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_element_type_is_refused(client, way, dtype):
    with pytest.raises(TypeError):
        WAYS[way](client, dtype)
