"""The functions whose outputs the tables cannot express.

Owns reads in two calls, unions and memory of the caller; everything regular goes through `call`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pjrt_hub.base.abi import DECLARED
from pjrt_hub.running.capi import table, values
from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.call import Struct
from pjrt_hub.running.capi.library import Api, Extension
from pjrt_hub.running.capi.status import refuse_answer

_TILED = table.ENUMS["PJRT_Buffer_MemoryLayout_Type"]["PJRT_Buffer_MemoryLayout_Type_Tiled"]


def serialize_executable(api: Api, executable: int) -> bytes:
    """Return the compiled code, which must not be empty (`PJRT_Executable_Serialize`)."""
    name = "PJRT_Executable_Serialize"
    code: bytes = api.call(name, executable=executable)
    return code or refuse_answer(name, "no bytes")


def phase_texts(api: Api, name: str, **inputs: Any) -> list[bytes]:
    """Call a function of PhaseCompile, copy its texts, and tell the plugin to free them."""
    node = api.extension("PhaseCompile")
    function = node.function(name)
    args = function.raw(**inputs)
    texts = next(field for field in table.FIELDS[function.struct] if field.direction == "out")
    number, sizes = texts.count.split(",")
    try:
        found: list[bytes] = function.read(args)[texts.name]
        return found
    finally:
        node.call(
            "PJRT_PhaseCompile_C_Buffers_Destroy",
            char_buffers=values.address(getattr(args, texts.name)),
            char_buffer_sizes=values.address(getattr(args, sizes)),
            num_char_buffers=getattr(args, number),
        )


def optimized_program(api: Api, executable: int) -> tuple[bytes, str]:
    """Return the code and its format (`PJRT_Executable_OptimizedProgram`)."""
    name = "PJRT_Executable_OptimizedProgram"
    function = api.function(name)
    program = ffi.new("PJRT_Program*")
    program.struct_size = table.STRUCT_SIZE["PJRT_Program"]
    address = values.address(program)
    function.raw(executable=executable, program=address)  # Without `code`, this asks for its size.
    room = values.require_count(name, "code_size", program.code_size, values.MOST_BYTES)
    code = ffi.new("char[]", max(room, 1))
    program.code = code
    function.raw(executable=executable, program=address)
    return (
        bytes(ffi.buffer(code, values.require_count(name, "code_size", program.code_size, room))),
        values.text(name, "format", program.format, program.format_size).decode(),
    )


def fill_array(
    node: Extension, name: str, capacity: int, **inputs: Any
) -> tuple[tuple[int, ...], Any]:
    """Call a function that fills a caller's array; return its numbers and the argument struct."""
    function = node.function(name)
    fields = table.FIELDS[function.struct]
    array = next(field for field in fields if field.direction == "inout")
    limit = next(field for field in fields if field.direction == "in" and "max_" in field.name)
    numbers = ffi.new("int32_t[]", capacity)
    address = values.address(numbers)
    args = function.raw(**{array.name: address, limit.name: capacity}, **inputs)
    count = values.require_count(name, array.count, getattr(args, array.count), capacity)
    return tuple(numbers[0:count]), args


def routing_strategy(node: Extension, topology: int, capacity: int) -> str:
    """Return the text that `PJRT_TpuTopology_GetRoutingStrategy` writes."""
    text = ffi.new("char[]", capacity)
    node.function("PJRT_TpuTopology_GetRoutingStrategy").raw(
        topology=topology,
        routing_strategy=values.address(text),
        routing_strategy_len=capacity,
    )
    return bytes(ffi.string(text)).decode()


def executable_metadata(node: Extension, executable: int) -> bytes:
    """Return the metadata as bytes (`PJRT_ExecutableMetadata_GetExecutableMetadata`)."""
    name = "PJRT_ExecutableMetadata_GetExecutableMetadata"
    metadata = node.function(name).raw(executable=executable).metadata
    if metadata == ffi.NULL:
        refuse_answer(name, "NULL as metadata")
    data, nbytes = metadata.serialized_metadata, metadata.serialized_metadata_size
    try:
        return values.text(name, "serialized_metadata", data, nbytes)
    finally:
        address = values.address(metadata)
        node.call("PJRT_ExecutableMetadata_DestroySerializedMetadata", metadata=address)


def default_device_assignment(
    api: Api, client: int, num_replicas: int, num_partitions: int
) -> list[int]:
    """Return device ids by replica (`PJRT_Client_DefaultDeviceAssignment`)."""
    ids = ffi.new("int[]", num_replicas * num_partitions)
    api.function("PJRT_Client_DefaultDeviceAssignment").raw(
        client=client,
        num_replicas=num_replicas,
        num_partitions=num_partitions,
        default_assignment=values.address(ids),
        default_assignment_size=len(ids),
    )
    return list(ids)


def minor_to_major(api: Api, buffer: int) -> tuple[int, ...] | None:
    """Return a buffer's dimensions, fastest-varying first; None if the plugin tells strides."""
    return order(api.function("PJRT_Buffer_GetMemoryLayout").raw(buffer=buffer))


def order(args: Any) -> tuple[int, ...] | None:
    """Read the order of dimensions that `PJRT_Buffer_GetMemoryLayout` gave; None for strides."""
    if args.layout.type != _TILED:  # `layout` lies in `args`, which must stay referenced.
        return None
    name, tiled = "PJRT_Buffer_GetMemoryLayout", args.layout.tiled
    rank = tiled.minor_to_major_size
    values.require_count(name, "minor_to_major_size", rank, values.MOST_DIMENSIONS)
    if rank and tiled.minor_to_major == ffi.NULL:
        refuse_answer(name, "NULL as minor_to_major")
    return tuple(tiled.minor_to_major[i] for i in range(rank))


def byte_strides(api: Api, buffer: int, dims: Sequence[int], nbytes: int) -> list[int] | None:
    """Return each dimension's stride in bytes, for elements of `nbytes`; None for tiles."""
    args = api.function("PJRT_Buffer_GetMemoryLayout").raw(buffer=buffer)
    found = order(args)
    if found is None:
        return [args.layout.strides.byte_strides[i] for i in range(len(dims))]
    if args.layout.tiled.num_tiles:
        return None
    strides = [0] * len(dims)
    for dim in found:
        strides[dim] = nbytes
        nbytes *= dims[dim]
    return strides


def is_plain(api: Api, buffer: int, rank: int) -> bool:
    """Tell whether a buffer's memory is row-major without gaps, according to its plugin.

    An array of one dimension may have one tile, which only pads its end.
    """
    if not api.has("PJRT_Buffer_GetMemoryLayout"):
        return False
    args = api.function("PJRT_Buffer_GetMemoryLayout").raw(buffer=buffer)
    if args.layout.type != _TILED or args.layout.tiled.num_tiles > (rank < 2):
        return False
    return order(args) == (*range(rank),)[::-1]  # () means that the plugin does not say.


def answer(struct: str, function: int, data: int, code: int, message: str, dst: int = 0) -> None:
    """Call the one-time callback that a plugin gave, with the plugin's own data."""
    members = {"callback_data": data, "error_code": code, "error_message": message, "dst": dst}
    known = [field.name for field in table.FIELDS[struct]]
    args = Struct(struct, {name: members[name] for name in known if name in members}, DECLARED)
    ffi.cast(f"void (*)({struct}*)", function)(ffi.cast(f"{struct}*", args.address))


#: The channel, the user_arg and the address of the C function.
TransferCallback = tuple[int, int, int]

_CALLBACKS = {"send": "PJRT_SendCallback", "recv": "PJRT_RecvCallback"}


def put_rows(struct: Struct, way: str, rows: Sequence[Sequence[TransferCallback]]) -> None:
    """Put each device's callbacks that send ("send") or receive ("recv") into execute options."""
    options = ffi.cast("PJRT_ExecuteOptions*", struct.address)
    kind = _CALLBACKS[way]
    lists = []
    for row in rows:
        infos = ffi.new(f"{kind}Info[]", len(row))
        for info, (channel, user_arg, function) in zip(infos, row, strict=True):
            info.channel_id = channel
            info.user_arg = ffi.cast("void*", user_arg)
            setattr(info, f"{way}_callback", ffi.cast(kind, function))
        lists.append(infos)
    array = ffi.new(f"{kind}Info*[]", lists)
    struct.keep(array, *lists)
    setattr(options, f"{way}_callbacks", array)
    setattr(options, f"num_{way}_ops", len(rows[0]) if rows else 0)
