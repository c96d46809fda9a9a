"""Every compile option: refused if a plugin would abort, encoded as XLA expects, and parsed."""

import dataclasses
import pickle

import numpy as np
import pytest
from texts import doubling

from pjrt_hub import CompileOptions
from pjrt_hub.errors import InternalError, InvalidArgumentError
from pjrt_hub.running.capi import wire

VECTORS = [("f32", (8,))] * 2
MATRIX = doubling("2x3xf32")
#: Field numbers in CompileOptionsProto; after a dot, in its ExecutableBuildOptionsProto.
NUMBERS = {
    **{"num_replicas": "3.4", "num_partitions": "3.5", "device_ids": "3.9"},
    **{"use_spmd_partitioning": "3.6", "use_shardy_partitioner": "3.19"},
    **{"allow_spmd_sharding_propagation_to_parameters": "3.18"},
    **{"allow_spmd_sharding_propagation_to_output": "3.12"},
    **{"use_auto_spmd_partitioning": "3.7", "auto_spmd_partitioning_mesh_shape": "3.16"},
    **{"auto_spmd_partitioning_mesh_ids": "3.17", "compile_portable_executable": "4"},
    **{"parameter_is_tupled_arguments": "2", "argument_layouts": "1", "result_layout": "3.2"},
    **{"optimization_level": "3.24", "memory_fitting_level": "3.25"},
    **{"device_memory_size": "3.15", "deduplicate_hlo": "3.8"},
    **{"alias_passthrough_params": "3.10", "run_backend_only": "3.11"},
    **{"allow_in_place_mlir_modification": "9", "matrix_unit_operand_precision": "10"},
    **{"fdo_profile": "3.14", "profile_version": "5", "process_index": "3.22"},
    **{"process_count": "3.23", "compiler_variant": "11"},
    **{"individually_defined_output_indices": "12", "target_config": "8"},
    **{"gpu_topology": "3.27", "serialized_multi_slice_config": "6", "comp_envs": "3.13"},
    **{"flags": "7"},
}
#: A value for each option, together with other options that it requires.
VALUES = {
    "num_replicas": {"num_replicas": 3},
    "num_partitions": {"num_partitions": 300},
    "device_ids": {"num_replicas": 2, "num_partitions": 3, "device_ids": [[0, 1, 2], [9, 8, 700]]},
    "allow_spmd_sharding_propagation_to_parameters": {
        "allow_spmd_sharding_propagation_to_parameters": [False, True],
        "argument_layouts": VECTORS,
    },
    "allow_spmd_sharding_propagation_to_output": {
        "allow_spmd_sharding_propagation_to_output": [False]
    },
    "use_auto_spmd_partitioning": {
        "use_auto_spmd_partitioning": True,
        "use_spmd_partitioning": True,
        "num_partitions": 4,
        "auto_spmd_partitioning_mesh_shape": [2, 2],
        "auto_spmd_partitioning_mesh_ids": [3, 1, 2, 0],
    },
    "argument_layouts": {"argument_layouts": [("bf16", (2, 3), (0, 1)), ("i4", ()), ("f32", [0])]},
    "result_layout": {"result_layout": [(np.float32, (2, 3, 4), (0, 2, 1)), ("i1", (1,))]},
    "optimization_level": {"optimization_level": 0},
    "memory_fitting_level": {"memory_fitting_level": 3},
    "device_memory_size": {"device_memory_size": 2**40},
    "matrix_unit_operand_precision": {"matrix_unit_operand_precision": "highest"},
    "fdo_profile": {"fdo_profile": b"\0profile"},
    "profile_version": {"profile_version": 7},
    "process_index": {"process_index": 1, "process_count": 2},
    "process_count": {"process_count": 2},
    "compiler_variant": {"compiler_variant": "fast"},
    "individually_defined_output_indices": {"individually_defined_output_indices": [0, 2]},
    "target_config": {"target_config": b"\x0a\x00"},
    "gpu_topology": {"gpu_topology": b"\x0a\x00"},
    "serialized_multi_slice_config": {"serialized_multi_slice_config": b"slices"},
    "comp_envs": {"comp_envs": b""},
    "flags": {"flags": {"a": "text", "b": True, "c": False, "d": -3, "e": 0, "f": -0.25, "g": ""}},
}
for name in ("auto_spmd_partitioning_mesh_shape", "auto_spmd_partitioning_mesh_ids"):
    VALUES[name] = VALUES["use_auto_spmd_partitioning"]


def options_with(name):
    """Options in which `name` has a value other than its default."""
    return CompileOptions(**VALUES.get(name, {name: True}))


def sent(message, prefix=""):
    """The field numbers in a serialized message, written as in `NUMBERS`."""
    found = {}
    for number, value in wire.fields(memoryview(message)):
        found.setdefault(f"{prefix}{number}", []).append(value)
        if number == 3 and not prefix:
            found |= sent(value, "3.")
    return found


def test_every_option_is_here():
    names = {field.name for field in dataclasses.fields(CompileOptions)}
    assert names - {"unread"} == set(NUMBERS)


def test_only_what_must_be_is_sent_by_default():
    """The device ordinal -1 and the counts must be sent, or the XLA CPU plugin aborts."""
    message = sent(CompileOptions().serialize())
    assert set(message) == {"3", "3.1", "3.4", "3.5"}
    assert wire.integers(message["3.1"][0]) == [-1]
    assert (message["3.4"], message["3.5"]) == ([1], [1])


@pytest.mark.parametrize("name", NUMBERS)
def test_an_option_is_sent_as_its_field(name):
    options = options_with(name)
    assert NUMBERS[name] in sent(options.serialize())
    assert name in options.changed()
    assert {NUMBERS[each] for each in options.changed()} | {"3", "3.1", "3.4", "3.5"} == set(
        sent(options.serialize())
    )


@pytest.mark.parametrize("name", NUMBERS)
def test_an_option_is_read_back(name):
    options = options_with(name)
    found = CompileOptions.parse(options.serialize())
    assert found.changed() == options.changed()
    assert found.serialize() == options.serialize()
    assert pickle.loads(pickle.dumps(options)) == options


def test_numbers_of_enums():
    """The number of EFFORT_O0 is 9, of O3 39, and precisions are 0 to 2."""
    efforts = [
        sent(CompileOptions(optimization_level=level).serialize())["3.24"] for level in range(4)
    ]
    assert efforts == [[9], [19], [29], [39]]
    [number] = sent(CompileOptions(matrix_unit_operand_precision="high").serialize())["10"]
    assert number == 1


def test_what_was_not_sent_is_told_as_it_was_understood():
    found = CompileOptions.parse(CompileOptions().serialize())
    assert (found.num_replicas, found.num_partitions) == (1, 1)
    assert (found.use_spmd_partitioning, found.use_shardy_partitioner) == (False, False)


@pytest.mark.parametrize(
    "message",
    [b"\xff", b"\x1a\x05\x01", wire.varint(3, 1), b"\x1a\x01\x20", b"\x0b"],
)
def test_junk_is_no_options(message):
    with pytest.raises(InternalError, match="not a CompileOptionsProto"):
        CompileOptions.parse(message)


PORTABLE = {"compile_portable_executable": True}
AUTO = {"use_auto_spmd_partitioning": True, "use_spmd_partitioning": True, "num_partitions": 2}
PERMISSIONS = "allow_spmd_sharding_propagation_to_parameters"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"use_spmd_partitioning": 1}, TypeError, "use_spmd_partitioning is 1; it must be a bool"),
        ({"deduplicate_hlo": None}, TypeError, "must be a bool"),
        ({"num_replicas": True}, TypeError, "must be an int"),
        ({"num_replicas": 0}, ValueError, "num_replicas is 0"),
        ({"num_partitions": 0}, ValueError, "num_partitions is 0"),
        ({"num_replicas": 2**31}, ValueError, "from 1 to 2147483647"),
        ({"num_replicas": 1.0}, TypeError, "must be an int"),
        ({"num_replicas": 1, "device_ids": [[0], [1]]}, ValueError, r"of \[1, 1\] ids; it needs 1"),
        ({"device_ids": [[0, 1], [2]]}, ValueError, r"rows of \[2, 1\] ids; it needs 2 row"),
        ({"device_ids": []}, ValueError, "device_ids has rows .*; it needs 1 row"),
        ({"device_ids": [[]]}, ValueError, "it needs 1 row"),
        ({"device_ids": [[-1]]}, ValueError, "an id is an int from 0"),
        ({"device_ids": [["0"]]}, ValueError, "an id is an int from 0"),
        ({"device_ids": [[2**40]]}, ValueError, "an id is an int from 0"),
        ({"num_replicas": 2, "device_ids": [[1], [1]]}, ValueError, "one part of a program"),
        ({"flags": {"xla_x": [1]}}, TypeError, "the flag 'xla_x' is"),
        ({"flags": {3: True}}, TypeError, "the flag 3 is"),
        ({"flags": {"xla_x": 2**64}}, ValueError, "does not fit 64 bits"),
        ({"optimization_level": 4}, TypeError, "one of 0, 1, 2, 3"),
        ({"optimization_level": "O2"}, TypeError, "one of 0, 1, 2, 3"),
        ({"optimization_level": True}, TypeError, "one of 0, 1, 2, 3"),
        ({"memory_fitting_level": -1}, TypeError, "one of 0, 1, 2, 3"),
        ({"matrix_unit_operand_precision": "HIGH"}, TypeError, "one of 'default', 'high'"),
        ({"device_memory_size": 0}, ValueError, "from 1 to"),
        ({"profile_version": -1}, ValueError, "from 0 to"),
        ({"process_index": 2, "process_count": 2}, ValueError, "process_index is 2 of 2"),
        ({"process_count": 0}, ValueError, "process_count is 0"),
        ({"fdo_profile": "text"}, TypeError, "must be bytes"),
        ({"compiler_variant": b"x"}, TypeError, "must be a str"),
        ({"flags": ["a"]}, TypeError, "a mapping of names"),
        ({"individually_defined_output_indices": [-1]}, ValueError, r"indices\[0\] is -1"),
        ({"individually_defined_output_indices": 3}, TypeError, "must be a list"),
        ({"device_ids": 3}, TypeError, "device_ids is 3; it must be a list of rows"),
        ({"device_ids": [0]}, TypeError, r"device_ids\[0\] is 0; it must be a list"),
        ({"argument_layouts": "f32"}, TypeError, "a list of"),
        ({"argument_layouts": ["f32"]}, TypeError, r"argument_layouts\[0\] is 'f32'"),
        ({"argument_layouts": [("f99", (2,))]}, TypeError, r"argument_layouts\[0\]"),
        ({"argument_layouts": [("f6E2M3FN", (2,))]}, TypeError, "have no f6E2M3FN"),
        ({"argument_layouts": [("f32", (-1,))]}, ValueError, "not a size"),
        ({"argument_layouts": [("f32", (2, 3), (0,))]}, ValueError, "not a permutation of 2"),
        ({"argument_layouts": [("f32", (2, 3), (0, 0))]}, ValueError, "not a permutation"),
        ({"result_layout": [("f32", (2,), (1,))]}, ValueError, r"result_layout\[0\]"),
        ({**PORTABLE, "num_replicas": 2}, ValueError, "neither device_ids nor several"),
        ({**PORTABLE, "device_ids": [[0]]}, ValueError, "neither device_ids nor several"),
        ({PERMISSIONS: [True] * 3}, ValueError, "has 3 values"),
        ({"auto_spmd_partitioning_mesh_shape": [1]}, ValueError, "needs use_auto_spmd"),
        ({"use_auto_spmd_partitioning": True}, ValueError, "needs use_spmd_partitioning"),
        ({**AUTO, "auto_spmd_partitioning_mesh_shape": [3]}, ValueError, "has not the size of 2"),
        (
            {**AUTO, "auto_spmd_partitioning_mesh_ids": [0, 9]},
            ValueError,
            "each of the 2 partition",
        ),
    ],
)
def test_options_that_contradict_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        CompileOptions(**options)


#: Options with which this plugin compiles a program of two vectors and gives right results.
TAKEN = [
    {"flags": {"xla_cpu_enable_fast_math": "True", "xla_backend_optimization_level": "0"}},
    {"optimization_level": 0},
    {"optimization_level": 3, "memory_fitting_level": 3},
    {"device_memory_size": 2**30},
    {"deduplicate_hlo": True},
    {"alias_passthrough_params": True},
    {"run_backend_only": True},
    {"fdo_profile": b"profile"},
    {"profile_version": 1},
    {"process_index": 0, "process_count": 1},
    {"compiler_variant": "none"},
    {"matrix_unit_operand_precision": "highest"},
    {"allow_in_place_mlir_modification": True},
    {"individually_defined_output_indices": [0]},
    {"serialized_multi_slice_config": b"junk"},
    {"parameter_is_tupled_arguments": True},
    {"use_shardy_partitioner": True},
    {"argument_layouts": VECTORS},
    {"argument_layouts": VECTORS, "result_layout": VECTORS[:1]},
    {"result_layout": VECTORS},
    {"allow_spmd_sharding_propagation_to_output": [True, False, True]},
    {"allow_spmd_sharding_propagation_to_parameters": [True]},
]


@pytest.mark.parametrize("options", TAKEN, ids=lambda options: "-".join(options))
def test_options_compile_and_compute(client, program, vector, options):
    executable = client.compile(program("add"), CompileOptions(**options))
    assert executable(vector(), vector(1)).tolist() == [2.0 * each + 1 for each in range(8)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"argument_layouts": VECTORS[:1]}, "1 argument layouts, but computation has 2"),
        ({"argument_layouts": VECTORS * 2}, "4 argument layouts, but computation has 2"),
        ({"argument_layouts": [("f32", (9,))] * 2}, r"want f32\[8\], got f32\[9\]"),
        ({"argument_layouts": [("i32", (8,))] * 2}, r"want f32\[8\], got s32\[8\]"),
        ({"target_config": b"junk"}, "CompileOptionsProto"),
        ({"comp_envs": b"junk"}, "CompileOptionsProto"),
    ],
)
def test_options_that_do_not_fit_the_program(client, program, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        client.compile(program("add"), CompileOptions(**options))


def test_as_many_propagations_as_parameters(pair, program):
    """XLA aborts on another number unless argument layouts are sent, which make it refuse."""
    options = CompileOptions(
        num_partitions=2,
        use_spmd_partitioning=True,
        allow_spmd_sharding_propagation_to_parameters=[True, False, True],
        argument_layouts=[("f32", (8,))] * 3,
    )
    with pytest.raises(InvalidArgumentError, match="3 argument layouts, but computation has 2"):
        pair.compile(program("add"), options)
    fitting = dataclasses.replace(
        options,
        allow_spmd_sharding_propagation_to_parameters=[True, False],
        argument_layouts=VECTORS,
    )
    assert len(pair.compile(program("add"), fitting).devices) == 2


def test_a_column_major_argument(client, executables):
    """The column-major result of one program is the argument of the next."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    columns = executables("column_major")(client.buffer_from_host(values))
    assert columns.layout == (0, 1)
    plain = client.compile(MATRIX)
    with pytest.raises(
        ValueError, match=r"(?s)dimensions in the order row-major.*lays it out anew"
    ):
        plain(columns)
    turned = client.compile(MATRIX, CompileOptions(argument_layouts=[("f32", (2, 3), (0, 1))]))
    assert turned.parameters[0].layout == (0, 1)
    assert np.array_equal(turned(columns).to_numpy(), 4 * values)
    with pytest.raises(ValueError, match=r"in the order \(0, 1\), the buffer has \(1, 0\)"):
        turned(client.buffer_from_host(values))


def test_the_layouts_of_a_signature_are_layouts(client, program):
    executable = client.compile(program("matmul_tanh"))
    options = CompileOptions(argument_layouts=executable.signature.parameters)
    again = client.compile(program("matmul_tanh"), options)
    assert again.signature == executable.signature


def test_options_cannot_be_changed():
    options = CompileOptions(device_ids=[[0]])
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.num_replicas = 2
    assert options.device_ids == ((0,),)
    counts = "num_replicas=1, num_partitions=1"
    assert repr(options) == f"CompileOptions({counts}, device_ids=((0,),))"
    assert repr(CompileOptions()) == "CompileOptions()"
