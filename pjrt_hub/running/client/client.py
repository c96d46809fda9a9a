"""Clients: a process's hold on a platform, and the door to everything on it.

Owns devices, memories and the making of buffers and executables; must not choose a plugin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import pjrt_hub.running.client.exit  # noqa: F401  (It closes clients when Python ends.)
from pjrt_hub import errors
from pjrt_hub.base.fork import cached_property
from pjrt_hub.base.frames import hide_below
from pjrt_hub.running.array import display
from pjrt_hub.running.array.shape_spec import ShapeSpec, known_shapes
from pjrt_hub.running.buffer import placement
from pjrt_hub.running.buffer.buffer import Buffer, HostBufferSemantics
from pjrt_hub.running.capi import hotpath, status
from pjrt_hub.running.capi.call import interruptible
from pjrt_hub.running.capi.handle import Closing, register
from pjrt_hub.running.capi.library import Api
from pjrt_hub.running.compilation.policy import CompileCache, CompilingClient
from pjrt_hub.running.device.device import Device, Memory, default_memory

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from pjrt_hub.running.client.memory_report import MemoryReport
    from pjrt_hub.running.client.topology import Topology
    from pjrt_hub.running.executable.executable import Executable
    from pjrt_hub.running.executable.loaded_executable import LoadedExecutable
    from pjrt_hub.running.program.compile_options import CompileOptions
    from pjrt_hub.running.program.program import Program

_COPIED = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
_put_plain = Buffer._put_plain


class Client(Closing, CompilingClient):
    """An open plugin: it owns devices, makes buffers and compiles programs (`PJRT_Client`).

    Closing it closes its buffers, events and executables first; using any of them afterwards raises
    ClosedError. Arrays that `Buffer.to_numpy` gave stay valid. Also a context manager.

    Attributes:
        plugin: the plugin that made it.
        api: the plugin's function table.
        options: the create options that it was requested with.
        closed: whether `close` was called, or the process forked since.
    """

    __module__ = "pjrt_hub"
    #: Whether this is the client that the process shares and that `close` leaves open.
    _is_shared = False

    def __init__(self, plugin: Any, address: int, options: Mapping[str, Any] | None = None) -> None:
        self.plugin = plugin
        self._policy = plugin.policy
        self.options = dict(options or {})
        self.api: Api = plugin.api
        self._layered_name = plugin.policy.name if plugin.api.is_layered else None
        try:
            name = self.api.call("PJRT_Client_PlatformName", client=address).decode()
            # `devices` raises them.
            with suppress(errors.UnsupportedByPluginError, errors.UnimplementedError):
                _require_devices(name, self.api.call("PJRT_Client_Devices", client=address))
        except BaseException:
            self.api.give_back("PJRT_Client_Destroy", client=address)
            raise
        self.platform_name: str = name
        self._keep_devices()
        self._bind(self.api, self.api.address, address, name == "cpu")
        register(self)

    @cached_property
    def topology(self) -> Topology:
        """Its topology, which ends with the client (`PJRT_Client_TopologyDescription`)."""
        from pjrt_hub.running.client.topology import Topology

        return Topology(self.api, self._ask("PJRT_Client_TopologyDescription"), self)

    def buffer_from_host(
        self,
        array: ArrayLike,
        *,
        dtype: Any = None,
        device: Device | None = None,
        memory: Memory | None = None,
        semantics: HostBufferSemantics = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL,
        layout: tuple[int, ...] | None = None,
    ) -> Buffer:
        """Copy or share an array with a device (`PJRT_Client_BufferFromHostBuffer`).

        Args:
            array: anything that numpy can make an array of: the buffer protocol, `__array__`,
                numbers and nested lists, with any strides. Python's ints become int32, floats
                float32 and complex numbers complex64 unless `dtype` says otherwise; arrays keep
                their dtype. Masked arrays are refused: a device has no masks.
            dtype: of the buffer, converted on the host. A name means what numpy means by it, "i4"
                has 4 bytes; else what ml_dtypes, StableHLO or XLA do: "int4", "bf16", "s32". Ints
                must fit, floats are rounded, and never become ints.
            device: one of `devices`; by default the first, unless `memory` says where.
            memory: one of a device's memories; by default the device's own.
            semantics: how long the array must stay unchanged; by default it is copied at once.
            layout: minor_to_major, the dimensions from the fastest-varying in the device's memory;
                by default the plugin's own. The value is the array's in every layout.

        Raises:
            TypeError: PJRT has no such dtype, or a float would become an int.
            ValueError: a device or memory of another client, or a layout that is not a permutation.
            OverflowError: an int does not fit the dtype, or a Python int without a dtype int32.
            UnsupportedByPluginError: the plugin is older than the dtype, or makes no such layout.
            ClosedError: the client is closed.
        """
        nowhere_else = dtype is None and device is None and memory is None and layout is None
        if nowhere_else and semantics is _COPIED:
            put = _put_plain(self, array, self._first_place, known_shapes)
            if put is not None:
                return put
        return placement.from_host(self, array, dtype, (device, memory), semantics, layout)

    def buffer_from_file(
        self,
        file: str | os.PathLike[str],
        shape: Any,
        dtype: Any = "float32",
        *,
        offset: int = 0,
        device: Device | None = None,
        memory: Memory | None = None,
    ) -> Buffer:
        """Read an array from a file onto a device, without a second copy on the CPU.

        On other devices each part is read while the device copies those before it
        (`PJRT_AsyncHostToDeviceTransferManager_TransferData`), if the plugin can.

        Args:
            file: its path; it may change once this returns.
            shape: the dimensions, in elements, which lie row by row.
            dtype: numpy's, ml_dtypes' or StableHLO's name, of 8 bits or more, in native byte order.
            offset: of the first element, in bytes.
            device: one of `devices`; by default the first, unless `memory` says where.
            memory: one of a device's memories; by default the device's own.

        Raises:
            FileFormatError: the file ends before the array does.
            OSError: it cannot be read.
            TypeError: `file` is not a path, PJRT has no such dtype, or its elements share bytes.
            ValueError: the shape is impossible, or the offset is negative.
        """
        from pjrt_hub.running.buffer import upload

        spec = ShapeSpec.of(shape, dtype, self.api.version)
        return upload.from_file(self, os.fspath(file), spec, offset, device, memory)

    def from_dlpack(
        self, source: Any, *, device: Device | None = None, copy: bool | None = None
    ) -> Buffer:
        """Import another framework's array over DLPack, without a copy if the plugin can.

        On the CPU that needs memory that begins at a multiple of 64 bytes, as torch's and JAX's
        does (`PJRT_Client_CreateViewOfDeviceBuffer`). Shared memory must not change while the
        buffer lives. A transposed array is copied into row-major order, which programs take; with
        copy=False it is shared, and `Buffer.layout` says how it lies.

        Args:
            source: an object with `__dlpack__`, or a DLPack capsule, which works once.
            device: one of `devices`; by default where the array is, else the first.
            copy: True always copies, so that the array may change at once; False never does; None
                copies where sharing is not possible.

        Raises:
            TypeError: `source` does not support DLPack, or PJRT has no such element type.
            ValueError: the capsule was taken before, or the device is another client's.
            BufferError: only a copy would do and copy=False, or it lives on a foreign device.
            UnsupportedByPluginError: the plugin is older than the element type.
            ClosedError: the client is closed.
        """
        from pjrt_hub.running.buffer.tensor import borrow

        return borrow(self, source, device, copy)

    def create_uninitialized_buffer(
        self,
        shape: Any,
        dtype: Any = "float32",
        *,
        device: Device | None = None,
        memory: Memory | None = None,
        layout: tuple[int, ...] | None = None,
    ) -> Buffer:
        """Make an uninitialized buffer (`PJRT_Client_CreateUninitializedBuffer`, 0.69).

        Args:
            shape: the dimensions, in elements.
            dtype: numpy's, ml_dtypes' or StableHLO's name.
            device: one of `devices`; by default the first, unless `memory` says where.
            memory: one of a device's memories; by default the device's own.
            layout: minor_to_major; by default the plugin's own.

        Raises:
            TypeError: PJRT has no such dtype.
            ValueError: the shape is impossible, or device or memory belong to another client.
            UnsupportedByPluginError: the plugin is older.
        """
        from pjrt_hub.running.buffer import placeholder

        spec = ShapeSpec.of(shape, dtype, self.api.version, layout)
        return placeholder.create_uninitialized(self, spec, device, memory)

    def create_error_buffer(
        self,
        error: errors.PjrtError,
        shape: Any,
        dtype: Any = "float32",
        *,
        memory: Memory | None = None,
        layout: tuple[int, ...] | None = None,
    ) -> Buffer:
        """Make a buffer that makes all its users fail (`PJRT_Client_CreateErrorBuffer`, 0.82).

        Args:
            error: whatever uses the buffer gets its code, message and payloads.
            shape: the dimensions, in elements.
            dtype: numpy's, ml_dtypes' or StableHLO's name.
            memory: one of a device's memories; by default the first device's own.
            layout: minor_to_major; by default the plugin's own.

        Raises:
            TypeError: the error is no PjrtError.
        """
        from pjrt_hub.running.buffer import placeholder

        spec = ShapeSpec.of(shape, dtype, self.api.version, layout)
        return placeholder.create_error(self, error, spec, memory or default_memory(self))

    def create_view_of_device_buffer(
        self,
        memory_at: Any,
        shape: Any,
        dtype: Any = "float32",
        *,
        device: Device | None = None,
        memory: Memory | None = None,
        layout: tuple[int, ...] | None = None,
        stream: int = 0,
        on_delete: Callable[[], object] | None = None,
    ) -> Buffer:
        """Make a buffer over existing device memory (`PJRT_Client_CreateViewOfDeviceBuffer`).

        Args:
            memory_at: the address of memory that must live until `on_delete` is called; on the CPU
                also an array, which is kept alive. On the CPU it begins at a multiple of 64 bytes.
            shape: the dimensions, in elements.
            dtype: numpy's, ml_dtypes' or StableHLO's name.
            device: one of `devices`; by default the first, unless `memory` says where.
            memory: one of a device's memories; by default the device's own.
            layout: minor_to_major; by default the plugin's own.
            stream: the GPU stream on which the memory is ready; 0 for none.
            on_delete: called once the plugin is done with the memory, on pjrt-hub's own thread.

        Raises:
            ValueError: the memory is too small, or not aligned.
        """
        from pjrt_hub.running.buffer import placeholder

        spec = ShapeSpec.of(shape, dtype, self.api.version, layout)
        return placeholder.create_view(self, memory_at, spec, device, memory, stream, on_delete)

    @hide_below
    def compile(
        self,
        program: Program | str | bytes | os.PathLike[str],
        options: CompileOptions | None = None,
        *,
        cache: bool | CompileCache | None = None,
        isolated: bool | None = None,
    ) -> LoadedExecutable:
        """Compile a program and load it (`PJRT_Client_Compile`); Ctrl-C ends the wait.

        Args:
            program: StableHLO text or bytecode, a serialized HloModuleProto, or a file of these;
                see `Program.of`.
            options: see `CompileOptions`.
            cache: True loads an equal compilation from the compile cache on disk, or keeps this one
                there; an object with `get(key)` and `put(key, bytes)` is used instead of that.
                None asks `PJRT_HUB_COMPILE_CACHE`.
            isolated: True compiles in a process of its own, so that a crash of the compiler is an
                exception and not the end of this process. None asks `PJRT_HUB_ISOLATE`.

        Raises:
            FileFormatError: the program has none of these formats.
            PjrtError: the plugin cannot compile it.
            PluginCrashedError: the compiler died, in its own process.
            PluginTimeoutError: the compiler took longer than `PJRT_HUB_ISOLATE_SECONDS` there.
            TypeError: the program takes a tuple, and the options do not say so.
            ValueError: the program needs more devices than there are.
            ClosedError: the client is closed.
        """
        from pjrt_hub.running.compilation import compilation

        return compilation.compile(self, program, options, cache, isolated)

    @hide_below
    def load(self, serialized: bytes | Executable) -> LoadedExecutable:
        """Load the bytes of `serialize` (`PJRT_Executable_DeserializeAndLoad`).

        Args:
            serialized: the bytes; or an executable that `Topology.compile` made in this process
                (`PJRT_Client_Load`, 0.95), which is consumed and closed.

        Raises:
            FileFormatError: the bytes are damaged, or not from `serialize`.
            IncompatiblePluginError: they are from another plugin, version or machine.
            PjrtError: the plugin refuses them.
            ClosedError: the client is closed.
        """
        from pjrt_hub.running.compilation import compilation

        return compilation.load(self, serialized)

    def live_buffers(self) -> list[Buffer]:
        """Return its buffers that are neither deleted nor donated, the oldest first.

        Those of garbage, which Python has not collected yet, are among them, and the states of
        steppers.
        """
        self._require_open()
        for each in self._holders():
            if isinstance(each, hotpath.Stepper):
                # There may be no state.
                with suppress(ValueError, RuntimeError, errors.ClosedError):
                    each._state(tuple)
        return [each for each in self._holders() if isinstance(each, Buffer)]

    def _holders(self) -> list[Buffer | hotpath.Stepper]:
        """Return what may hold memory, the oldest first, and wait for nothing."""
        listed = reversed(self._children())
        living = (each for each in listed if not (isinstance(each, Buffer) and each._is_gone))
        return [each for each in living if isinstance(each, Buffer | hotpath.Stepper)]

    def memory_report(self) -> MemoryReport:
        """Report what holds the memory: buffers by type and place, beside what devices count.

        With `PJRT_HUB_BUFFER_ORIGINS=1` also the line that made each buffer, and its age.
        """
        from pjrt_hub.running.client import memory_report

        return memory_report.of(self)

    def close(self) -> None:
        """Free everything that belongs to the client, then the client; may be called again.

        Waits for running programs; Ctrl-C ends the waiting, and the freeing goes on by itself.
        If another thread is inside a call, the freeing happens when that call ends; if `to_numpy`
        arrays are alive, when the last of them dies.

        A shared client stays open for others that use it: it is freed when nothing refers to it or
        to an object of it, or when Python ends.
        """
        if not (self.closed or self._is_shared):
            interruptible(self._close, lambda _: None)

    def _reduce_executable(self, blob: bytes) -> tuple[Any, ...]:
        from pjrt_hub.running.distributed import pickled

        return pickled.to_executable, (blob, self._policy.reload, dict(self.options))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a client, its devices, memories and events belong to their process and cannot be "
            "pickled\n\nhint: make a client in the other process; programs, options, executables, "
            "topologies and buffers can be pickled"
        )

    @display.table
    def _repr_html_(self) -> Mapping[str, Any]:
        if self.closed:
            return {}
        facts = {"Client": self.platform_name, "version": self.platform_version}
        devices = "\n".join(f"{device} {device.kind}" for device in self.devices)
        return {**facts, "plugin": self.plugin.name, "devices": devices}

    def __repr__(self) -> str:
        if self.closed:
            return f"<Client {self.platform_name} closed>"
        count = len(self.devices)
        return f"<Client {self.platform_name} with {count} device{'s' if count != 1 else ''}>"


def _name_holders(api: int) -> str:
    from pjrt_hub.running.client import memory_report  # Few processes run out of memory.

    return memory_report.hint(api)


status.name_holders = _name_holders


def _require_devices(platform: str, devices: Sequence[int]) -> None:
    if not devices:
        raise errors.PluginError(
            f"PJRT_Client_Create: the plugin made a client of {platform} without any device",
            hint="its create options, or a variable such as CUDA_VISIBLE_DEVICES, leave none",
        )
