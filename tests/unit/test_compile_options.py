"""CompileOptions.parse: the options of every release of JAX, and options of the future.

data/jax_compile_options.json holds the options that releases sent with programs of two parameters
("jit", complete), over two devices, with `pmap` and with flags (without DebugOptions where they
differ from those of the release before). test_jax.py checks the installed release.
"""

import base64
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pjrt_hub.errors import InternalError
from pjrt_hub.kit.authoring import bridge
from pjrt_hub.running.capi import wire
from pjrt_hub.running.program.compile_options import CompileOptions

RELEASES = json.loads((Path(__file__).parent / "data" / "jax_compile_options.json").read_text())
SENT = {
    f"{release}-{name}": base64.b64decode(message)
    for release, messages in RELEASES.items()
    for name, message in messages.items()
}
#: Program -> the options that every release of JAX sends with it.
SAID = {
    "jit": {"num_replicas": 1, "num_partitions": 1, "device_ids": ((0,),), "profile_version": -1},
    "sharded": {"num_partitions": 2, "device_ids": ((0, 1),), "use_spmd_partitioning": True},
    "pmap": {"profile_version": -1},
    "flags": {"flags": {"xla_cpu_enable_fast_math": True}},
}


def said(message):
    """The values of a CompileOptionsProto by field number, with its build options merged."""
    found: dict = {}
    for number, value in wire.fields(memoryview(message)):
        if number == 3:
            for inner, each in wire.fields(value):
                found.setdefault((3, inner), []).append(each)
        else:
            found.setdefault(number, []).append(value)
    return found


def test_all_releases_are_here():
    releases = list(RELEASES)
    assert (len(releases), releases[0], releases[-1]) == (32, "0.4.33", "0.12.0.1")
    assert all("jit" in messages for messages in RELEASES.values())


@pytest.mark.parametrize("name", SENT)
def test_what_a_release_of_jax_sends_is_read_told_and_written_as_it_was(name):
    message = SENT[name]
    options = CompileOptions.parse(message)
    program = name.partition("-")[2]
    found = {each: getattr(options, each) for each in SAID[program]}
    assert found == SAID[program]
    assert said(options.serialize()) == said(message)
    assert CompileOptions.parse(options.serialize()) == options
    assert pickle.loads(pickle.dumps(options)) == options
    told = bridge._program(b"", "mlir", message, [4, 5])  # a backend in Python gets these options
    counts = (options.num_replicas, options.num_partitions)
    assert (told.num_replicas, told.num_partitions) == counts
    assert told.device_ids == tuple(each for row in options.device_ids for each in row)


def test_one_permission_for_each_parameter_and_output_is_kept():
    options = CompileOptions.parse(SENT["0.10.2-jit"])
    assert options.allow_spmd_sharding_propagation_to_parameters == (True, True)
    assert options.allow_spmd_sharding_propagation_to_output == (True, True)
    more = replace(options, flags={"xla_cpu_enable_fast_math": False})
    assert more.allow_spmd_sharding_propagation_to_parameters == (True, True)
    assert (3, 3) in said(more.serialize())  # the field holds DebugOptions


def test_what_is_not_known_is_handed_on():
    """These are new fields of every wire type, an unknown effort and another device ordinal."""
    build = wire.varint(4, 2) + wire.varint(24, 77) + wire.length_delimited(900, b"new")
    build += wire.varint(1, 3) + wire.double(901, 0.5)
    message = wire.length_delimited(3, build) + wire.varint(902, 1) + b"\xbd\x38\x01\x02\x03\x04"
    options = CompileOptions.parse(message)
    assert options.changed() == {"num_replicas": 2}
    found = said(options.serialize())
    assert (found[3, 24], found[3, 900]) == ([77], [b"new"])
    assert (found[902], found[903]) == ([1], [0x04030201])
    assert found[3, 1][-1] == 3
    assert found[3, 901] == said(message)[3, 901]


UNNAMED = wire.length_delimited(1, wire.varint(2, 99))
ASSIGNMENT = wire.length_delimited(9, b"\x1a\x02\x0a\x00\x1a\x03\x0a\x01\x07")
OVERRIDE = wire.length_delimited(1, b"flag") + wire.length_delimited(2, wire.varint(9, 1))
ODD = {
    "the compiler's variant, as a number": wire.varint(11, 1),
    "a number, as bytes": wire.length_delimited(5, b""),
    "a shape of a type without a name": UNNAMED,
    "rows of devices of other lengths": wire.length_delimited(3, ASSIGNMENT),
    "a flag of an unknown type": wire.length_delimited(7, OVERRIDE),
}


@pytest.mark.parametrize("field", ODD.values(), ids=ODD)
def test_a_field_of_another_form_is_handed_on_unread(field):
    options = CompileOptions.parse(field)
    assert options.changed() == {}
    assert said(field).items() <= said(options.serialize()).items()


def test_what_a_host_says_is_not_judged():
    """A host may send options that users may not write because XLA can abort on them."""
    build = wire.varint(4, 0) + wire.varint(22, 7) + wire.varint(23, 3)
    options = CompileOptions.parse(wire.length_delimited(3, build) + wire.varint(4, 1))
    assert (options.num_replicas, options.process_index, options.process_count) == (0, 7, 3)
    with pytest.raises(ValueError, match="process_index is 7 of 3"):
        CompileOptions(process_index=7, process_count=3)


@given(st.binary(max_size=60))
@example(b"a\x00\x00\x00\x00\x00\x00\x00\x80")  # a list of the smallest int64
def test_any_bytes_are_read_or_refused(message):
    try:
        options = CompileOptions.parse(message)
    except InternalError:
        return
    assert CompileOptions.parse(options.serialize()).changed() == options.changed()
