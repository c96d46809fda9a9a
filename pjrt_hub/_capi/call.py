"""Calling the C API (layer 1): bind a function to a plugin, size-check it, fill its struct, call.

Native pointers travel as int addresses, counted characters as bytes, counted arrays as lists.
Must not know what any single function is for: the tables say how its arguments are made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from pjrt_hub._capi import table, values
from pjrt_hub._capi._pjrt import ffi
from pjrt_hub._capi.status import raise_error
from pjrt_hub.abi import ApiVersion
from pjrt_hub.errors import UnsupportedByPluginError

_SCALARS = frozenset(
    [
        "bool",
        "int",
        "float",
        "double",
        "int32_t",
        "int64_t",
        "uint32_t",
        "uint64_t",
        "size_t",
        "intptr_t",
        "uintptr_t",
    ]
) | frozenset(table.ENUMS)

Encoder = Callable[[Any, list[Any]], Any]


class BoundFunction:
    """One function of one plugin's table, called with the argument struct's own field names.

    Counts are filled in from what they count. The result is the only output, a namespace of the
    outputs where there are several, or None; an output newer than the plugin is None, because
    older code never writes it.
    """

    def __init__(
        self,
        api_address: int,
        minor: int,
        name: str,
        pointer: Any,
        struct: str,
        raising: Callable[[int, int, str], NoReturn] = raise_error,
    ) -> None:
        self.name = name
        self.struct = struct
        self._api_address = api_address
        self._raising = raising
        self._pointer = pointer
        self._pointer_type = ffi.typeof(f"{struct}*")
        self._struct_size = table.STRUCT_SIZE[struct]
        # A few functions of extensions take a struct that does not tell its size.
        self._sized = ffi.typeof(struct).fields[0][0] == "struct_size"
        self._fields = {field.name: field for field in table.FIELDS[struct]}
        # What the function fills in the caller's own memory is no output: the caller has it.
        outputs = [
            field
            for field in self._fields.values()
            if field.direction == "out" or (field.direction == "inout" and not field.count)
        ]
        counts = {count for field in outputs for count in field.count.split(",")}
        self._outputs = tuple(
            (field, field.since <= minor) for field in outputs if field.name not in counts
        )

    def __call__(self, **inputs: Any) -> Any:
        """Calls it and reads the outputs.

        Raises:
            PjrtError: the plugin answered with an error.
        """
        args = self.raw(**inputs)
        if len(self._outputs) == 1:
            return _output(args, *self._outputs[0])
        if not self._outputs:
            return None
        return SimpleNamespace(**{f.name: _output(args, f, known) for f, known in self._outputs})

    def raw(self, **inputs: Any) -> Any:
        """Calls it and gives the argument struct itself, for outputs that need more care."""
        keep: list[Any] = []
        # Zeroed and of the newest size: an older plugin reads less of it.
        args = ffi.new(self._pointer_type)
        if self._sized:
            args.struct_size = self._struct_size
        for name, value in inputs.items():
            _assign(args, self._fields[name], value, keep)
        error = self._pointer(args)
        if error:
            self._raising(self._api_address, _address(error), self.name)
        return args


class Struct:
    """A struct that a caller fills for a plugin to read, alive as long as this object.

    Args:
        name: of the C struct.
        members: its fields by name, as for `BoundFunction`.
        version: of the plugin's API, which reads nothing that is newer.

    Raises:
        UnsupportedByPluginError: a field is newer than the plugin.
    """

    def __init__(self, name: str, members: Mapping[str, Any], version: ApiVersion) -> None:
        since = {field.name: field.since for field in table.FIELDS[name]}
        for member in members:
            if since[member] > version.minor:
                came = ApiVersion(0, since[member])
                raise UnsupportedByPluginError(
                    f"the plugin does not read {name}.{member}: it came with PJRT API {came}, the "
                    f"plugin has {version}",
                    function=name,
                    since=str(came),
                    have=str(version),
                )
        self._keep: list[Any] = []
        self.address = _address(_struct(name, members, self._keep))

    def keep(self, *things: Any) -> None:
        """Keeps what the struct points at alive as long as the struct."""
        self._keep += things


def interruptible(
    function: Callable[[], Any],
    discard: Callable[[Any], None],
    ended: Callable[[], None] = lambda: None,
) -> Any:
    """Runs a long native call so that Ctrl-C ends the waiting, not the process.

    Signals reach only the main thread, so elsewhere the call is made directly. On an interrupt the
    call runs on to its end in its thread, and `discard` takes its result. `ended` is called last of
    all, however it went.
    """
    if threading.current_thread() is not threading.main_thread():
        try:
            return function()
        finally:
            ended()
    done = threading.Event()
    lock = threading.Lock()
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = function()
        except BaseException as exc:
            outcome["error"] = exc
        with lock:
            if "abandoned" not in outcome:
                ended()
                done.set()
                return
        try:
            if "value" in outcome:
                discard(outcome["value"])
        finally:
            ended()

    thread = threading.Thread(target=run, name="pjrt-hub call", daemon=True)
    try:
        try:
            thread.start()
        except RuntimeError:  # Python is ending and starts no thread any more
            run()
        done.wait()
    except BaseException:
        with lock:
            outcome["abandoned"] = True
            finished = done.is_set()
        if finished and "value" in outcome:
            discard(outcome["value"])
        raise
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _assign(args: Any, field: table.Field, value: Any, keep: list[Any]) -> None:
    count, _, sizes = field.count.partition(",")
    if sizes and not isinstance(value, int):
        setattr(args, sizes, _sizes(args, sizes, value, keep))
        value = [_characters(each, keep) for each in value]
    encoded, number = _encode(field, value, keep)
    setattr(args, field.name, encoded)
    if count:
        setattr(args, count, number)


def _sizes(args: Any, name: str, texts: Sequence[str | bytes], keep: list[Any]) -> Any:
    """Makes the array that counts each of several texts."""
    sizes = ffi.new("size_t[]", [len(_bytes(text)) for text in texts])
    keep.append(sizes)
    return ffi.cast(ffi.typeof(getattr(args, name)), sizes)


def _characters(text: str | bytes, keep: list[Any]) -> int:
    pointer = ffi.from_buffer(_bytes(text))
    keep.append(pointer)
    return _address(pointer)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _encode(field: table.Field, value: Any, keep: list[Any]) -> tuple[Any, int]:
    ctype = field.ctype
    if ctype in _SCALARS:
        return value, 0
    if isinstance(value, int):
        return ffi.cast(ctype, value), 0
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        data = value if field.count else bytes(value) + b"\0"  # uncounted text is NUL-terminated
        pointer = ffi.from_buffer(data)
        keep.append(pointer)
        return ffi.cast(ctype, pointer), len(value)
    element = ctype.removeprefix("const ").removesuffix("*").strip()
    if isinstance(value, Mapping):
        if element == "PJRT_NamedValue":
            array = values.encode(value, keep)
            keep.append(array)
            return array, len(value)
        struct = _struct(element, value, keep)
        return (struct if ctype.endswith("*") else struct[0]), 1
    if isinstance(value, Sequence):
        element = element.removesuffix("const").strip()
        array = ffi.new(f"{element}[]", [_element(element, each, keep) for each in value])
        keep.append(array)
        return array, len(value)
    raise TypeError(f"{field.name}: cannot make {ctype} of {value!r}")


def _element(element: str, value: Any, keep: list[Any]) -> Any:
    if isinstance(value, Mapping):
        return _struct(element, value, keep)[0]
    return ffi.cast(element, value) if element.endswith("*") else value


def _struct(name: str, members: Mapping[str, Any], keep: list[Any]) -> Any:
    struct = ffi.new(f"{name}*")
    keep.append(struct)
    if hasattr(struct, "struct_size"):
        struct.struct_size = table.STRUCT_SIZE[name]
    fields = {field.name: field for field in table.FIELDS[name]}
    for member, value in members.items():
        _assign(struct, fields[member], value, keep)
    return struct


def _output(args: Any, field: table.Field, known: bool) -> Any:
    if not known:
        return None
    value = getattr(args, field.name)
    if field.ctype in _SCALARS:
        return value
    if not field.count:
        return _address(value)
    number, _, sizes = field.count.partition(",")
    count = getattr(args, number)
    if sizes:
        each = getattr(args, sizes)
        return [bytes(ffi.buffer(value[i], each[i])) for i in range(count)]
    if field.ctype.replace("const ", "") == "PJRT_NamedValue*":
        return values.decode(value, count)
    if field.ctype in ("const char*", "char*"):
        return bytes(ffi.buffer(value, count)) if count else b""
    if field.ctype in ("const char* const*", "const char**"):
        return [_address(value[i]) for i in range(count)]
    items = [value[i] for i in range(count)]
    return [_address(item) if isinstance(item, ffi.CData) else item for item in items]


def _address(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))
