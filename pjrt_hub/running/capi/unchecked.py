"""Unchecked use of the C API, to test how a plugin reacts.

Owns untrusted memory, structs of any size, and errors that are inspected before they are
freed. Must not be used to run programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.running.capi import hotpath, irregular, table, values
from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.call import BoundFunction, assign
from pjrt_hub.running.capi.library import Api, Extension, chain
from pjrt_hub.running.capi.status import FIRST_SLOT, raise_error, version_of

_WORD = 8
_JUNK = 0xA5
_BEHIND = 16  # The number of words after a struct, which a plugin must not touch.


class Entry(NamedTuple):
    """The beginning of a plugin's function table; an extension_start of 0 means no extensions."""

    address: int
    struct_size: int
    version: ApiVersion
    extension_start: int

    @classmethod
    def of(cls, path: Path) -> Entry | None:
        """Load a library and read only these fields of its table; None if there is no table."""
        address = hotpath.get_pjrt_api(hotpath.open_library(str(path)))
        if not address:
            return None
        api = ffi.cast("PJRT_Api*", address)
        start = values.address(api.extension_start)
        return cls(address, int(api.struct_size), version_of(api), start)

    def slots(self) -> list[int]:
        """Return the address of the function in each slot, 0 for NULL."""
        words = ffi.cast("uintptr_t*", self.address + FIRST_SLOT)
        return [int(words[i]) for i in range((self.struct_size - FIRST_SLOT) // _WORD)]

    def chain(self) -> Iterator[tuple[int, int]]:
        """Yield type and struct_size of each node; a faulty chain may never end."""
        for node in chain(ffi.cast("PJRT_Extension_Base*", self.extension_start)):
            yield int(node.type), int(node.struct_size)


class Sized:
    """A struct of any size; after one that is shorter than the newest there are junk bytes."""

    def __init__(self, name: str, size: int, **members: Any) -> None:
        self.name = name
        self.size = size
        self._keep: list[Any] = []
        newest = ffi.sizeof(name)
        self._memory = ffi.new("uint64_t[]", -(-max(newest, size) // _WORD) + _BEHIND)
        self._bytes = ffi.buffer(self._memory)
        self._struct = ffi.cast(f"{name}*", self._memory)
        fields = {field.name: field for field in table.FIELDS[name]}
        for member, value in members.items():
            assign(self._struct, fields[member], value, self._keep)
        # Even a struct that claims to be empty is whole, so that a plugin can refuse it safely.
        self._end = size if size >= _WORD else len(self._bytes)
        if size < newest:
            self._bytes[self._end :] = bytes([_JUNK]) * (len(self._bytes) - self._end)
        self._struct.struct_size = size
        self._behind = self._bytes[self._end :]
        self.address = values.address(self._memory)

    def overwritten(self) -> int:
        """Return how many bytes after the struct's end have changed."""
        behind = self._bytes[self._end :]
        return sum(now != then for now, then in zip(behind, self._behind, strict=True))

    def __getattr__(self, member: str) -> Any:
        value = getattr(self._struct, member)
        return values.address(value) if isinstance(value, ffi.CData) else value


def call(functions: Api | Extension, name: str, args: Sized) -> None:
    """Call a function with a struct of any size."""
    function = functions.function(name)
    if error := function._pointer(ffi.cast(f"{function.struct}*", args.address)):
        raise_error(function._api_address, values.address(error), name)


def pointers(node: Extension) -> dict[str, int]:
    """Return the address of each function that a node is large enough for, 0 for NULL."""
    return {
        name: values.address(getattr(node._node, field))
        for name, (field, function) in node._rows.items()
        if function.offset + _WORD <= node.size
    }


def size_at(struct: str, minor: int) -> int:
    """Return the struct_size that an older API sends: the end of the last field that it knows."""
    first, *rest = table.FIELDS[struct]
    known = [first.name, *(field.name for field in rest if field.since <= minor)]
    fields = dict(ffi.typeof(struct).fields)
    return int(max(fields[name].offset + ffi.sizeof(fields[name].type) for name in known))


def named_values(api: Api, name: str, **inputs: Any) -> list[tuple[str, values.NamedValue]]:
    """Return a function's named values as a list, in its order: a name may come twice."""
    function = api.function(name)
    args = function.raw(**inputs)
    field = next(
        each for each in table.FIELDS[function.struct] if each.ctype == "const PJRT_NamedValue*"
    )
    array = getattr(args, field.name)
    return [
        pair
        for i in range(getattr(args, field.count))
        for pair in values.decode(array + i, 1).items()
    ]


def reader(api: Api, name: str, **inputs: Any) -> Callable[[], object]:
    """Call a function, and return a callable that reads the answer again in the plugin's memory."""
    function = api.function(name)
    args = function.raw(**inputs)
    if name == "PJRT_Buffer_GetMemoryLayout":  # The answer has a union, which `read` cannot handle.
        return lambda: irregular.order(args)
    return lambda: function.read(args)


def has_deleter(api: Api, name: str, **inputs: Any) -> bool:
    """Get and free an answer that the caller owns; tell whether it had a deleter, or needs none."""
    function = api.function(name)
    args = function.raw(**inputs)
    counts = (each.count for each in table.FIELDS[function.struct] if each.direction == "out")
    is_empty = not any(getattr(args, count) for count in counts if count)
    return bool(function.free(args)) or is_empty


@contextmanager
def provoke(api: Api, name: str, **inputs: Any) -> Iterator[int]:
    """Make a call that should fail; give the address of its error, or 0, and free it at the end."""
    error = 0

    def keep(_: int, address: int, __: str) -> NoReturn:
        nonlocal error
        error = address
        raise _Found

    bound = api.function(name)
    struct, pointer = bound.struct, bound._pointer
    function = BoundFunction(api.address, api.version.minor, name, pointer, struct, keep)
    with suppress(_Found):
        function.raw(**inputs)
    try:
        yield error
    finally:
        if error:
            api.call("PJRT_Error_Destroy", error=error)


def by_its_table(error: int) -> tuple[int, bytes] | None:
    """Read an error's code and message by the functions in its vtable, or None without those."""
    told = ffi.cast("PJRT_Error*", error)
    table = told.vtable
    if not table or not all((table.destroy, table.message, table.get_code, table.for_each_payload)):
        return None
    message, size = ffi.new("const char**"), ffi.new("size_t*")
    table.message(told, message, size)
    return int(table.get_code(told)), bytes(ffi.buffer(message[0], size[0])) if size[0] else b""


class UserData:
    """The data that hosts attach to a `PJRT_Memory`, by the functions in its vtable."""

    def __init__(self, memory: int) -> None:
        self._memory = ffi.cast("PJRT_Memory*", memory)
        self._table = self._memory.vtable
        self.is_there = bool(
            self._table and self._table.get_user_data and self._table.set_user_data
        )

    def get(self, key: int) -> int:
        """Return the address that is stored under a key, 0 for none."""
        return values.address(self._table.get_user_data(self._memory, ffi.cast("void*", key)))

    def set(self, key: int, data: int, destroy: int) -> None:
        """Store an address under a key; destroying the memory calls `destroy` with the address."""
        self._table.set_user_data(
            self._memory,
            ffi.cast("void*", key),
            ffi.cast("void*", data),
            ffi.cast("void(*)(void*)", destroy),
        )


class _Found(Exception):
    """The plugin answered with an error."""
