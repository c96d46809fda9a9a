"""Placeholders: buffers that are made with a shape but without a value from the host.

Such a buffer is uninitialized, failed from the beginning, an alias of a later buffer, the heir of
a donated one, or a view of existing memory.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from functools import partial
from typing import Any

from pjrt_hub.errors import ClosedError, PjrtError
from pjrt_hub.running.array import memory_layout
from pjrt_hub.running.array.host_array import ALIGNMENT, address_of, as_bytes
from pjrt_hub.running.array.shape_spec import ShapeSpec
from pjrt_hub.running.buffer.buffer import Buffer
from pjrt_hub.running.capi import callbacks, irregular
from pjrt_hub.running.capi.status import answer_or_none
from pjrt_hub.running.device.device import (
    Device,
    DeviceClient,
    Memory,
    choose_place,
    default_memory,
)
from pjrt_hub.running.device.layout import default_layout
from pjrt_hub.running.device.promise import Promise, read_error

_DEPENDENCY = "PJRT_Buffer_DonateWithControlDependency_Callback_Args"


class Alias(Promise):
    """A buffer that stands for another one, which is made later (`PJRT_Client_CreateAliasBuffer`).

    Programs can be run on `buffer` at once; they wait until `fulfill` or `fail`. An alias that
    dies or is closed with its client before that fails with CANCELLED.

    Attributes:
        buffer: the alias, pending until it is fulfilled or fails.
    """

    __slots__ = ("_layout", "_memory", "_spec", "buffer")
    __module__ = "pjrt_hub"

    def __init__(
        self,
        client: DeviceClient,
        shape: Any,
        dtype: Any = "float32",
        *,
        memory: Memory | None = None,
        layout: tuple[int, ...] | None = None,
    ) -> None:
        """Make a placeholder for a later buffer.

        Args:
            client: the client that both buffers belong to.
            shape: the dimensions, in elements.
            dtype: numpy's, ml_dtypes' or StableHLO's name.
            memory: one of a device's memories; by default the first device's own.
            layout: minor_to_major; by default the plugin's own.

        Raises:
            TypeError: PJRT has no such dtype.
            ValueError: the shape is impossible, or the memory belongs to another client.
            UnsupportedByPluginError: the plugin is older than API 0.77.
        """
        spec = ShapeSpec.of(shape, dtype, client.api.version, layout)
        memory = memory or default_memory(client)
        device, memory_address = choose_place(client, None, memory)
        self._spec, self._memory = spec, memory
        call = client.api.call
        with client._in_call():
            answer = call(
                "PJRT_Client_CreateAliasBuffer",
                client=client.address,
                memory=memory_address,
                shape_dims=spec.shape,
                shape_element_type=spec.element.code,
                shape_layout=_layout(client, spec),
            )
            self.buffer = Buffer._from_spec(client, answer.alias_buffer, spec, device)
            self._layout = self.buffer.layout  # The buffer may be deleted before this is used.
            callback = answer.fulfill_alias_buffer_cb

            def fulfil(code: int, message: str, value: int) -> None:
                try:
                    call(
                        "PJRT_Client_FulfillAliasBuffer",
                        client=client.address,
                        buffer=value,
                        status_code=code,
                        error_message=message,
                        fulfill_alias_buffer_cb=callback,
                    )
                except PjrtError as exc:
                    if exc.code != code:  # The XLA CPU plugin returns the error that it was given.
                        raise

            super().__init__(client, fulfil)

    def fulfill(self, buffer: Buffer) -> None:
        """Resolve the alias to this buffer (`PJRT_Client_FulfillAliasBuffer`).

        Args:
            buffer: of the alias's dtype, shape and memory; plugins may take it over and delete it.

        Raises:
            TypeError: `buffer` is not a Buffer, or its dtype differs.
            ValueError: its shape, layout, memory or client differs.
            BufferError: its memory is lent out: to an array of `to_numpy`, or by DLPack.
            ClosedError: it was deleted, or the alias was fulfilled, failed or closed before.
        """
        if not isinstance(buffer, Buffer):
            raise TypeError(f"an alias stands for a Buffer, not {type(buffer).__name__}")
        if buffer.client is not self.client:
            raise ValueError(
                "the buffer belongs to another client than the alias\n\n"
                "hint: buffer.copy_to_memory(alias.buffer.memory) is a copy of it that does not"
            )
        if buffer is self.buffer:
            raise ValueError("an alias cannot stand for itself")
        if buffer.is_deleted:
            raise ClosedError("the buffer was deleted or donated")
        spec = self._spec
        if buffer._dtype != spec.element.code:
            raise TypeError(f"the alias is {spec}, the buffer has the dtype {buffer.dtype}")
        if buffer.shape != spec.shape:
            raise ValueError(f"the alias is {spec}, the buffer has the shape {buffer.shape}")
        if buffer.layout != self._layout:
            raise ValueError(f"the alias is {spec}, the buffer has the layout {buffer.layout}")
        if buffer.memory is not self._memory:
            raise ValueError(f"the alias lives in {self._memory}, the buffer in {buffer.memory}")
        if buffer._is_lent:  # The XLA CPU plugin would abort on a lent buffer.
            raise BufferError(
                "the buffer's memory is lent out, so it cannot be taken over: let go of the arrays "
                "and references to it, or give buffer.copy_to_memory(buffer.memory)"
            )
        self._answer(0, "", buffer.address)


class ControlDependency(Promise):
    """A donation whose memory is usable later (`PJRT_Buffer_DonateWithControlDependency`).

    Attributes:
        buffer: the new buffer of the memory, usable once the dependency is fulfilled.
    """

    __slots__ = ("buffer",)
    __module__ = "pjrt_hub"

    def __init__(self, buffer: Buffer) -> None:
        """Donate a buffer's memory to a new buffer, which deletes the old one.

        Args:
            buffer: a `Buffer`.

        Raises:
            UnsupportedByPluginError: the plugin is older than API 0.88.
            ClosedError: the buffer was deleted, donated or closed.
        """
        client = buffer.client
        with client._in_call():
            given = buffer._ask("PJRT_Buffer_DonateWithControlDependency")
            answer = partial(
                irregular.answer, _DEPENDENCY, given.dependency_ready_callback, given.callback_data
            )
            super().__init__(client, answer)
            self.buffer = buffer._adopt(
                client, given.out_buffer, buffer._dtype, buffer.shape, buffer.device
            )

    def fulfill(self) -> None:
        """Fulfill the dependency: the donated memory may be used.

        Raises:
            ClosedError: the dependency was fulfilled, failed or closed before.
        """
        self._answer(0, "", 0)


def create_uninitialized(
    client: DeviceClient, spec: ShapeSpec, device: Device | None, memory: Memory | None
) -> Buffer:
    """Call `PJRT_Client_CreateUninitializedBuffer`."""
    place, memory_address = choose_place(client, device, memory)
    with client._in_call():
        address = client.api.call(
            "PJRT_Client_CreateUninitializedBuffer",
            client=client.address,
            shape_dims=spec.shape,
            shape_element_type=spec.element.code,
            shape_layout=spec.wish,
            device=0 if memory_address else place.address,  # Some plugins would ignore the memory.
            memory=memory_address,
        )
        return Buffer._from_spec(client, address, spec, place)


def create_error(client: DeviceClient, error: PjrtError, spec: ShapeSpec, memory: Memory) -> Buffer:
    """Call `PJRT_Client_CreateErrorBuffer`."""
    code, message = read_error(error)
    place, memory_address = choose_place(client, None, memory)
    with client._in_call():
        payloads: dict[str, Any] = dict(error.payloads)
        layout = _layout(client, spec)
        address = client.api.call(
            "PJRT_Client_CreateErrorBuffer",
            client=client.address,
            error_code=code,
            error_message=message,
            shape_dims=spec.shape,
            shape_element_type=spec.element.code,
            shape_layout=layout,
            device_layout=layout,
            memory=memory_address,
            payload=payloads,
        )
        return Buffer._from_spec(client, address, spec, place)


def create_view(
    client: DeviceClient,
    memory_at: Any,
    spec: ShapeSpec,
    device: Device | None,
    memory: Memory | None,
    stream: int,
    on_delete: Callable[[], object] | None,
) -> Buffer:
    """Call `PJRT_Client_CreateViewOfDeviceBuffer`."""
    if on_delete is not None and not callable(on_delete):
        raise TypeError(f"on_delete is {on_delete!r}, which cannot be called")
    owner = None
    if isinstance(memory_at, numbers.Integral):  # This includes numpy's integers.
        address = int(memory_at)
    else:
        owner = as_bytes(memory_at)
        address = address_of(owner)
        if owner.nbytes < spec.nbytes:
            raise ValueError(f"{spec} needs {spec.nbytes} bytes, the memory has {owner.nbytes}")
        if not client._is_on_host:
            raise ValueError("the memory of a host array is not device memory of this platform")
    if not 0 < address <= (1 << 64) - max(spec.nbytes, 1):
        raise ValueError(f"{address} is not the address of {spec.nbytes} bytes")
    if client._is_on_host and address % ALIGNMENT:
        raise ValueError(f"the memory at {address:#x} does not begin at a multiple of {ALIGNMENT}")
    place, memory_address = choose_place(client, device, memory)

    # Some plugins abort without a callback, so there is always one.
    function, argument = callbacks.deleter(on_delete or (lambda: None), owner)
    with client._in_call():
        made = client.api.call(
            "PJRT_Client_CreateViewOfDeviceBuffer",
            client=client.address,
            device_buffer_ptr=address,
            dims=spec.shape,
            element_type=spec.element.code,
            layout=spec.wish,
            device=place.address,
            memory=memory_address,
            stream=stream,
            on_delete_callback=function,
            on_delete_callback_arg=argument,
        )
        return Buffer._from_spec(client, made, spec, place)


def _layout(client: DeviceClient, spec: ShapeSpec) -> Any:
    """Return a layout for a buffer without data, because newer plugins do not choose one."""
    if spec.layout is not None:
        return memory_layout.members(spec.layout)
    own = answer_or_none(lambda: default_layout(client, spec.element.name, spec.shape))
    if own is None:
        return memory_layout.members(memory_layout.row_major(len(spec.shape)))
    return memory_layout.members(own.minor_to_major, own.tiles)
