"""C functions whose fields are all plain are called without Python code."""

import ctypes
import gc
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pjrt_hub.base.abi import DECLARED
from pjrt_hub.running.capi import hotpath, table
from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.call import _KINDS, Struct, _inputs, not_plain
from pjrt_hub.running.capi.handle import compact
from pjrt_hub.running.capi.library import Extension

#: Function -> the fields that make it a function that is called through Python code.
IN_PYTHON = {
    "PJRT_Plugin_Attributes": "attributes",
    "PJRT_Client_Create": "create_options",
    "PJRT_Client_Compile": "program compile_options",
    "PJRT_Client_BufferFromHostBuffer": "dims byte_strides device_layout",
    "PJRT_DeviceDescription_Attributes": "attributes",
    "PJRT_Executable_GetCostAnalysis": "properties",
    "PJRT_Executable_OutputMemoryKinds": "memory_kinds",
    "PJRT_Executable_OptimizedProgram": "program",
    "PJRT_Executable_Serialize": "serialized_executable_deleter",
    "PJRT_LoadedExecutable_Execute": "options argument_lists",
    "PJRT_Executable_DeserializeAndLoad": (
        "serialized_executable overridden_serialized_compile_options load_options"
    ),
    "PJRT_Buffer_GetMemoryLayout": "layout",
    "PJRT_Buffer_ToHostBuffer": "host_layout",
    "PJRT_CopyToDeviceStream_AddChunk": "chunk",
    "PJRT_TopologyDescription_Create": "topology_name create_options",
    "PJRT_TopologyDescription_Serialize": "serialized_topology_deleter",
    "PJRT_TopologyDescription_Attributes": "attributes",
    "PJRT_Compile": "program compile_options",
    "PJRT_Executable_OutputDimensions": "dims",
    "PJRT_Client_CreateViewOfDeviceBuffer": "dims layout",
    "PJRT_AsyncHostToDeviceTransferManager_TransferData": "data",
    "PJRT_Client_CreateBuffersForAsyncHostToDevice": "shape_specs device_layouts",
    "PJRT_AsyncHostToDeviceTransferManager_SetBufferError": "error_message",
    "PJRT_AsyncHostToDeviceTransferManager_AddMetadata": "transfer_metadata",
    "PJRT_Client_DmaMap": "data",
    "PJRT_Client_CreateUninitializedBuffer": "shape_dims shape_layout",
    "PJRT_Client_UpdateGlobalProcessInfo": "process_infos",
    "PJRT_TopologyDescription_Deserialize": "serialized_topology",
    "PJRT_Client_CreateAliasBuffer": "shape_dims shape_layout",
    "PJRT_Client_FulfillAliasBuffer": "error_message",
    "PJRT_Client_CreateErrorBuffer": (
        "error_message shape_dims shape_layout payload device_layout"
    ),
    "PJRT_AsyncHostToDeviceTransferManager_TransferLiteral": "shape_dims shape_layout",
    "PJRT_Device_PoisonExecution": "error_message payload",
    "PJRT_Device_CreateAsyncTrackingEvent": "description",
    "PJRT_Event_Set": "error_message",
    "PJRT_LoadedExecutable_GetDeviceAssignment": "serialized_device_assignment_deleter",
    "PJRT_Executable_GetCompileOptions": "serialized_compile_options_deleter",
    "PJRT_Device_GetAttributes": "attributes attributes_deleter",
    "PJRT_Client_Load": "compile_options",
    "PJRT_LoadedExecutable_AddressableDeviceLogicalIds": "addressable_device_logical_ids",
    "PJRT_Buffer_Bitcast": "dims device_layout",
    "PJRT_Executable_ParameterMemoryKinds": "memory_kinds",
    "PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace": (
        "dims layout serialized_shape_deleter"
    ),
}


def test_every_function_is_compiled_or_here_for_its_fields():
    found = {name: " ".join(not_plain(row.args)) for name, row in table.FUNCTIONS.items()}
    assert {name: fields for name, fields in found.items() if fields} == IN_PYTHON


class Args(ctypes.Structure):
    """An argument struct with one input and one output of each kind."""

    KINDS = (
        ("?", ctypes.c_bool, True),
        ("i", ctypes.c_int32, -(2**31)),
        ("I", ctypes.c_uint32, 2**32 - 1),
        ("q", ctypes.c_int64, -(2**63)),
        ("Q", ctypes.c_uint64, 2**64 - 1),
        ("P", ctypes.c_void_p, 2**64 - 8),
        ("f", ctypes.c_float, 0.5),
        ("d", ctypes.c_double, 0.1),
    )
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *((f"in_{i}", ctype) for i, (_, ctype, _) in enumerate(KINDS)),
        *((f"out_{i}", ctype) for i, (_, ctype, _) in enumerate(KINDS)),
        ("text", ctypes.c_char_p),
        ("list", ctypes.POINTER(ctypes.c_int32)),
        ("count", ctypes.c_size_t),
    ]


NUMBERS = (ctypes.c_int32 * 3)(7, -8, 9)


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Args))
def copies(args: Any) -> int:
    """Copy inputs to outputs; without a first input, return an error with the address 77."""
    members = args.contents
    if not members.in_0:
        return 77
    for i in range(len(Args.KINDS)):
        setattr(members, f"out_{i}", getattr(members, f"in_{i}"))
    members.text, members.list, members.count = b"a\0b", NUMBERS, 3
    return 0


class Function(hotpath.Function):
    """A PJRT function in C that calls `copies`."""

    def __init__(self, *outputs: tuple[str, int, str, int, bool]) -> None:
        inputs = [
            (f"in_{i}", getattr(Args, f"in_{i}").offset, kind, -1, True)
            for i, (kind, _, _) in enumerate(Args.KINDS)
        ]
        address = ctypes.cast(copies, ctypes.c_void_p).value
        assert address
        size = ctypes.sizeof(Args)
        self._compile(address, size, size, tuple(inputs), outputs, dict)

    def _fail(self, error: int, again: bool) -> None:
        self.errors = [*getattr(self, "errors", []), error]
        if again:
            raise RuntimeError(self.errors)


class Functions(hotpath.Functions):
    """A table whose only function has these outputs."""

    def __init__(self, *outputs: tuple[str, int, str, int, bool]) -> None:
        self.outputs = outputs

    def _bind(self, name: str) -> Function:
        return Function(*self.outputs)


def answer_of(*outputs: tuple[str, int, str, int, bool], **given: Any) -> Any:
    return Functions(*outputs).call("copies", **given)


def row(name: str, kind: str, count: str = "", known: bool = True) -> Any:
    offset = getattr(Args, count).offset if count else -1
    return name, getattr(Args, name).offset, kind, offset, known


def test_every_kind_goes_in_and_comes_out():
    rows = [row(f"out_{i}", kind) for i, (kind, _, _) in enumerate(Args.KINDS)]
    given = {f"in_{i}": value for i, (_, _, value) in enumerate(Args.KINDS)}
    answer = answer_of(*rows, row("struct_size", "Q"), **given)
    expected = {name.replace("in", "out"): value for name, value in given.items()}
    assert answer == {**expected, "struct_size": ctypes.sizeof(Args)}


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        ([row("text", "s", "count")], b"a\0b"),
        ([row("list", "i", "count")], [7, -8, 9]),
        ([], None),
        ([row("text", "s", "count", known=False)], None),  # the plugin does not know the row
    ],
)
def test_counted_outputs(rows, answer):
    assert answer_of(*rows, in_0=True) == answer


def test_an_error_goes_to_the_one_place_that_raises_or_lets_the_function_be_called_once_more():
    with pytest.raises(RuntimeError, match=r"^\[77, 77\]$"):
        answer_of(row("out_0", "?"))


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"in_0": 2}, OverflowError),
        ({"in_1": 2**31}, OverflowError),
        ({"in_2": -1}, OverflowError),
        ({"in_3": 2**63}, OverflowError),
        ({"in_4": -1}, OverflowError),
        ({"in_5": 1.5}, TypeError),
        ({"in_6": "1"}, TypeError),
        ({"in_1": None}, TypeError),
        ({"nothing": 1}, TypeError),
    ],
)
def test_wrong_inputs_are_refused_before_the_call(given, error):
    with pytest.raises(error):
        answer_of(**{"in_0": True, **given})


@pytest.mark.parametrize(
    "wrong", [("a", 0, "x", -1, True), ("a", 4096, "i", -1, True), ("a", 0, "s", -1, True)]
)
def test_rows_that_would_write_outside_are_refused(wrong):
    with pytest.raises(ValueError, match="a is not a field that can be called in C"):
        Function(wrong)


@pytest.mark.parametrize("address", [-1, 1 << 64, (1 << 70) + 64])
def test_an_address_that_does_not_fit_is_refused_in_python_too(address):
    with pytest.raises(OverflowError, match=f"{address} does not fit PJRT_ExecuteContext"):
        Struct("PJRT_ExecuteOptions", {"context": address}, DECLARED)


def test_rows_of_several_lengths_are_given_flat():
    tiles = {"tile_dims": [8, 128, 2], "tile_dim_sizes": [2, 1]}
    given = Struct("PJRT_Buffer_MemoryLayout_Tiled", {"minor_to_major": [1, 0], **tiles}, DECLARED)
    words = (ctypes.c_size_t * 7).from_address(given.address)
    assert (words[3], words[6]) == (2, 2)
    assert (ctypes.c_int64 * 3).from_address(words[4])[:] == [8, 128, 2]
    assert (ctypes.c_size_t * 2).from_address(words[5])[:] == [2, 1]


#: An address that nothing reads.
SOMEWHERE = 0x1000


def members(field: table.Field) -> list[table.Field]:
    """The fields of a struct that callers pass as a dict: by value, or with counted fields."""
    target = field.ctype.removesuffix("*").strip()
    if field.count or field.direction != "in" or target not in table.FIELDS:
        return []
    inputs = _inputs(target)
    return inputs if target == field.ctype or any(each.count for each in inputs) else []


def example(field: table.Field) -> Any:
    """An example value that `Extension.call` accepts for an input."""
    if field.ctype in _KINDS:
        return 1
    if not field.count or field.direction != "in":
        return {each.name: example(each) for each in members(field)} or SOMEWHERE
    if "," in field.count:
        return [[7, 8], [9]] if "int" in field.ctype else [b"one", b"of two"]
    return b"bytes" if re.match("(const )?(char|void)", field.ctype) else [8, 9]


def found(struct: Any, field: table.Field) -> Any:
    """The same value, read back from the C struct."""
    value, expected = getattr(struct, field.name), example(field)
    if field.ctype in _KINDS:
        return value
    if not field.count or field.direction != "in":
        return {each.name: found(value, each) for each in members(field)} or address_of(value)
    count, _, sizes = field.count.partition(",")
    rows = range(getattr(struct, count))
    if sizes:
        read = text if isinstance(expected[0], bytes) else ffi.unpack
        return [read(value[i], getattr(struct, sizes)[i]) for i in rows]
    if isinstance(expected, bytes):
        return text(value, len(rows))
    return [address_of(value[i]) for i in rows]


def text(pointer: Any, size: int) -> bytes:
    return bytes(ffi.buffer(pointer, size))


def address_of(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


@pytest.mark.parametrize("name", table.EXTENSIONS)
def test_every_function_of_an_extension_is_called_by_its_c_name(name):
    row, seen, struct = table.EXTENSIONS[name], dict[str, Any](), ""

    @ffi.callback("uintptr_t(uintptr_t)")  # type: ignore[untyped-decorator]
    def function(address: int) -> int:
        args = ffi.cast(f"{struct}*", address)
        for field in table.FIELDS[struct]:
            if field.name in given:
                seen[field.name] = found(args, field)
            elif field.direction == "out" and field.ctype.endswith("*") and not field.count:
                setattr(args, field.name, ffi.cast(field.ctype, SOMEWHERE))
        return 0

    node = ffi.new(f"{row.struct}*")
    node.base.struct_size = table.STRUCT_SIZE[row.struct]
    for slot in row.functions:
        setattr(node, slot, ffi.cast(ffi.typeof(getattr(node, slot)), function))
    api: Any = SimpleNamespace(address=0, version=DECLARED, path=Path(name))
    extension = Extension(api, name, ffi.cast("PJRT_Extension_Base*", node))
    for each in row.functions.values():
        struct = each.args
        given = {field.name: example(field) for field in _inputs(struct)}
        seen.clear()
        extension.call(struct.removesuffix("_Args"), **given)
        assert seen == given


# `compact` keeps the written class and puts it on top of a type of the call path.


@compact
class Call(hotpath.BoundCall):
    """A class as a class statement defines it."""

    __slots__ = ()
    number = 7

    def __repr__(self) -> str:
        return f"<call {self.number}>"


def test_a_compact_class_is_what_the_statement_says():
    assert (Call.__name__, Call.__qualname__, Call.__module__) == ("Call", "Call", __name__)
    assert Call.__doc__ == "A class as a class statement defines it."
    assert Call.__mro__ == (Call, hotpath.BoundCall, object)
    assert repr(Call()) == "<call 7>"
    assert not hasattr(Call(), "__dict__")
    assert not hasattr(Call, "__slots__")
    gc.collect()  # this frees the original class
    named = [each for each in hotpath.BoundCall.__subclasses__() if each.__name__ == "Call"]
    assert named == [Call]


def test_another_base_of_a_compact_class_is_refused():
    with pytest.raises(TypeError, match=r"Device: <class '.*Client'> has no compact subclasses"):

        @compact
        class Device(hotpath.Client):
            pass
