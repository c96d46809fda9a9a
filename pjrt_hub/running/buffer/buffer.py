"""Buffers: arrays on a device.

Owns moving data between the host and a device and printing it; the compiled call path owns the
object itself, its lifetime and its use as an argument. Imports numpy late.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypeVar

from pjrt_hub import errors
from pjrt_hub.running.array import display, dtypes, host_array, memory_layout
from pjrt_hub.running.array.shape_spec import ShapeSpec, dims_text
from pjrt_hub.running.capi import hotpath, table, values
from pjrt_hub.running.capi.handle import compact
from pjrt_hub.running.device.device import Device, DeviceClient, Memory, choose_place, memory_at
from pjrt_hub.running.device.event import Event, await_work

if TYPE_CHECKING:
    import numpy
    from typing_extensions import CapsuleType


_SEMANTICS = table.ENUMS["PJRT_HostBufferSemantics"]
T = TypeVar("T")
_GONE = "the buffer was deleted or donated"


class HostBufferSemantics(enum.IntEnum):
    """How long host memory must stay unchanged after it was put (`PJRT_HostBufferSemantics`)."""

    __module__ = "pjrt_hub"
    #: The default: the array is copied before the call returns, so it may change at once.
    IMMUTABLE_ONLY_DURING_CALL = _SEMANTICS["PJRT_HostBufferSemantics_kImmutableOnlyDuringCall"]
    #: The array must not change until the transfer is done; pjrt-hub keeps it alive until then.
    IMMUTABLE_UNTIL_TRANSFER_COMPLETES = _SEMANTICS[
        "PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes"
    ]
    #: The array is shared where the plugin can (host memory, 64-byte aligned), else copied. It must
    #: not change while the buffer lives; pjrt-hub keeps it alive.
    IMMUTABLE_ZERO_COPY = _SEMANTICS["PJRT_HostBufferSemantics_kImmutableZeroCopy"]
    #: As `IMMUTABLE_ZERO_COPY`, but a program to which the buffer is donated may write into the
    #: array, which must be writable.
    MUTABLE_ZERO_COPY = _SEMANTICS["PJRT_HostBufferSemantics_kMutableZeroCopy"]


@compact
class Buffer(hotpath.Buffer):
    """An array in the memory of a device (`PJRT_Buffer`).

    Made by `Client.buffer_from_host` and by running programs; immutable except by donation. Its
    value may still be on the way: `ready` is the event for it, and reading waits.

    Attributes:
        client: the client that it belongs to.
        device: the device that it lives on.
        shape: the dimensions, in elements; where they are dynamic, their bounds.
        is_deleted: whether it was deleted, donated, or closed with its client.
    """

    __module__ = "pjrt_hub"
    client: Any  # This is a `Client`, which this module may not import.
    device: Device
    shape: tuple[int, ...]

    __slots__ = ()
    _ready: Event

    @property
    def dtype(self) -> numpy.dtype[Any]:
        """The dtype of its elements, numpy's or ml_dtypes'.

        Raises:
            TypeError: the installed ml_dtypes is too old to have it; `element_type` names the type.
        """
        return dtypes.numpy_dtype(self._dtype)

    @property
    def element_type(self) -> str:
        """The type of its elements by its name in programs: "f32", "ui8", "bf16"."""
        return dtypes.of_code(self._dtype).name

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the array that `to_numpy` gives; if `shape` is a bound, the most."""
        return self.size * self.dtype.itemsize

    @property
    def on_device_nbytes(self) -> int:
        """The bytes on the device, with padding (`PJRT_Buffer_OnDeviceSizeInBytes`)."""
        return self._ask("PJRT_Buffer_OnDeviceSizeInBytes")

    @property
    def memory(self) -> Memory:
        """The memory that it lives in (`PJRT_Buffer_Memory`)."""
        return memory_at(self.client, self._ask("PJRT_Buffer_Memory"))

    @property
    def ready(self) -> Event:
        """The event that completes with its value (`PJRT_Buffer_ReadyEvent`)."""
        self._require_open()
        if self._is_gone:
            raise errors.ClosedError(_GONE)
        try:
            return self._ready
        except AttributeError:  # The event is made once, so that polling leaves only one callback.
            with self.client._in_call():
                self._ready = Event.of(self.client, self._ask("PJRT_Buffer_ReadyEvent"))
            return self._ready

    @property
    def layout(self) -> tuple[int, ...]:
        """minor_to_major: its dimensions, fastest-varying first (`PJRT_Buffer_GetMemoryLayout`)."""
        return self._order() or memory_layout.row_major(self.ndim)

    @classmethod
    def _from_spec(
        cls, client: DeviceClient, address: int, spec: ShapeSpec, device: Device
    ) -> Buffer:
        """Take over a native buffer that was made for a spec, if it has the layout of the spec."""
        buffer = cls._adopt(client, address, spec.element.code, spec.shape, device)
        return buffer if spec.layout is None else require_layout(buffer, spec.layout)

    def to_numpy(self, *, layout: tuple[int, ...] | None = None) -> numpy.ndarray[Any, Any]:
        """Wait for the value and return it as a read-only array.

        On the CPU the array shares the buffer's memory, without a copy, and keeps it alive past
        `delete` and `Client.close`; while it lives, a program that the buffer is donated to works
        on a copy. From other devices it is copied (`PJRT_Buffer_ToHostBuffer`). Its strides follow
        the device's layout. With dynamic dimensions it is a copy, with the shape `logical_shape`.

        Args:
            layout: minor_to_major, how the array lies in the host's memory; by default as on the
                device, which copies the least.

        Raises:
            PjrtError: the computation of the value failed.
            ValueError: the layout is not a permutation of the dimensions.
            ClosedError: the buffer was deleted, donated or closed.
        """
        if layout is None:
            return self._value()
        order = memory_layout.order_of(layout, self.ndim) or ()
        return memory_layout.arrange(self._value(), order)

    def _value(self) -> numpy.ndarray[Any, Any]:
        lends = self.client._lends
        try:
            array = self._array()  # This is one native call if the memory is row-major.
            return self._read() if array is None else array
        except (errors.PjrtError, errors.UnsupportedByPluginError) as exc:
            if lends and not self.client._lends:  # `_array` found that the plugin refuses to lend.
                return self._value()
            if self._is_gone:
                raise errors.ClosedError(_GONE) from exc
            raise

    def _read(self) -> numpy.ndarray[Any, Any]:
        import numpy

        code = self._dtype
        dtype = dtypes.numpy_dtype(code)
        order = self._order()  # This sets `_scattered`, so it must come first.
        plain = dtypes.of_code(code).bits >= 8 and not (self._dynamic or self._scattered)
        if self.client._lends and plain:
            data: Any = self._view(self.size * dtype.itemsize)
        else:
            self._require_open()
            with self.client._in_call():
                data = self._copy_to_host(order)
        shape = self.logical_shape if self._dynamic else self.shape
        if order is None:
            return numpy.ndarray(shape, dtype, data)
        stored = numpy.ndarray([shape[d] for d in order[::-1]], dtype, data)
        return memory_layout.from_memory(stored, order)

    def _copy_to_host(self, order: tuple[int, ...] | None) -> Any:
        import numpy

        call = self.client._call
        layout = memory_layout.members(order or memory_layout.row_major(self.ndim))
        given = {"src": self.address, "host_layout": layout}
        whole = self.size * dtypes.numpy_dtype(self._dtype).itemsize
        try:
            nbytes = call("PJRT_Buffer_ToHostBuffer", **given).dst_size
        # JAX never asks for the size, and some plugins do not tell it.
        except (errors.InvalidArgumentError, errors.UnimplementedError):
            if self._dynamic:
                raise
            nbytes = whole
        # A plugin may tell a little more; the value of a dynamic shape is smaller than its bounds.
        least, most = 0 if self._dynamic else whole, 2 * whole + 4096
        values.require_count("PJRT_Buffer_ToHostBuffer", "dst_size", nbytes, most, least)
        host = numpy.empty(nbytes, numpy.uint8)
        address = host_array.address_of(host)
        answer = call("PJRT_Buffer_ToHostBuffer", **given, dst=address, dst_size=nbytes)
        await_work(self.client, answer.event, host)
        host.flags.writeable = False
        return host

    def copy_to_device(self, device: Device) -> Buffer:
        """Copy it to another device without waiting (`PJRT_Buffer_CopyToDevice`).

        A copy to a device of another client, of any platform, goes through the host and waits for
        the value; so does a copy of a layout that the plugin would copy wrongly.

        Args:
            device: one of `client.devices`, of this client or another.

        Raises:
            TypeError: `device` is not a Device.
            ValueError: the copy goes through the host, and dimensions of the buffer are dynamic.
            PjrtError: the copy goes through the host, and the computation of the value failed.
            UnsupportedByPluginError: the other plugin lacks the dtype or the layout.
            ClosedError: the buffer was deleted, donated or closed, or the other client closed.
        """
        if type(device) is not Device:
            raise TypeError(f"{device!r} is not a Device\n\nhint: client.devices[0] is one")
        if device.client is not self.client or self._is_miscopied:
            return self._copy_through_host(device)
        return self._copy(device)

    def copy_to_memory(self, memory: Memory) -> Buffer:
        """Copy it to another memory, such as "pinned_host" (`PJRT_Buffer_CopyToMemory`).

        Args:
            memory: one of `client.memories`, of this client or another: as for `copy_to_device`.
        """
        if not isinstance(memory, Memory):
            raise TypeError(f"{memory!r} is not a Memory\n\nhint: client.memories[0] is one")
        if memory.client is not self.client or self._is_miscopied:
            return self._copy_through_host(memory)
        device, address = choose_place(self.client, None, memory)
        with self.client._in_call():
            return self._like(self._ask("PJRT_Buffer_CopyToMemory", dst_memory=address), device)

    def _copy(self, device: Device) -> Buffer:
        made = self._copy_to_device(device, device.address)
        if made is not None:
            return made
        with self.client._in_call():
            copy = self._ask("PJRT_Buffer_CopyToDevice", dst_device=device.address)
            return self._like(copy, device)

    @property
    def _is_miscopied(self) -> bool:
        """Whether the plugin would mix up the values in a copy, because of this buffer's layout.

        XLA of PJRT API 0.106 gives the copy the right layout and mixes up its values, so each
        client is tried once.
        """
        client = self.client
        if self._order() is None:
            return False
        if client._copies_layouts is None:
            import numpy

            six = numpy.arange(6, dtype=numpy.uint8).reshape(2, 3)
            try:
                probe = client.buffer_from_host(six, layout=(0, 1))
            except (errors.UnimplementedError, errors.UnsupportedByPluginError):
                right = True  # No such buffer can be made, so none is copied wrongly.
            else:
                right = numpy.array_equal(probe._copy(probe.device).to_numpy(), six)
            client._copies_layouts = right
        return not client._copies_layouts

    def _copy_through_host(self, place: Device | Memory) -> Buffer:
        """Wait for the value and put it on a device or memory of any client, in the same layout."""
        if why_not := obstacle_to_copy(self):
            raise ValueError(why_not)
        where = {"device" if isinstance(place, Device) else "memory": place}
        copy: Buffer = place.client.buffer_from_host(self.to_numpy(), layout=self._order(), **where)
        return copy

    def copy_raw_to_host(self, destination: Any, offset: int = 0) -> Event:
        """Copy bytes of the device memory into host memory (`PJRT_Buffer_CopyRawToHost`).

        Waits for the value, but not for the copy.

        Args:
            destination: a writable contiguous array or buffer; its size says how many bytes. It is
                kept alive until the event is ready.
            offset: of the first byte on the device.

        Returns:
            The event of the copy's end.

        Raises:
            ValueError: the bytes lie outside of `on_device_nbytes`, or the destination is
                read-only.
        """
        from pjrt_hub.running.buffer.device_memory import copy_raw

        return copy_raw(self, destination, offset)

    def bitcast(self, dtype: Any, shape: Any, layout: tuple[int, ...] | None = None) -> Buffer:
        """Turn it into a buffer of another dtype and shape (`PJRT_Buffer_Bitcast`, 0.98).

        Args:
            dtype: numpy's, ml_dtypes' or StableHLO's name.
            shape: the dimensions, in elements.
            layout: minor_to_major; by default the plugin's own.

        Raises:
            ValueError: the number of bits would change, or dimensions are dynamic.
        """
        from pjrt_hub.running.buffer.device_memory import bitcast

        spec = ShapeSpec.of(shape, dtype, self.client.api.version, layout)
        buffer: Buffer = bitcast(self, spec)
        return buffer

    def unsafe_pointer(self) -> int:
        """Return the address of the value, without keeping it alive (`PJRT_Buffer_UnsafePointer`).

        Waits for the value.
        """
        self.ready.wait()  # Before that, there may be no memory, and asking for it would crash.
        return self._ask("PJRT_Buffer_UnsafePointer")

    @property
    def is_on_cpu(self) -> bool:
        """Whether it lives in host memory (`PJRT_Buffer_IsOnCpu`)."""
        return self._ask("PJRT_Buffer_IsOnCpu")

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """The real shape, if dimensions are dynamic (`PJRT_Buffer_UnpaddedDimensions`).

        Waits for the value if there are any dynamic dimensions.
        """
        return tuple(self._ask("PJRT_Buffer_UnpaddedDimensions"))

    @property
    def dynamic_dimensions(self) -> tuple[int, ...]:
        """The dimensions that `shape` only bounds (`PJRT_Buffer_DynamicDimensionIndices`)."""
        return tuple(self._ask("PJRT_Buffer_DynamicDimensionIndices"))

    def item(self) -> Any:
        """Return the only element, as a Python number.

        Raises:
            ValueError: the buffer does not have exactly one element.
        """
        return self.to_numpy().item()

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers."""
        return self.to_numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        """Serve `numpy.asarray(buffer)`, which shares memory where `to_numpy` does."""
        if dropped := self._take_dropped():  # numpy tries a memoryview first and drops its error.
            raise dropped
        array = self.to_numpy()
        if dtype is None and not copy:
            return array
        import numpy

        return numpy.array(array, dtype=dtype, copy=copy)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickle the value, which is unpickled as a numpy array: pickles do not keep the device."""
        import pickle

        import numpy

        value = self.to_numpy()
        array = numpy.ascontiguousarray(value)
        data: Any = array.reshape(-1).view(numpy.uint8)
        # `array` cannot give the shape, because ascontiguousarray makes scalars one-dimensional.
        packed = pickle.PickleBuffer(data) if protocol >= 5 else data.tobytes()  # type: ignore[operator]
        return host_array.from_pickled, (packed, array.dtype.name, value.shape)

    def __copy__(self) -> NoReturn:
        raise TypeError("a buffer is not copied this way\n\nhint: buffer.copy_to_device(device)")

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__copy__()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's (device type, device id) of the buffer's place, or raise BufferError."""
        from pjrt_hub.running.buffer.dlpack import device_of

        return device_of(self)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """Lend its memory to another framework: `torch.from_dlpack(buffer)` and the like.

        Waits for the value, so that every stream may read it. The memory stays as it is past
        `delete`, donation and `Client.close`, until the framework gives it back. It is marked
        read-only where DLPack can say so (`max_version` from (1, 0) on); writing into it all the
        same changes the buffer.

        `dl_device` can be the buffer's own place, or the host, for which it is copied. `copy=True`
        lends a copy, which may be written to; `copy=False` never copies. BufferError: DLPack cannot
        describe the buffer or its place, or only a copy would do.
        """
        from pjrt_hub.running.buffer.dlpack import lend

        return lend(self, stream, max_version, dl_device, copy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Its memory for CuPy, Numba and others; only on CUDA devices. Waits for the value.

        Unlike with DLPack, nobody gives the memory back: keep the buffer, undeleted and undonated,
        while the memory is used.
        """
        from pjrt_hub.running.buffer.dlpack import cuda_array_interface

        return cuda_array_interface(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a buffer without dimensions has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        """Return a part of the host's copy, as numpy does; waits for the value."""
        return self.to_numpy()[key]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the host's copy; waits for the value."""
        return iter(self.to_numpy())

    def __await__(self) -> Generator[Any, Any, Buffer]:
        """Suspend the running task until the value is there, and give the buffer itself."""
        yield from self.ready.__await__()
        return self

    def __format__(self, spec: str) -> str:
        """Format the only element; without a spec, all of them. Waits for the value."""
        return format(self.item(), spec) if spec else str(self)

    def __bool__(self) -> bool:
        return bool(self.to_numpy())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def _ask(self, function: str, **inputs: Any) -> Any:
        self._require_open()
        try:
            return self.client._call(function, buffer=self.address, **inputs)
        except errors.PjrtError as exc:
            if self._is_gone:
                raise errors.ClosedError(_GONE) from exc
            raise

    def __str__(self) -> str:
        """Write the value as numpy writes an array; wait for it."""
        return display.of_array(self.to_numpy())

    def __repr__(self) -> str:
        """Describe the value, its type and its place, without waiting for the value or raising."""
        from pjrt_hub.running.buffer import preview

        return preview.text(self)

    def _repr_html_(self) -> str:
        from pjrt_hub.running.buffer import preview

        return preview.html(self)

    def _summary(self) -> str:
        where = f"on {self.device}" if not self.client.closed else "of a closed client"
        dynamic = self.dynamic_dimensions if self._dynamic and not self._is_gone else ()
        return f"{self.element_type}[{dims_text(self.shape, dynamic)}] {where}"


def block_until_ready(value: T) -> T:
    """Wait for every buffer and event in a value; Ctrl-C ends the wait.

    Args:
        value: a Buffer, an Event, or lists, tuples, dicts and sets of them, nested in any way.
            Of any other object, such as a JAX array, the method `block_until_ready` is called if it
            has one; the rest is ignored.

    Returns:
        The same value.

    Raises:
        PjrtError: the computation of a value failed.
        ClosedError: a buffer was deleted, donated or closed.
    """
    if isinstance(value, Buffer):
        value.ready.wait()
    elif isinstance(value, Event):
        value.wait()
    elif isinstance(value, Mapping):
        block_until_ready(list(value.values()))
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            block_until_ready(each)
    elif (wait := getattr(value, "block_until_ready", None)) is not None:
        wait()
    return value


def obstacle_to_copy(buffer: Buffer) -> str:
    """Return why a buffer cannot be copied through the host, or an empty string."""
    if not buffer._dynamic:
        return ""
    return (
        f"the dimensions {buffer.dynamic_dimensions} of the buffer are dynamic, and a copy on "
        "another client cannot have such\n\n"
        "hint: client.buffer_from_host(numpy.asarray(buffer)) makes one without any"
    )


def require_layout(buffer: Buffer, order: memory_layout.Order) -> Buffer:
    """Return the buffer if it has the layout that the plugin was asked for, or raise an error."""
    if buffer.layout != order:
        raise errors.UnsupportedByPluginError(
            f"the plugin was asked for a buffer of the layout {order} and made one of "
            f"{buffer.layout}",
            function="PJRT_Buffer_MemoryLayout",
            since="",
            have=str(buffer.client.api.version),
        )
    return buffer
