"""Custom calls: functions that a program calls by name, `stablehlo.custom_call`.

Owns registering and what a Python function sees of a call; entry points and frames are `capi`'s.
Imports numpy late.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pjrt_hub import errors
from pjrt_hub.base.fork import Lock
from pjrt_hub.running.array import dtypes, packing
from pjrt_hub.running.capi import callbacks, custom_calls, hotpath, status
from pjrt_hub.running.capi.library import Api, Extension

if TYPE_CHECKING:
    import numpy

    from pjrt_hub.running.extensions.execute_context import ExecuteContext

_HOST, _CUDA = "Host", "CUDA"
_GPU_API_VERSION = 1  # This tells the GPU extension that it gets an XLA FFI handler.
_TOKEN = 17
_TYPE_NAME = "pjrt_hub.user_data"

_registering = Lock()
_registered: dict[int, dict[tuple[str, str], tuple[Any, ...]]] = {}
_user_data_types: dict[int, int | None] = {}
_state_typing = Lock()
_state_types: dict[int, int] = {}
_functions: dict[int, int] = {}
_user_data: weakref.WeakValueDictionary[int, _UserData] = weakref.WeakValueDictionary()
_tokens = itertools.count(1)
_running = threading.local()


class _UserData:
    """An object that calls find by a number, for as long as their execute context lives."""

    def __init__(self, value: object) -> None:
        self.value = value
        self.token = next(_tokens)
        _user_data[self.token] = self


class DeviceArray:
    """An argument or result on an accelerator, valid until the function returns.

    Attributes:
        shape: the dimensions.
        dtype: as numpy or ml_dtypes has it.
        address: of the first element in the device's memory; row-major.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: numpy.dtype[Any], address: int, stream: int | None
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.address = address
        self._stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Serve CuPy, Numba and torch (version 3 of the interface)."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "stream": self._stream or 1,
        }


class CustomCall:
    """The call that a Python function is serving.

    Attributes:
        name: the target's name.
        platform: "Host", "CUDA".
    """

    def __init__(self, name: str, platform: str, api: Api, frame: custom_calls.Frame) -> None:
        self.name = name
        self.platform = platform
        self.api = api
        self._frame = frame

    @property
    def user_data(self) -> object:
        """The object that `add_user_data` attached, or None (`XLA_FFI_InvokeContext_Get`)."""
        type_id = _user_data_types.get(self.api.address)
        token = None if type_id is None else self._frame.user_data(type_id)
        known = None if token is None else _user_data.get(token)
        return None if known is None else known.value

    def lent(self, type_id: int, index: int) -> Any:
        """Return one of the Python objects that a framework lent to the execution, or None.

        Args:
            type_id: the type by which the framework attached the list of their addresses.
            index: the object's place in the list.
        """
        return self._frame.python_object(type_id, index)

    @property
    def num_arguments(self) -> int:
        """How many of the arrays that the function gets are arguments; the rest are results."""
        return len(self._frame.arguments())

    @property
    def state(self) -> object:
        """The result of `instantiate` for this call, or None (`XLA_FFI_State_Get`)."""
        type_id = _state_types.get(self.api.address)
        ticket = None if type_id is None else self._frame.state(type_id)
        return hotpath.ffi_kept(ticket, False) if ticket else None

    @property
    def stream(self) -> int | None:
        """The platform's stream, for example a `CUstream`; None on the host."""
        is_host = self.platform == _HOST
        return None if is_host else self._frame.number("XLA_FFI_Stream_Get", "stream")

    @property
    def device_ordinal(self) -> int | None:
        """The device's number; None if the plugin does not report it."""
        return self._frame.number("XLA_FFI_DeviceOrdinal_Get", "device_ordinal")

    @property
    def run_id(self) -> int | None:
        """A number, equal in all calls of one execution; None if the plugin does not report it."""
        return self._frame.number("XLA_FFI_RunId_Get", "run_id")


class CustomCalls:
    """The custom calls of one plugin: `plugin.ffi`."""

    def __init__(self, api: Api) -> None:
        self.api = api

    @property
    def registered(self) -> tuple[tuple[str, str], ...]:
        """The (name, platform) of each function registered here, in order."""
        return tuple(_registered.get(self.api.address, ()))

    @property
    def handlers(self) -> list[tuple[str, str, bool]]:
        """The name and platform of each function, and whether a command buffer may record it."""
        known = _registered.get(self.api.address, {})
        records = custom_calls.COMMAND_BUFFER_COMPATIBLE
        return [(*names, bool(traits & records)) for names, (traits, *_) in known.items()]

    def register(
        self,
        name: str,
        function: Callable[..., None] | object,
        *,
        platform: str = _HOST,
        command_buffer_compatible: bool = False,
        instantiate: Callable[..., object] | object | None = None,
        prepare: Callable[..., None] | object | None = None,
        initialize: Callable[..., None] | object | None = None,
    ) -> None:
        """Make a function callable from programs (`PJRT_FFI_Register_Handler`).

        A program calls it with `stablehlo.custom_call @name(%a, %b) {api_version = 4 : i32,
        backend_config = {scale = 2.0 : f32}}`. A Python function gets the arguments and then the
        results by position, and the attributes by keyword: `def add(a, b, out, *, scale)`. On the
        host these are numpy arrays without a copy, arguments read-only, valid until it returns; on
        CUDA `DeviceArray`. It writes every result in place and returns None. Attributes are
        Python numbers, str, numpy arrays of their own memory, and dicts of these. An exception
        becomes the error of the execution: its class and text, and its status code if it is a
        PjrtError. It runs on a thread of the plugin, several at a time, and holds the GIL.

        A plugin never forgets a function: it lives as long as the process.

        Args:
            name: of the target, unique for each platform.
            function: a Python function, or an XLA FFI handler in C: its address, a capsule, or a
                function pointer of ctypes or cffi.
            platform: "Host", "CUDA", or the plugin's own name for it.
            command_buffer_compatible: a CUDA graph may record it.
            instantiate: called once for each call in a program, when that is compiled or loaded,
                with the attributes only. What a Python function gives is `current.state` later.
            prepare: called before an execution, with the attributes only; not on the host.
            initialize: called before an execution, after `prepare`; not on the host.

        Raises:
            AlreadyExistsError: the name is taken on this platform.
            UnsupportedByPluginError: the plugin takes no custom calls.
            TypeError: `function` is not one of these.
            ValueError: no name, or no code at the address.
            RuntimeError: the process has registered as many as it can.
            PjrtError: the plugin refused it.
        """
        for what, text in (("name", name), ("platform", platform)):
            if not isinstance(text, str):
                raise TypeError(f"the {what} is {text!r}, not a str")
            if not text or "\0" in text:
                raise ValueError(f"the {what} {text!r} is empty or has a NUL in it")
        before = (instantiate, prepare, initialize)
        stages = [
            None if each is None and not last else self._target(name, platform, each)
            for each, last in (*((each, False) for each in before), (function, True))
        ]
        callbacks.start()  # The dispatcher thread finishes a close that begins in the function.
        _user_data_type(self.api)
        traits = custom_calls.COMMAND_BUFFER_COMPATIBLE if command_buffer_compatible else 0
        with _registering:
            known = _registered.setdefault(self.api.address, {})
            if (name, platform) in known:
                raise errors.AlreadyExistsError(
                    f"the custom call {name!r} is registered on {platform} already",
                    function="PJRT_FFI_Register_Handler",
                )
            entries: list[int] = []
            try:
                for each in stages:
                    entries.append(custom_calls.entry(each, traits) if each is not None else 0)
                self._hand_over(name, platform, entries, traits)
            except BaseException:
                for entry in entries:
                    hotpath.ffi_return(entry)
                raise
            # The functions are kept, because a ctypes pointer owns the code that it points to.
            known[name, platform] = traits, function, instantiate, prepare, initialize

    @property
    def current(self) -> CustomCall:
        """The call for which this thread runs a registered Python function.

        Raises:
            LookupError: this thread is running none.
        """
        call: CustomCall | None = getattr(_running, "call", None)
        if call is None:
            raise LookupError("this thread is not inside a custom call")
        return call

    def add_user_data(self, context: ExecuteContext, value: object) -> None:
        """Attach an object to some executions, whose calls find it in `current.user_data`.

        The C functions are `PJRT_FFI_Type_Register` and `PJRT_FFI_UserData_Add`.

        Args:
            context: what the executions are given in `ExecuteOptions`; it keeps the object alive.
            value: any object; one for each context.

        Raises:
            ValueError: the context is another plugin's.
            UnsupportedByPluginError: the plugin has no FFI.
            PjrtError: the context has an object already.
        """
        if context.client.api is not self.api:
            raise ValueError(f"{context!r} belongs to another plugin")
        node = self.api.extension("FFI")
        type_id = _user_data_type(self.api)
        if type_id is None:
            raise errors.UnsupportedByPluginError(
                f"the plugin {self.api.path.name} has no execute contexts or no types for them",
                function="PJRT_FFI_Type_Register",
                since="0.52",
                have=str(self.api.version),
            )
        data = _UserData(value)
        context.keep(data)
        with context.client._in_call():
            node.call(
                "PJRT_FFI_UserData_Add",
                context=context.address,
                user_data={"type_id": type_id, "data": data.token},
            )

    def _target(self, name: str, platform: str, function: object) -> int | custom_calls.PythonEntry:
        address = custom_calls.address_of(function)
        if address is not None:
            return address
        if not callable(function):
            raise TypeError(
                f"{function!r} is neither a Python function nor the address of one in C"
            )
        return _python_entry(name, platform, self.api, function)

    def _hand_over(self, name: str, platform: str, entries: list[int], traits: int) -> None:
        extensions = self.api.extensions
        node = self.api.extension("FFI") if "FFI" in extensions else None
        instantiate, prepare, initialize, execute = entries
        staged = any(entries[:-1])
        if node is not None and node.has("PJRT_FFI_Register_Handler") and not staged:
            self._register(node, name, platform, execute, traits)
        elif platform == _CUDA and "Gpu_Custom_Call" in extensions:
            self.api.extension("Gpu_Custom_Call").call(
                "PJRT_Gpu_Register_Custom_Call",
                function_name=name,
                api_version=_GPU_API_VERSION,
                handler_instantiate=instantiate,
                handler_prepare=prepare,
                handler_initialize=initialize,
                handler_execute=execute,
            )
        else:
            functions = self._functions()
            stages = (instantiate, prepare, initialize, execute)
            if not custom_calls.register(functions, name, platform, stages, traits):
                raise errors.PluginInternalError(
                    f"the plugin refused the custom call {name!r} and its stages",
                    function="XLA_FFI_Handler_Register",
                )

    def _functions(self) -> int:
        """Return the address of the plugin's own FFI table, which it shows to any handler."""
        if self.api.address not in _functions:
            node = self.api.extension("FFI")
            node.require("PJRT_FFI_Register_Handler")
            nothing = custom_calls.entry(lambda _: None, 0)
            hotpath.ffi_shown()
            self._register(node, f"{_TYPE_NAME}.shown", _HOST, nothing, 0)
            _functions[self.api.address] = hotpath.ffi_shown()
        if not _functions[self.api.address]:
            raise errors.UnsupportedByPluginError(
                f"the plugin {self.api.path.name} takes no handlers with stages",
                function="XLA_FFI_Handler_Register",
                since="an XLA FFI that shows its functions",
                have=str(self.api.version),
            )
        return _functions[self.api.address]

    def _register(
        self, node: Extension, name: str, platform: str, handler: int, traits: int
    ) -> None:
        node.call(
            "PJRT_FFI_Register_Handler",
            target_name=name,
            platform_name=platform,
            handler=handler,
            traits=traits,
        )


def _user_data_type(api: Api) -> int | None:
    """Return a plugin's type id for our user data; None if the plugin takes none.

    It is registered once, before anything can be called; then every execution has a context.
    """
    with _registering:
        if api.address not in _user_data_types:
            _user_data_types[api.address] = None
            with contextlib.suppress(errors.UnsupportedByPluginError, errors.PjrtError):
                node = api.extension("FFI")
                number = node.call("PJRT_FFI_Type_Register", type_name=_TYPE_NAME, type_info={})
                if hotpath.ffi_share(api.address, api.call("PJRT_ExecuteContext_Create")):
                    _user_data_types[api.address] = int(number)
        return _user_data_types[api.address]


def _state_type(api: Api) -> int:
    """Return a plugin's type id for our handlers' states, which is registered once."""
    with _state_typing:
        if api.address not in _state_types:
            _state_types[api.address] = api.extension("FFI").call(
                "PJRT_FFI_Type_Register",
                type_name=f"{_TYPE_NAME}.state",
                type_info={"deleter": hotpath.ffi_deleter()},
            )
        return _state_types[api.address]


def _python_entry(
    name: str, platform: str, api: Api, function: Callable[..., object]
) -> custom_calls.PythonEntry:
    """Return the function for an entry point; it never raises: an error is a code and text."""

    def run(address: int) -> status.Failure | None:
        outer = getattr(_running, "call", None)  # A function may itself run a program.
        try:
            frame = custom_calls.Frame(address)
            _running.call = CustomCall(name, platform, api, frame)
            _call(function, frame, _running.call)
        except BaseException as exc:
            return status.failure(exc, name, depth=2)
        finally:
            _running.call = outer
        return None

    return run


def _call(function: Callable[..., object], frame: custom_calls.Frame, call: CustomCall) -> None:
    attributes = {name: _attribute(value) for name, value in frame.attributes().items()}
    if not frame.executes():
        _prepare(function(**attributes), frame, call)
        return
    given, wanted = frame.arguments(), frame.results()
    arguments = [_view(value, call, writable=False) for value in given]
    results = [_view(value, call, writable=True) for value in wanted]
    packed = [(value, array) for value, array in zip(wanted, results, strict=True) if _bits(value)]
    lent = [
        weakref.ref(array)
        for value, array in zip((*given, *wanted), (*arguments, *results), strict=True)
        if array is not None and not _bits(value)
    ]
    answer = function(*arguments, *results, **attributes)
    if answer is not None:
        raise TypeError(
            f"it returned {type(answer).__name__}, but results are written in place: out[...] = x"
        )
    for value, array in packed:
        memory = _memory_of_packed(value, _bits(value))
        memory[:] = packing.pack(array, _bits(value)).tobytes()
    del arguments, results
    if any(each() is not None for each in lent):
        gc.collect()  # A cycle of references may hold an unreachable array.
    if any(each() is not None for each in lent):
        raise ValueError("it kept an array, whose memory ends with the call: keep a copy")


def _prepare(state: object, frame: custom_calls.Frame, call: CustomCall) -> None:
    """Hand the plugin the state that a stage before the execution returned."""
    if state is None:
        return
    ticket = hotpath.ffi_keep(state)
    if not frame.set_state(_state_type(call.api), ticket):
        hotpath.ffi_kept(ticket, True)
        raise RuntimeError("the plugin takes no state at this stage: only `instantiate` gives one")


def _view(value: custom_calls.Value, call: CustomCall, *, writable: bool) -> Any:
    """Return an array over the plugin's memory; None for a token."""
    if value.dtype == _TOKEN:
        return None
    element = dtypes.of_primitive(value.dtype)
    dtype = dtypes.numpy_dtype(element.code)
    if call.platform != _HOST:
        if element.bits < 8:
            raise errors.UnsupportedByPluginError(
                f"elements of {element.name} are packed on the device, and no array shows them",
                function=call.name,
                since="never",
                have=str(call.api.version),
            )
        return DeviceArray(value.shape, dtype, value.address, call.stream)
    if element.bits < 8:
        return _unpack(value, element, writable=writable)
    import numpy

    nbytes = math.prod(value.shape) * dtype.itemsize
    if not nbytes:
        return numpy.empty(value.shape, dtype)
    array = numpy.ndarray(value.shape, dtype, custom_calls.memory(value.address, nbytes))
    array.flags.writeable = writable
    return array


def _bits(value: custom_calls.Value) -> int:
    """Return the bits of an element if several share a byte, else 0."""
    bits = 8 if value.dtype == _TOKEN else dtypes.of_primitive(value.dtype).bits
    return bits if bits < 8 else 0


def _unpack(value: custom_calls.Value, element: dtypes.ElementType, *, writable: bool) -> Any:
    """Return an array with its own memory: in the program's memory, elements share bytes."""
    import numpy

    dtype = dtypes.numpy_dtype(element.code)
    if writable:
        return numpy.zeros(value.shape, dtype)  # `_call` packs it into the program's memory.
    data = numpy.frombuffer(_memory_of_packed(value, element.bits), numpy.uint8)
    array = packing.unpack(data, value.shape, element.bits, dtype)
    array.flags.writeable = False
    return array


def _memory_of_packed(value: custom_calls.Value, bits: int) -> Any:
    nbytes = packing.nbytes(math.prod(value.shape), bits)
    return memoryview(custom_calls.memory(value.address, nbytes) if nbytes else bytearray())


def _attribute(value: custom_calls.Attribute) -> Any:
    if isinstance(value, dict):
        return {name: _attribute(each) for name, each in value.items()}
    if isinstance(value, str):
        return value
    import numpy

    dtype = dtypes.numpy_dtype(dtypes.of_primitive(value.dtype).code)
    nbytes = math.prod(value.shape) * dtype.itemsize
    data = bytes(custom_calls.memory(value.address, nbytes)) if nbytes else b""
    array = numpy.ndarray(value.shape, dtype, data)  # An array over `bytes` is read-only.
    return array if value.shape else array.item()
