"""The functions whose outputs the tables cannot express.

Owns two-call reads, results behind a deleter, and unions; everything regular goes through `call`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pjrt_hub.running.capi import bounds, table, values
from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.call import BoundFunction
from pjrt_hub.running.capi.extensions import Extension
from pjrt_hub.running.capi.library import Api
from pjrt_hub.running.capi.status import refuse_answer

_TILED = table.ENUMS["PJRT_Buffer_MemoryLayout_Type"]["PJRT_Buffer_MemoryLayout_Type_Tiled"]


def serialized(functions: Api | Extension, name: str, **inputs: Any) -> bytes:
    """Calls a function that answers with bytes and the deleter of what holds them."""
    function = functions.function(name)
    args = function.raw(**inputs)
    outputs = [field for field in table.FIELDS[function.struct] if field.direction == "out"]
    data = next(field for field in outputs if field.count)
    try:
        return bounds.text(name, data.name, getattr(args, data.name), getattr(args, data.count))
    finally:
        let_go(*owner(function, args))


def serialized_executable(api: Api, executable: int) -> bytes:
    """`PJRT_Executable_Serialize`: the compiled code, which has bytes."""
    name = "PJRT_Executable_Serialize"
    return serialized(api, name, executable=executable) or refuse_answer(name, "no bytes")


def owner(function: BoundFunction, args: Any) -> tuple[Any, Any]:
    """The deleter that came with an answer, and the object to call it with."""
    outputs = [field for field in table.FIELDS[function.struct] if field.direction == "out"]
    deleter = next(field for field in outputs if "(*)" in field.ctype)
    holder = next(field for field in outputs if f"(*)({field.ctype})" in deleter.ctype)
    return getattr(args, deleter.name), getattr(args, holder.name)


def let_go(deleter: Any, *arguments: Any) -> None:
    """Calls what a plugin gave to free an answer; one that gave nothing has nothing to free."""
    if deleter != ffi.NULL:
        deleter(*arguments)


def phase_texts(api: Api, name: str, **inputs: Any) -> list[bytes]:
    """Calls a function of PhaseCompile, whose texts the plugin frees when it is told to."""
    node = api.extension("PhaseCompile")
    function = node.function(name)
    args = function.raw(**inputs)
    outputs = [field for field in table.FIELDS[function.struct] if field.direction == "out"]
    texts = next(getattr(args, field.name) for field in outputs if "," in field.count)
    number, sizes = next(field.count for field in outputs if "," in field.count).split(",")
    count, each = getattr(args, number), getattr(args, sizes)
    try:
        return [bounds.text(name, "a text", texts[i], each[i]) for i in range(count)]
    finally:
        node.call(
            "PJRT_PhaseCompile_C_Buffers_Destroy",
            char_buffers=int(ffi.cast("uintptr_t", texts)),
            char_buffer_sizes=int(ffi.cast("uintptr_t", each)),
            num_char_buffers=count,
        )


def optimized_program(api: Api, executable: int) -> tuple[bytes, str]:
    """`PJRT_Executable_OptimizedProgram`: the code and its format ("hlo_with_config")."""
    name = "PJRT_Executable_OptimizedProgram"
    function = api.function(name)
    program = ffi.new("PJRT_Program*")
    program.struct_size = table.STRUCT_SIZE["PJRT_Program"]
    address = int(ffi.cast("uintptr_t", program))
    function.raw(executable=executable, program=address)  # without code: asks for the size
    room = bounds.count(name, "code_size", program.code_size, bounds.MOST_BYTES)
    code = ffi.new("char[]", max(room, 1))
    program.code = code
    function.raw(executable=executable, program=address)
    return (
        bytes(ffi.buffer(code, bounds.count(name, "code_size", program.code_size, room))),
        bounds.text(name, "format", program.format, program.format_size).decode(),
    )


def output_dimensions(api: Api, executable: int) -> list[tuple[int, ...]]:
    """`PJRT_Executable_OutputDimensions`: one device's shape of each output."""
    return shapes(api.function("PJRT_Executable_OutputDimensions").raw(executable=executable))


def shapes(args: Any) -> list[tuple[int, ...]]:
    """Reads what `PJRT_Executable_OutputDimensions` answered."""
    name = "PJRT_Executable_OutputDimensions"
    found, start = [], 0
    for output in range(args.num_outputs):
        rank = bounds.count(name, "a rank", args.dim_sizes[output], bounds.MOST_DIMENSIONS)
        end = start + rank
        if rank and args.dims == ffi.NULL:
            refuse_answer(name, "NULL as dims")
        found.append(tuple(args.dims[i] for i in range(start, end)))
        start = end
    return found


def filled(node: Extension, name: str, capacity: int, **inputs: Any) -> tuple[tuple[int, ...], Any]:
    """Calls a function that fills the caller's array: the numbers, and the argument struct.

    Args:
        node: the function's.
        name: of a function that is told how many numbers there is room for.
        capacity: that many.
        inputs: all others.
    """
    function = node.function(name)
    fields = table.FIELDS[function.struct]
    array = next(field for field in fields if field.direction == "inout")
    limit = next(field for field in fields if field.direction == "in" and "max_" in field.name)
    numbers = ffi.new("int32_t[]", capacity)
    address = int(ffi.cast("uintptr_t", numbers))
    args = function.raw(**{array.name: address, limit.name: capacity}, **inputs)
    count = bounds.count(name, array.count, getattr(args, array.count), capacity)
    return tuple(numbers[0:count]), args


def routing_strategy(node: Extension, topology: int, capacity: int) -> str:
    """`PJRT_TpuTopology_GetRoutingStrategy`: NUL-terminated, in the caller's memory."""
    text = ffi.new("char[]", capacity)
    node.function("PJRT_TpuTopology_GetRoutingStrategy").raw(
        topology=topology,
        routing_strategy=int(ffi.cast("uintptr_t", text)),
        routing_strategy_len=capacity,
    )
    return bytes(ffi.string(text)).decode()


SliceConfig = tuple[tuple[int, ...], tuple[bool, ...], bool]


def slice_configs(node: Extension, capacity: int, **inputs: Any) -> list[SliceConfig]:
    """`PJRT_TpuTopology_GetSliceConfigs`: dimensions, wrap and twist of each."""
    configs = ffi.new("PJRT_TpuTopology_SliceConfig[]", capacity)
    name = "PJRT_TpuTopology_GetSliceConfigs"
    args = node.function(name).raw(
        slice_configs=int(ffi.cast("uintptr_t", configs)), max_slice_configs=capacity, **inputs
    )
    count = bounds.count(name, "num_slice_configs", args.num_slice_configs, capacity)
    return [_slice_config(configs[i]) for i in range(count)]


def slice_config(node: Extension, **inputs: Any) -> SliceConfig:
    """`PJRT_TpuTopology_GetSliceConfig`: dimensions, wrap and twist."""
    config = ffi.new("PJRT_TpuTopology_SliceConfig*")
    node.function("PJRT_TpuTopology_GetSliceConfig").raw(
        slice_config=int(ffi.cast("uintptr_t", config)), **inputs
    )
    return _slice_config(config)


def _slice_config(config: Any) -> SliceConfig:
    dims = config.dim_size  # what lies behind is not written
    return tuple(config.dimensions[0:dims]), tuple(config.wrap[0:dims]), bool(config.twist)


def named_values(node: Extension, name: str, **inputs: Any) -> dict[str, values.NamedValue]:
    """Calls a function that answers with named values and the deleter of what holds them."""
    function = node.function(name)
    args = function.raw(**inputs)
    fields = table.FIELDS[function.struct]
    found = next(each for each in fields if each.ctype == "const PJRT_NamedValue*")
    deleter = next(each for each in fields if "(*)" in each.ctype)
    holder = next(each for each in fields if f"(*)({each.ctype})" in deleter.ctype)
    try:
        return values.decode(getattr(args, found.name), getattr(args, found.count))
    finally:
        let_go(getattr(args, deleter.name), getattr(args, holder.name))


def host_memory(
    node: Extension, client: int, size: int, numa_node: int
) -> tuple[Any, Callable[[], None]]:
    """`PJRT_HostMemoryAllocator_Allocate`: memory with the buffer protocol, and what frees it."""
    name = "PJRT_HostMemoryAllocator_Allocate"
    args = node.function(name).raw(client=client, size=size, numa_node=numa_node)
    pointer, deleter, argument = args.ptr, args.deleter, args.deleter_arg
    if pointer == ffi.NULL:
        refuse_answer(name, "NULL as ptr")
    return ffi.buffer(pointer, size), lambda: let_go(deleter, pointer, argument)


def executable_metadata(node: Extension, executable: int) -> bytes:
    """`PJRT_ExecutableMetadata_GetExecutableMetadata`: bytes in a struct of the plugin's."""
    name = "PJRT_ExecutableMetadata_GetExecutableMetadata"
    metadata = node.function(name).raw(executable=executable).metadata
    if metadata == ffi.NULL:
        refuse_answer(name, "NULL as metadata")
    data, nbytes = metadata.serialized_metadata, metadata.serialized_metadata_size
    try:
        return bounds.text(name, "serialized_metadata", data, nbytes)
    finally:
        address = int(ffi.cast("uintptr_t", metadata))
        node.call("PJRT_ExecutableMetadata_DestroySerializedMetadata", metadata=address)


def device_attributes(api: Api, device: int) -> dict[str, values.NamedValue]:
    """`PJRT_Device_GetAttributes`: named values behind a deleter."""
    args = api.function("PJRT_Device_GetAttributes").raw(device=device)
    try:
        return values.decode(args.attributes, args.num_attributes)
    finally:
        let_go(args.attributes_deleter, args.device_attributes)


def default_device_assignment(
    api: Api, client: int, num_replicas: int, num_partitions: int
) -> list[int]:
    """`PJRT_Client_DefaultDeviceAssignment`: device ids, those of a replica together."""
    ids = ffi.new("int[]", num_replicas * num_partitions)
    api.function("PJRT_Client_DefaultDeviceAssignment").raw(
        client=client,
        num_replicas=num_replicas,
        num_partitions=num_partitions,
        default_assignment=int(ffi.cast("uintptr_t", ids)),
        default_assignment_size=len(ids),  # after the address, which counts nothing
    )
    return list(ids)


def minor_to_major(api: Api, buffer: int) -> tuple[int, ...] | None:
    """`PJRT_Buffer_GetMemoryLayout`: dimensions from the fastest-varying; None for strides."""
    return order(api.function("PJRT_Buffer_GetMemoryLayout").raw(buffer=buffer))


def order(args: Any) -> tuple[int, ...] | None:
    """Reads what `PJRT_Buffer_GetMemoryLayout` answered; None for strides."""
    if args.layout.type != _TILED:  # `args` is named because its members do not keep it alive
        return None
    tiled = args.layout.tiled
    return tuple(tiled.minor_to_major[i] for i in range(_rank(tiled)))


def byte_strides(api: Api, buffer: int, dims: Sequence[int], nbytes: int) -> list[int] | None:
    """`PJRT_Buffer_GetMemoryLayout`: the bytes from one element to the next; None for tiles.

    Args:
        api: the plugin.
        buffer: whose.
        dims: of the buffer.
        nbytes: of an element.
    """
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
    """Whether `PJRT_Buffer_GetMemoryLayout` tells of rows one after the other, without tiles."""
    if not api.has("PJRT_Buffer_GetMemoryLayout"):
        return False
    args = api.function("PJRT_Buffer_GetMemoryLayout").raw(buffer=buffer)
    if args.layout.type != _TILED or args.layout.tiled.num_tiles:
        return False
    tiled = args.layout.tiled
    told = [tiled.minor_to_major[i] for i in range(_rank(tiled))]
    return told == [*range(rank)][::-1]  # a plugin that does not say tells of none


def _rank(tiled: Any) -> int:
    name, rank = "PJRT_Buffer_GetMemoryLayout", tiled.minor_to_major_size
    bounds.count(name, "minor_to_major_size", rank, bounds.MOST_DIMENSIONS)
    if rank and tiled.minor_to_major == ffi.NULL:
        refuse_answer(name, "NULL as minor_to_major")
    return int(rank)


def memory_kinds(api: Api, name: str, executable: int) -> list[str]:
    """A list of texts that are not NUL-terminated: their sizes stand in a list beside it."""
    function = api.function(name)
    args = function.raw(executable=executable)
    kinds = next(each for each in table.FIELDS[function.struct] if each.name == "memory_kinds")
    count = getattr(args, kinds.count.split(",")[0])
    if count and args.memory_kind_sizes == ffi.NULL:
        refuse_answer(name, "NULL as memory_kind_sizes")
    return [
        bounds.text(name, "a kind", args.memory_kinds[i], args.memory_kind_sizes[i]).decode()
        for i in range(count)
    ]


def logical_ids(api: Api, executable: int) -> list[tuple[int, int]]:
    """`PJRT_LoadedExecutable_AddressableDeviceLogicalIds`: (replica, partition) of each device."""
    function = api.function("PJRT_LoadedExecutable_AddressableDeviceLogicalIds")
    args = function.raw(executable=executable)
    ids, count = args.addressable_device_logical_ids, args.num_addressable_device_logical_ids
    return [(ids[i].replica, ids[i].partition) for i in range(count)]


def answer(struct: str, function: int, data: int, code: int, message: str, dst: int = 0) -> None:
    """Calls a function that a plugin gave to be called back once, with its own data."""
    text = message.encode()
    pointer = ffi.from_buffer(text)
    args = ffi.new(f"{struct}*")
    args.struct_size = table.STRUCT_SIZE[struct]
    args.callback_data = ffi.cast("void*", data)
    args.error_code = code
    args.error_message = ffi.cast("const char*", pointer)
    args.error_message_size = len(text)
    if any(field.name == "dst" for field in table.FIELDS[struct]):
        args.dst = ffi.cast("void*", dst)
    ffi.cast(f"void (*)({struct}*)", function)(args)
