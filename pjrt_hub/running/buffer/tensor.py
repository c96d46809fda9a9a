"""Tensors: what other frameworks lend over DLPack, borrowed as buffers.

Owns when memory is shared and when it is copied; a loan ends when its owner dies, on the
dispatcher thread if a plugin held it.
"""

from __future__ import annotations

import math
from typing import Any

from pjrt_hub.running.array import dtypes, packing
from pjrt_hub.running.array.host_array import ALIGNMENT, refuse_mask
from pjrt_hub.running.array.memory_layout import Order, members, row_major, row_major_or
from pjrt_hub.running.buffer import dlpack, placement
from pjrt_hub.running.buffer.buffer import Buffer, HostBufferSemantics, require_layout
from pjrt_hub.running.capi import callbacks, hotpath
from pjrt_hub.running.capi.status import answer_or_none
from pjrt_hub.running.device.device import Device, DeviceClient, choose_place


class Tensor:
    """A tensor that another framework lent; it is given back when this object dies."""

    def __init__(self, capsule: object) -> None:
        owner, flags, device, (code, bits, lanes), address, shape, strides = hotpath.borrow(capsule)
        element = dlpack.ELEMENTS.get((code, bits))
        if element is None or lanes != 1:
            raise TypeError(
                f"PJRT has no element type for DLPack's code {code} of {bits} bits"
                + (f" in {lanes} lanes" if lanes != 1 else "")
            )
        if min(shape, default=0) < 0:
            raise ValueError(f"the DLPack tensor says that its shape is {shape}")
        self.owner = owner  # The memory is lent until this object dies.
        self.padded = bool(flags & dlpack.PADDED)  # Whether elements below 8 bits take a byte each.
        self.device: tuple[int, int] = device  # The (device type, device id) in DLPack's numbers.
        self.element = element
        self.address: int = address  # The first element's address; it may be 0 if there is none.
        self.shape: tuple[int, ...] = shape
        self.size = math.prod(self.shape)
        self.strides: tuple[int, ...] = dlpack.strides(shape) if strides is None else strides
        if self.size * element.bits >= 1 << 63:
            raise ValueError(f"the DLPack tensor of shape {shape} is larger than any memory")
        if self.size and not address:
            raise ValueError(f"the DLPack tensor of shape {shape} has no memory")

    @property
    def row_major(self) -> bool:
        """Whether its elements lie in row-major order, without gaps."""
        return self.order == row_major(len(self.shape))

    @property
    def order(self) -> Order | None:
        """The layout (minor_to_major) of its elements; None if they lie with gaps or overlap."""
        rank = len(self.shape)
        by_strides = sorted(range(rank), key=lambda d: (self.shape[d] == 1, self.strides[d], -d))
        for order in (row_major(rank), tuple(by_strides)):
            dense = dlpack.strides(self.shape, order)
            found = zip(self.shape, self.strides, dense, strict=True)
            if not self.size or all(size == 1 or have == want for size, have, want in found):
                return order
        return None

    def to_numpy(self) -> Any:
        """Return its memory as an array, shared unless its elements are packed into bytes."""
        import numpy

        dtype = dtypes.numpy_dtype(self.element.code)
        if not self.size:
            return numpy.empty(self.shape, dtype)
        packed = self.element.bits < 8 and not self.padded
        if packed and not self.row_major:
            raise BufferError(f"{self.element.name} with strides {self.strides} cannot be unpacked")
        if packed:
            nbytes = packing.nbytes(self.size, self.element.bits)
            data = self._view((nbytes,), (1,), "|u1")
            return packing.unpack(data, self.shape, self.element.bits, dtype)
        plain = dtype.isbuiltin == 1  # numpy cannot read the type strings of ml_dtypes.
        raw = self._view(
            self.shape,
            tuple(step * dtype.itemsize for step in self.strides),
            dtype.str if plain else f"<u{dtype.itemsize}",
        )
        return raw if plain else raw.view(dtype)

    def _view(self, shape: tuple[int, ...], strides: tuple[int, ...], typestr: str) -> Any:
        import numpy

        self.__array_interface__ = {
            "version": 3,
            "data": (self.address, True),
            "shape": shape,
            "strides": strides,
            "typestr": typestr,
        }
        return numpy.asarray(self)


def borrow(client: DeviceClient, source: Any, device: Device | None, copy: bool | None) -> Buffer:
    """Return a buffer of another framework's array; see `Client.from_dlpack`."""
    client._require_open()
    refuse_mask(source)
    stream = 0
    if hasattr(source, "__dlpack__"):
        source = _resolve(source, copy)
        kind, number = source.__dlpack_device__()
        if device is None:
            device = _same(client, (int(kind), int(number)))
        stream = _ready_stream(client, device) if int(kind) not in dlpack.ON_HOST else 0
        source = _capsule(source, stream)
    tensor = Tensor(source)
    dtypes.require(tensor.element, client.api.version)
    if device is None:
        device = _same(client, tensor.device)
    place, _ = choose_place(client, device, None)
    if tensor.device[0] not in dlpack.ON_HOST and _same(client, tensor.device) is not place:
        raise BufferError(
            f"the tensor lives on DLPack's device {tensor.device}, which is not {place}: "
            "copy it to the host first"
        )
    obstacle = _why_copied(client, tensor, copy)
    if copy is False and obstacle:
        raise BufferError(f"only a copy is possible, and copy=False forbids it: {obstacle}")
    if tensor.device[0] in dlpack.ON_HOST and (copy or obstacle):
        copied = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
        return placement.from_host(client, tensor.to_numpy(), None, (place, None), copied, None)
    if obstacle:
        raise BufferError(f"the tensor cannot be shared, and it is not on the host: {obstacle}")
    buffer = _view(client, tensor, place, stream)
    return dlpack.copy_on_device(buffer) if copy else buffer


def _resolve(source: Any, copy: bool | None) -> Any:
    """Return the array with its true values in memory: resolve negated and conjugated views.

    DLPack has no such views, and torch lends the memory of a negated one without the negation.
    """
    for asked, resolve in (("is_neg", "resolve_neg"), ("is_conj", "resolve_conj")):
        if hasattr(source, resolve) and getattr(source, asked)():
            if copy is False:
                raise BufferError(
                    f"only a copy is possible, and copy=False forbids it: {asked}() is true of the "
                    f"array, so its values are not in memory\n\nhint: give array.{resolve}()"
                )
            source = getattr(source, resolve)()
    return source


def _same(client: DeviceClient, where: tuple[int, int]) -> Device | None:
    """Return the client's device for DLPack's (type, id), or None if it has no such device."""
    kind, number = where
    if client._is_on_host:
        return choose_place(client)[0] if kind in dlpack.ON_HOST else None
    if dlpack.PLATFORMS.get(client.platform_name) != kind:
        return None
    return next((each for each in client.devices if each.local_hardware_id == number), None)


def _capsule(source: Any, stream: int) -> object:
    named = {"stream": stream} if stream else {}
    try:
        return source.__dlpack__(max_version=dlpack.MAX_VERSION, **named)
    except TypeError:  # Methods from before DLPack 1 do not take max_version.
        return source.__dlpack__(**named)


def _ready_stream(client: DeviceClient, device: Device | None) -> int:
    """Return the stream on which the plugin expects foreign values; 0 if it tells none."""
    if device is None:
        return 0
    name, address = "PJRT_Get_Stream_For_External_Ready_Events", device.address
    with client._in_call():
        stream = answer_or_none(lambda: client.api.extension("Stream").call(name, device=address))
    return int(stream or 0)


def _why_copied(client: DeviceClient, tensor: Tensor, copy: bool | None) -> str:
    """Return what keeps the plugin from sharing the tensor's memory; empty if nothing does.

    A buffer that is not row-major fits few programs, so on the host a copy is better unless the
    caller forbids it.
    """
    if not client.api.has("PJRT_Client_CreateViewOfDeviceBuffer"):
        return "the plugin lacks PJRT_Client_CreateViewOfDeviceBuffer"
    if not client._is_on_host and tensor.device[0] in dlpack.ON_HOST:
        return "the tensor is on the host, the buffer on a device"
    if not tensor.size:
        return "the tensor has no elements, so no memory"
    choice = tensor.device[0] in dlpack.ON_HOST and copy is not False
    if tensor.order is None or (choice and not tensor.row_major):
        return f"its strides are {tensor.strides}, not row-major"
    if tensor.padded and tensor.element.bits < 8:
        return f"its {tensor.element.name} take a byte each"
    if tensor.element.bits in dlpack.UNSETTLED_BITS:
        return f"how {tensor.element.name} lies on a device is each plugin's own matter"
    if client._is_on_host and tensor.address % ALIGNMENT:
        return (
            f"its memory begins {tensor.address % ALIGNMENT} bytes past a multiple of {ALIGNMENT}"
        )
    return ""


def _view(client: DeviceClient, tensor: Tensor, place: Device, stream: int) -> Buffer:
    kept, order = [tensor.owner], tensor.order or ()
    function, argument = callbacks.deleter(kept.clear)
    with client._in_call():
        try:
            address = client._call(
                "PJRT_Client_CreateViewOfDeviceBuffer",
                client=client.address,
                device_buffer_ptr=tensor.address,
                dims=list(tensor.shape),
                element_type=tensor.element.code,
                layout=members(row_major_or(order)),
                device=place.address,
                memory=place.default_memory.address,
                on_delete_callback=function,
                on_delete_callback_arg=argument,
                stream=stream,
            )
        except BaseException:
            kept.clear()  # No view was made, so the plugin never calls the deleter.
            raise
        buffer = Buffer._adopt(client, address, tensor.element.code, tensor.shape, place)
        return require_layout(buffer, order)
