from collections.abc import Callable
from typing import Any, Generic, Literal, NoReturn, TypeVar, overload

_Buffer = TypeVar("_Buffer", bound=Buffer)
_Event = TypeVar("_Event", bound=Event)
_Results = TypeVar("_Results")

def asks_python() -> bool: ...
def compact_type(base: type, name: str, /) -> type: ...
def install(
    raise_error: Callable[[int, int, str], NoReturn],
    raise_absent: Callable[[int, int], NoReturn],
    refuse_answer: Callable[[str, str], NoReturn],
    closed_error: type[Exception],
    /,
) -> None: ...
def generation() -> int: ...
def open_library(path: str, /) -> int: ...
def get_pjrt_api(handle: int, /) -> int | None: ...
def preload_library(path: str, /) -> None: ...
def read_error(api: int, error: int, frees: bool, /) -> tuple[int, str, dict[str, bytes]]: ...
def reclaim(api: int, error: int, /) -> bool: ...
def note_origins(note: Callable[[int], None], /) -> None: ...
def wake(fd: int, /) -> None: ...
def dispatch() -> None: ...
def end() -> None: ...
def notify(api: int, event: int, callback: Callable[[], object], /) -> None: ...
def kv_store(
    get: Callable[[bytes, int], object],
    try_get: Callable[[bytes], object],
    put: Callable[[bytes, bytes], object],
    /,
) -> tuple[int, int, int, int]: ...
def upcalls_end(seconds: float, /) -> bool: ...
def ends() -> None: ...
def interrupt() -> None: ...
def interrupted() -> bool: ...
def leave() -> None: ...
def aside(callable: Callable[[], object], /) -> None: ...
def host_transfer(
    api: int, callable: Callable[..., object], /
) -> tuple[object, int, int, int, int]: ...
def host_transfer_end(api: int, stream: int, /) -> None: ...
def ffi_shown() -> int: ...
def ffi_deleter() -> int: ...

MOST_BYTES: int
MOST_ELEMENTS: int

def ffi_keep(state: object, /) -> int: ...
def ffi_kept(ticket: int, last: bool, /) -> Any: ...
def xla_transform(callable: Callable[[bytes], bytes | tuple[Any, ...] | None], /) -> int: ...
def custom_partitioner(callable: Callable[..., object], side_effects: bool, /) -> int: ...
def ffi_entry(
    target: int | Callable[[int], tuple[Any, ...] | None], traits: int, /
) -> int | None: ...
def ffi_return(entry: int, /) -> None: ...
def ffi_share(api: int, context: int, /) -> bool: ...
def capsule_address(capsule: object, /) -> int: ...
def keep(api: int, event: int, kept: object, /) -> None: ...
def deleter(callback: Callable[[], object], kept: object, /) -> tuple[int, int]: ...
def lend(
    address: int,
    device: tuple[int, int],
    dtype: tuple[int, int],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    flags: int | None,
    deleter: tuple[int, int],
    /,
) -> object: ...
def borrow(
    capsule: object, /
) -> tuple[
    object, int, tuple[int, int], tuple[int, int, int], int, tuple[int, ...], tuple[int, ...] | None
]: ...

class Function:
    def _compile(
        self,
        address: int,
        size: int,
        struct_size: int,
        inputs: tuple[tuple[str, int, str, int, bool], ...],
        outputs: tuple[tuple[str, int, str, int, bool], ...],
        namespace: Callable[..., object],
        /,
    ) -> None: ...

class Functions:
    def function(self, name: str, /) -> Any: ...
    def call(self, name: str, /, **inputs: Any) -> Any: ...

class InCall:
    def __enter__(self) -> None: ...
    def __exit__(self, *raised: object) -> None: ...

class Client:
    @property
    def closed(self) -> bool:
        """Whether `close` was called, or the process forked."""
    _lends: bool
    _num_calls: int
    _is_freeing: bool
    _is_on_host: bool
    @property
    def _num_children(self) -> int: ...
    def _children(self) -> list[object]: ...
    @property
    def address(self) -> int: ...
    def _bind(self, functions: Functions, api: int, client: int, on_host: bool, /) -> None: ...
    def _require_open(self) -> None: ...
    def _call(self, function: str, /, **inputs: Any) -> Any: ...
    def _in_call(self) -> InCall: ...
    def _close(self) -> None: ...

class Buffer:
    @property
    def is_deleted(self) -> bool:
        """Whether it was deleted, donated, or closed with its client (`PJRT_Buffer_IsDeleted`)."""
    @property
    def _is_gone(self) -> bool: ...
    @property
    def _dtype(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def _dynamic(self) -> bool: ...
    @property
    def _scattered(self) -> bool: ...
    @property
    def _is_lent(self) -> bool: ...
    @classmethod
    def _adopt(
        cls: type[_Buffer],
        client: Client,
        address: int,
        dtype: int,
        shape: tuple[int, ...],
        device: object,
        /,
    ) -> _Buffer: ...
    def _like(self: _Buffer, address: int, device: object, /) -> _Buffer: ...
    @classmethod
    def _put(
        cls: type[_Buffer],
        client: Client,
        source: object,
        dtype: int,
        shape: tuple[int, ...],
        semantics: int,
        device: object,
        device_address: int,
        memory_address: int,
        /,
    ) -> tuple[_Buffer, int]: ...
    @classmethod
    def _put_plain(
        cls: type[_Buffer],
        client: Client,
        array: object,
        place: tuple[object, int, int],
        known_shapes: dict[tuple[int, ...], tuple[int, ...]],
        /,
    ) -> _Buffer | None: ...
    def _require_open(self) -> None: ...
    def _order(self) -> tuple[int, ...] | None: ...
    def _array(self) -> Any: ...
    def _copy_to_device(self: _Buffer, device: object, address: int, /) -> _Buffer | None: ...
    def _copy_raw(self, destination: object, event: type[_Event], /) -> _Event | None: ...
    @staticmethod
    def _take_dropped() -> BaseException | None: ...
    def _view(self, nbytes: int, /) -> HostView: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def delete(self) -> None:
        """Give the device memory back without waiting; may be called again (`PJRT_Buffer_Delete`).

        Work that uses the buffer finishes, and arrays that `to_numpy` gave stay valid.
        """

class Owned:
    @property
    def closed(self) -> bool:
        """Whether it was closed, itself or with its client."""
    def _bind(self, client: Client, release: Callable[[], object], /) -> None: ...
    def _require_open(self) -> None: ...
    def _release(self) -> None: ...
    def _take(self) -> Callable[..., object] | None: ...

class Staging:
    @classmethod
    def of(cls, nbytes: int, /) -> Staging | None: ...
    @classmethod
    def _trim(cls) -> None: ...
    @classmethod
    def _kept(cls) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class HostView:
    @property
    def address(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Event:
    @property
    def address(self) -> int: ...
    @classmethod
    def of(cls: type[_Event], client: Client, address: int, kept: object = None, /) -> _Event: ...
    def _bind(self, client: Client, address: int, /) -> None: ...
    def _wait(self, seconds: float | None, /) -> bool: ...
    def is_ready(self) -> bool:
        """Whether what it stands for is done, without waiting (`PJRT_Event_IsReady`)."""

class LoadedExecutable(Generic[_Buffer]):
    _adaptive: bool
    @property
    def closed(self) -> bool:
        """Whether it was closed, itself or with its client."""
    @property
    def address(self) -> int: ...
    def _bind(
        self,
        client: Client,
        address: int,
        buffer_type: type[Buffer],
        parameters: tuple[Any, ...] | None,
        outputs: tuple[Any, ...] | None,
        devices: tuple[Any, ...],
        /,
    ) -> None: ...
    def _require_open(self) -> None: ...
    def _execute(
        self,
        rows: tuple[tuple[Any, ...], ...],
        devices: tuple[Any, ...],
        options: int,
        execute_device: int,
        event_type: type[_Event] | None,
        /,
    ) -> tuple[tuple[tuple[Any, ...], ...], tuple[_Event, ...]]: ...
    def _take(self, row: tuple[Any, ...], device: Any, /) -> None: ...
    def close(self) -> None:
        """Free the executable; may be called again (`PJRT_LoadedExecutable_Destroy`)."""
    @overload
    def __call__(
        self, *arguments: Any, simplify: Literal[False], options: Any = None
    ) -> tuple[_Buffer, ...]: ...
    @overload
    def __call__(
        self, *arguments: Any, simplify: bool = True, options: Any = None
    ) -> _Buffer | Any:
        """Run it on one device (`PJRT_LoadedExecutable_Execute`), not waiting for results.

        Args:
            arguments: for each parameter a Buffer of that device or an array, of its dtype and
                shape. An array, which numpy, DLPack or the buffer protocol shows, is copied to the
                device for this call and may change as soon as it returns.
            simplify: give the Buffer itself where there is one output, not a tuple of one.
            options: an `ExecuteOptions`, or None.

        Raises:
            TypeError: an argument is neither, one has another dtype, or there are more or fewer.
            ValueError: one has another shape, client or device.
            ClosedError: one was deleted or donated, or the executable was closed.
            PjrtError: the plugin refused.
        """

class BoundCall(Generic[_Results]):
    _rows: tuple[tuple[Any, ...], ...]
    _single: bool
    _simplify: bool
    def _bind(
        self,
        executable: LoadedExecutable[Any],
        rows: tuple[tuple[Any, ...], ...],
        single: bool,
        simplify: bool,
        /,
    ) -> None: ...
    def __call__(self, *, options: Any = None) -> _Results:
        """Run it once (`PJRT_LoadedExecutable_Execute`), not waiting for results.

        Args:
            options: an `ExecuteOptions`, or None.

        Returns:
            What `exe(...)` gives, or `execute` where rows were bound.

        Raises:
            TypeError: it was given arguments.
            ClosedError: an argument was deleted or donated, or the executable or client closed.
            PjrtError: the plugin refused.
        """

class Stepper:
    executable: Any
    _num_fed: int
    def _bind(
        self,
        executable: LoadedExecutable[Any],
        carry: tuple[tuple[int, int], ...],
        fixed: tuple[tuple[int, Any], ...],
        /,
    ) -> None: ...
    def _reset(self, row: tuple[Any, ...], /) -> None: ...
    def _state(self, take: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> tuple[Any, ...]: ...
    def _hidden(self) -> list[int]: ...
    def __call__(self, *arguments: Any) -> Any:
        """Take a step (`PJRT_LoadedExecutable_Execute`), not waiting for results.

        Args:
            arguments: buffers or arrays for the parameters that are neither carried nor fixed, in
                their order. On several devices a row of them for each device.

        Returns:
            The results that are not carried: a Buffer, or a tuple where there are not just one. On
            several devices a list of these.

        Raises:
            TypeError, ValueError, ClosedError: as for `exe(...)`; ValueError also if there is no
                state.
            PjrtError: the plugin refused. The state is what it was, unless a note of the exception
                says that it was donated to the call that failed.
        """
