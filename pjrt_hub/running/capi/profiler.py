"""The profiler: another table of functions, which the extension Profiler points at.

It has errors and sizes of its own. Must not know what a profile holds.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pjrt_hub.errors import UnsupportedByPluginError
from pjrt_hub.running.capi import table, values, wire
from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.call import BoundFunction
from pjrt_hub.running.capi.library import Api
from pjrt_hub.running.capi.status import error_class

_POINTER = 8
_FUNCTIONS = {
    field.ctype.removesuffix("*"): field.name
    for field in table.FIELDS["PLUGIN_Profiler_Api"]
    if field.ctype.startswith("PLUGIN_")
}


class ProfilerApi:
    """The `PLUGIN_Profiler_Api` of a plugin; UnsupportedByPluginError if it has none."""

    def __init__(self, api: Api) -> None:
        node = ffi.cast("PJRT_Profiler_Extension*", api.extension("Profiler").address)
        self._api = api
        self._table = node.profiler_api
        if self._table == ffi.NULL:
            raise self._lacks("PJRT_Profiler_Extension.profiler_api")

    def has(self, name: str) -> bool:
        """Tell whether the table holds the function `name`."""
        field = _FUNCTIONS[name]
        end = ffi.offsetof("PLUGIN_Profiler_Api", field) + _POINTER
        return bool(end <= self._table.struct_size and getattr(self._table, field) != ffi.NULL)

    def call(self, name: str, **inputs: Any) -> Any:
        """Call a function of the table; see `call.BoundFunction`."""
        return self._function(name)(**inputs)

    def collect(self, profiler: int) -> bytes:
        """Return an XSpace (`PLUGIN_Profiler_CollectData`).

        Plugins lend their own memory; those that want the caller's are asked a second time. Some
        count a NUL after the message, which is cut off.
        """
        collect = self._function("PLUGIN_Profiler_CollectData")
        args = collect.raw(profiler=profiler)
        size, data = args.buffer_size_in_bytes, args.buffer
        values.require_count("PLUGIN_Profiler_CollectData", "a size", size, values.MOST_BYTES)
        if size and data == ffi.NULL:
            data = ffi.new("uint8_t[]", size)
            address = int(ffi.cast("uintptr_t", data))
            collect.raw(profiler=profiler, buffer=address, buffer_size_in_bytes=size)
        xspace = bytes(ffi.buffer(data, size)) if size else b""
        return xspace if _is_message(xspace) else xspace[:-1]

    def _function(self, name: str) -> BoundFunction:
        if not self.has(name):
            raise self._lacks(name)
        pointer = getattr(self._table, _FUNCTIONS[name])
        minor = self._api.version.minor
        return BoundFunction(
            self._api.address, minor, name, pointer, f"{name}_Args", self._raise_error
        )

    def _lacks(self, name: str) -> UnsupportedByPluginError:
        return UnsupportedByPluginError(
            f"the profiler of the plugin {self._api.path.name} lacks {name}",
            function=name,
            since="a profiler that has it",
            have=str(self._api.version),
        )

    def _raise_error(self, _api: int, error: int, function: str) -> NoReturn:
        """Raise the exception for a `PLUGIN_Profiler_Error*`, and free that."""
        pointer = ffi.cast("PLUGIN_Profiler_Error*", error)
        try:
            message = self._args("PLUGIN_Profiler_Error_Message_Args", pointer)
            self._table.error_message(message)
            name = "PLUGIN_Profiler_Error_Message"
            text = values.text(name, "message", message.message, message.message_size)
            code = self._args("PLUGIN_Profiler_Error_GetCode_Args", pointer)
            # This may return an error in turn, which is ignored and leaks; none has been seen.
            self._table.error_get_code(code)
        finally:
            self._table.error_destroy(self._args("PLUGIN_Profiler_Error_Destroy_Args", pointer))
        raise error_class(code.code)(
            f"{function}: {text.decode('utf-8', 'replace')}", code=code.code, function=function
        )

    def _args(self, struct: str, error: Any) -> Any:
        args = ffi.new(f"{struct}*")
        args.struct_size = table.STRUCT_SIZE[struct]
        args.priv = self._table.priv
        args.error = error
        return args


def _is_message(data: bytes) -> bool:
    try:
        return all(number for number, _ in wire.fields(memoryview(data)))
    except ValueError:
        return False
