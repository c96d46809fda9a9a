"""Calling the C API: bind a function to a plugin, size-check it, fill its struct, call.

Native pointers travel as int addresses, counted characters as bytes, counted arrays as lists.
Must not know what any single function is for: the tables say how its arguments are made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import UnsupportedByPluginError
from pjrt_hub.running.capi import hotpath, table, values
from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.status import REPEATABLE, raise_error, refuse_answer

#: The letters by which the compiled call path names plain types, as the module `struct` does.
_KINDS = {
    "bool": "?",
    "int": "i",
    "int32_t": "i",
    "uint32_t": "I",
    "int64_t": "q",
    "intptr_t": "q",
    "uint64_t": "Q",
    "uintptr_t": "Q",
    "size_t": "Q",
    "float": "f",
    "double": "d",
} | dict.fromkeys(table.ENUMS, "i")


#: How often, in seconds, the main thread wakes for signals that other threads received.
_LOOK_SECONDS = 1.0
#: The types of text, whose counts are in bytes.
_TEXTS = ("const char*", "char*")
#: Types of objects that no answer may lack. Events may be NULL if nothing is pending.
_OBJECTS = {
    *("PJRT_AsyncHostToDeviceTransferManager", "PJRT_Buffer", "PJRT_Client", "PJRT_Device"),
    *("PJRT_DeviceDescription", "PJRT_Executable", "PJRT_ExecuteContext"),
    *("PJRT_LoadedExecutable", "PJRT_Memory", "PJRT_TopologyDescription"),
}


class BoundFunction(hotpath.Function):
    """One function of one plugin's table, called with the argument struct's own field names.

    Counts are filled in from what they count. The result is the only output, a namespace of the
    outputs if there are several, or None; an output newer than the plugin is None, because older
    code never writes it. An answer that comes with its deleter is copied, and deleted. A function
    of plain fields is compiled: `Functions.call` then calls it without Python.
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
        self._repeats = raising is raise_error and name in REPEATABLE
        self._pointer = pointer
        self._pointer_type = ffi.typeof(f"{struct}*")
        self._struct_size = table.STRUCT_SIZE[struct]
        # The structs of a few functions of extensions have no `struct_size`.
        self._sized = ffi.typeof(struct).fields[0][0] == "struct_size"
        self._fields = {field.name: field for field in table.FIELDS[struct]}
        self._outputs = tuple((field, field.since <= minor) for field in _outputs(struct))
        answers = ffi.typeof(pointer).result.kind == "pointer"
        if answers and not not_plain(struct):
            self._compile(
                values.address(pointer),
                ffi.sizeof(struct),
                self._struct_size if self._sized else 0,
                tuple(
                    (field.name, ffi.offsetof(struct, field.name), _kind(field.ctype), -1, True)
                    for field in _inputs(struct)
                ),
                tuple(_output_row(struct, field, known) for field, known in self._outputs),
                SimpleNamespace,
            )

    def __call__(self, **inputs: Any) -> Any:
        """Call it through Python, whatever its fields are."""
        args = self.raw(**inputs)
        try:
            outputs = self.read(args)
        finally:
            self.free(args)
        if len(outputs) == 1:
            return next(iter(outputs.values()))
        return SimpleNamespace(**outputs) if outputs else None

    def read(self, args: Any) -> dict[str, Any]:
        """Read the outputs of a struct that `raw` gave; it may be read again until it is freed."""
        return {field.name: self._output(args, field, known) for field, known in self._outputs}

    def free(self, args: Any) -> bool:
        """Call the deleter of an answer, if it came with one, and return whether it did."""
        owner = _owner(self.struct)
        if owner is None or getattr(args, owner[0]) == ffi.NULL:
            return False  # An answer without a deleter has nothing to free.
        getattr(args, owner[0])(getattr(args, owner[1]))
        return True

    def raw(self, **inputs: Any) -> Any:
        """Call the function and return its argument struct, for outputs that need more care."""
        keep: list[Any] = []
        # The struct is zeroed and has the newest size; an older plugin reads only its beginning.
        args = ffi.new(self._pointer_type)
        if self._sized:
            args.struct_size = self._struct_size
        for name, value in inputs.items():
            assign(args, self._fields[name], value, keep)
        if error := self._pointer(args):
            self._fail(values.address(error))
            if error := self._pointer(args):
                self._fail(values.address(error), again=True)
        for field, known in self._outputs:
            if known and field.direction == "out":
                _check(self.name, args, field)
        return args

    def _fail(self, error: int, again: bool = False) -> None:
        """Raise for an error, unless the function may be called `again`, and was not yet."""
        if again or not self._repeats or not hotpath.reclaim(self._api_address, error):
            self._raising(self._api_address, error, self.name)

    def _output(self, args: Any, field: table.Field, known: bool) -> Any:
        if not known:
            return None
        value = getattr(args, field.name)
        if field.ctype in _KINDS:
            return value
        if not field.count:
            return values.address(value)
        number, _, sizes = field.count.partition(",")
        if number.startswith("sum "):
            return self._rows(args, field, number.removeprefix("sum "))
        count = getattr(args, number)
        if sizes:
            each = getattr(args, sizes)
            if count and each == ffi.NULL:
                refuse_answer(self.name, f"NULL as {sizes}")
            return [values.text(self.name, field.name, value[i], each[i]) for i in range(count)]
        if field.ctype.replace("const ", "") == "PJRT_NamedValue*":
            return values.decode(value, count)
        if field.ctype in _TEXTS:
            return values.text(self.name, field.name, value, count)
        return [_element_value(value[i]) for i in range(count)]

    def _rows(self, args: Any, field: table.Field, sizes: str) -> list[tuple[Any, ...]]:
        """Read rows that lie one after the other, each as long as `sizes` says."""
        counted = self._fields[sizes]
        count = values.require_count(self.name, counted.count, getattr(args, counted.count))
        if count and getattr(args, sizes) == ffi.NULL:
            refuse_answer(self.name, f"NULL as {sizes}")
        rows, start = [], 0
        for number in range(count):
            size = getattr(args, sizes)[number]
            values.require_count(self.name, f"one of {sizes}", size, values.MOST_DIMENSIONS)
            if size and getattr(args, field.name) == ffi.NULL:
                refuse_answer(self.name, f"NULL as {field.name}")
            rows.append(tuple(getattr(args, field.name)[i] for i in range(start, start + size)))
            start += size
        return rows


def not_plain(struct: str) -> tuple[str, ...]:
    """Return the fields of an argument struct that only Python can fill or read.

    Plain inputs are numbers and addresses. Plain outputs are also bytes and lists of these, unless
    they come with a deleter.
    """
    inputs = [
        field.name
        for field in _inputs(struct)
        if (field.count and field.direction == "in") or not _kind(field.ctype)
    ]
    outputs = [field.name for field in _outputs(struct) if not _output_row(struct, field, True)[2]]
    owner = _owner(struct) or ()
    return tuple(dict.fromkeys([*inputs, *outputs, *owner[:1]]))


class Struct:
    """A struct that a caller fills by name for a plugin to read, alive as long as this object."""

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
        self.address = values.address(_struct(name, members, self._keep))

    def keep(self, *things: Any) -> None:
        """Keep what the struct points at alive as long as the struct."""
        self._keep += things


def interruptible(
    function: Callable[[], Any],
    discard: Callable[[Any], None],
    ended: Callable[[], None] = lambda: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Any:
    """Run a long native call so that Ctrl-C ends the waiting, not the process.

    Signals reach only the main thread, so elsewhere the call is made directly. On an interrupt the
    call runs on to its end in its thread, and `discard` takes its result. `ended` is always called
    last. `meanwhile` is called on the main thread, which would only wait.
    """
    if threading.current_thread() is not threading.main_thread():
        try:
            return function()
        finally:
            ended()
    done = threading.Event()
    lock = Lock()
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
        except RuntimeError:  # Python cannot start threads while it exits.
            hotpath.aside(run)
        meanwhile()
        while not done.wait(_LOOK_SECONDS):
            pass
    except BaseException:
        hotpath.interrupt()
        with lock:
            outcome["abandoned"] = True
            finished = done.is_set()
        if finished and "value" in outcome:
            discard(outcome["value"])
        raise
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _inputs(struct: str) -> list[table.Field]:
    """Return the fields that a caller sets, including the counts of arrays passed by address."""
    given = [field for field in table.FIELDS[struct] if field.direction != "out"]
    counts = {
        count for field in given if field.direction == "in" for count in field.count.split(",")
    }
    return [field for field in given if field.name not in counts]


def _outputs(struct: str) -> list[table.Field]:
    """Return the fields that a function sets, except arrays in the caller's own memory."""
    answers = [
        field
        for field in table.FIELDS[struct]
        if field.direction == "out" or (field.direction == "inout" and not field.count)
    ]
    counts = {count.removeprefix("sum ") for field in answers for count in field.count.split(",")}
    owner = _owner(struct) or ()
    return [
        field
        for field in answers
        if field.name not in counts and (field.count or field.name not in owner)
    ]


def _owner(struct: str) -> tuple[str, str] | None:
    """Return the deleter that comes with an answer, and the field that it is called with."""
    answers = [field for field in table.FIELDS[struct] if field.direction == "out"]
    for deleter in answers:
        for holder in answers:
            if deleter.ctype == f"void (*)({holder.ctype})":
                return deleter.name, holder.name
    return None


#: A field's name, offset, kind, offset of its count (or -1), and whether the plugin knows it.
Row = tuple[str, int, str, int, bool]


def _output_row(struct: str, field: table.Field, known: bool) -> Row:
    offset = ffi.offsetof(struct, field.name)
    if not field.count:
        return field.name, offset, "O" if _is_object(field) else _kind(field.ctype), -1, known
    counted = any(count.name == field.count for count in table.FIELDS[struct])
    element = field.ctype.removesuffix("*").strip().removesuffix("const").strip()
    kind = "s" if element in ("char", "const char") else _kind(element.removeprefix("const "))
    kind = "O" if _is_object(field) else kind
    count = ffi.offsetof(struct, field.count) if counted else -1
    return field.name, offset, kind if counted else "", count, known


def _is_object(field: table.Field) -> bool:
    """Tell whether a field is an object of the plugin, or a list of them; none may be NULL."""
    return field.ctype.split("*")[0].removeprefix("const ").strip() in _OBJECTS


def _check(function: str, args: Any, field: table.Field) -> None:
    """Refuse an answer with NULL for a required pointer, or with an implausible count."""
    if not field.ctype.endswith("*"):
        return
    value = getattr(args, field.name)
    words = field.count.split(",")[0].split()
    if not words:
        null = _is_object(field) and not value
    elif len(words) > 1:  # `_rows` checks each length of a "sum dim_sizes".
        return
    else:
        most = values.MOST_BYTES if field.ctype in _TEXTS else values.MOST_ELEMENTS
        count = values.require_count(function, words[0], getattr(args, words[0]), most)
        null = bool(count) and not value
        if _is_object(field) and not null:
            null = not all(value[i] for i in range(count))
    if null:
        refuse_answer(function, f"NULL as {field.name}")


def _kind(ctype: str) -> str:
    """Return the kind of a number or of an opaque address; "" for all other types."""
    if ctype in _KINDS:
        return _KINDS[ctype]
    pointer = "(*)" in ctype or ctype.endswith(("*", "Callback", "Visitor"))
    target = ctype.removesuffix("*").strip().removeprefix("const ").strip()
    members = [field.name for field in table.FIELDS.get(target, ())]
    # char* holds text and other structs have members; an opaque type has at most a vtable.
    return "P" if pointer and target != "char" and members in ([], ["vtable"]) else ""


def assign(args: Any, field: table.Field, value: Any, keep: list[Any]) -> None:
    count, _, sizes = field.count.partition(",")
    if sizes and not isinstance(value, int):
        rows = [_row(field.ctype, each, keep) for each in value]
        lengths = ffi.new("size_t[]", [len(row) for row in rows])
        keep.append(lengths)
        setattr(args, sizes, ffi.cast(ffi.typeof(getattr(args, sizes)), lengths))
        value = [values.address(row) for row in rows]
    encoded, number = _encode(field, value, keep)
    setattr(args, field.name, encoded)
    # A caller that gives an address gives its count as well. Rows are counted by their lengths.
    if count and not isinstance(value, int) and not count.startswith("sum "):
        setattr(args, count, number)


def _row(ctype: str, row: Any, keep: list[Any]) -> Any:
    """Make the C array for one of several texts, or one of several lists of numbers."""
    if isinstance(row, str | bytes | bytearray | memoryview):
        array = ffi.from_buffer(row.encode() if isinstance(row, str) else row)
    else:
        array = ffi.new(f"{ctype.removeprefix('const ').rstrip('*')}[]", list(row))
    keep.append(array)
    return array


def _encode(field: table.Field, value: Any, keep: list[Any]) -> tuple[Any, int]:
    ctype = field.ctype
    if ctype in _KINDS:
        return value, 0
    if isinstance(value, int):
        return _pointer(ctype, value), 0
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        data = value if field.count else bytes(value) + b"\0"  # Text without a count ends with NUL.
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
    return _pointer(element, value) if element.endswith("*") else value


def _pointer(ctype: str, address: int) -> Any:
    if not 0 <= address < 1 << 64:  # ffi.cast would wrap such an address.
        raise OverflowError(f"{address} does not fit {ctype}")
    return ffi.cast(ctype, address)


def _struct(name: str, members: Mapping[str, Any], keep: list[Any]) -> Any:
    struct = ffi.new(f"{name}*")
    keep.append(struct)
    if hasattr(struct, "struct_size"):
        struct.struct_size = table.STRUCT_SIZE[name]
    fields = {field.name: field for field in table.FIELDS[name]}
    for member, value in members.items():
        assign(struct, fields[member], value, keep)
    return struct


def _element_value(element: Any) -> Any:
    """Return a number, an address, or the members of a struct."""
    if not isinstance(element, ffi.CData):
        return element
    ctype = ffi.typeof(element)
    if ctype.kind != "struct":
        return values.address(element)
    return tuple(
        getattr(element, field.name) for field in table.FIELDS[ctype.cname.removeprefix("struct ")]
    )
