"""Placement: host arrays put on a device, also in a layout that the caller chooses.

Owns handling every kind of array, and the check for plugins that take a layout for a mere label of
the data that they are given.
"""

from __future__ import annotations

from typing import Any

from pjrt_hub.errors import UnsupportedByPluginError
from pjrt_hub.running.array import dtypes, memory_layout
from pjrt_hub.running.array.host_array import address_of, host_array
from pjrt_hub.running.array.memory_layout import Order, row_major_or
from pjrt_hub.running.array.shape_spec import known_shape
from pjrt_hub.running.buffer.buffer import Buffer, HostBufferSemantics, require_layout
from pjrt_hub.running.capi import callbacks
from pjrt_hub.running.device.device import Device, DeviceClient, Memory, choose_place
from pjrt_hub.running.device.event import event_of_work

_ROW_BY_ROW = bytes([0, 1, 2, 3, 4, 5])


def from_host(
    client: DeviceClient,
    array: Any,
    dtype: Any,
    where: tuple[Device | None, Memory | None],
    semantics: HostBufferSemantics,
    layout: Any,
) -> Buffer:
    """Serve `Client.buffer_from_host`, except for its plain case, which never comes here."""
    import numpy

    plain_array = dtype is None and type(array) is numpy.ndarray
    source: Any = array if plain_array else host_array(array, dtype)
    element = dtypes.of_numpy(source.dtype)
    if element.since:
        dtypes.require(element, client.api.version)
    order = memory_layout.order_of(layout, source.ndim)
    if not source.dtype.isnative:
        source = source.astype(source.dtype.newbyteorder("="))
    device, memory_address = choose_place(client, *where)
    if type(semantics) is not HostBufferSemantics:
        semantics = HostBufferSemantics(semantics)
    plain = source
    if source.dtype.kind not in "biufc":  # Arrays of ml_dtypes do not export their memory.
        plain = source.view(numpy.dtype(f"u{source.dtype.itemsize}"))
    if not plain.flags.aligned:
        plain = plain.copy()
    if semantics is HostBufferSemantics.MUTABLE_ZERO_COPY and not plain.flags.writeable:
        raise ValueError(
            "the array is read-only, and MUTABLE_ZERO_COPY lets programs write into it\n\n"
            "hint: give IMMUTABLE_ZERO_COPY, which shares it as it is, or array.copy()"
        )
    if order is not None:
        return put(client, plain, element, semantics, (device, memory_address), order)
    place = (device, device.address, memory_address)
    shape = known_shape(source.shape)
    if semantics is HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL:
        return Buffer._put(client, plain, element.code, shape, semantics, *place)[0]
    with client._in_call():
        callbacks.start()  # If the buffer is freed early, the dispatcher thread releases the array.
        buffer, done = Buffer._put(client, plain, element.code, shape, semantics, *place)
        if done:
            event_of_work(client, done, plain)
    return buffer


def put(
    client: DeviceClient,
    source: Any,
    element: dtypes.ElementType,
    semantics: HostBufferSemantics,
    place: tuple[Device, int],
    order: Order,
) -> Buffer:
    """Call `PJRT_Client_BufferFromHostBuffer` with a device layout.

    The semantics hold for `source`, an aligned array in native byte order, if it lies as the plugin
    takes it; else a copy is put. `place` is the device, and the address of the memory or 0.
    """
    row_by_row = row_major_or(order) is None or moves_data(client)
    given = memory_layout.to_memory(
        source, memory_layout.row_major(source.ndim) if row_by_row else order
    )
    return _put(client, given, source.shape, element, semantics, place, order)


def moves_data(client: DeviceClient) -> bool:
    """Return whether a plugin moves given data into a layout, or takes the layout for a label.

    The XLA CPU plugin does the latter, so each client is tried once. A few bytes are put and read
    back as an array, because on a device with tiles their place in memory says nothing.
    """
    if client._moves_data is not None:
        return client._moves_data
    import numpy

    order = (0, 1)
    six = numpy.frombuffer(_ROW_BY_ROW, numpy.uint8).reshape(2, 3)
    semantics, here = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL, choose_place(client)
    buffer = _put(client, six, six.shape, dtypes.of_numpy("uint8"), semantics, here, order)
    found = buffer.to_numpy()
    as_label = numpy.frombuffer(_ROW_BY_ROW, numpy.uint8).reshape(3, 2).T
    if numpy.array_equal(found, six) or numpy.array_equal(found, as_label):
        client._moves_data = numpy.array_equal(found, six)
        return client._moves_data
    raise UnsupportedByPluginError(
        f"the plugin was given {six.tolist()} for the layout {order} and gives {found.tolist()}",
        function="PJRT_Client_BufferFromHostBuffer",
        since="",
        have=str(client.api.version),
    )


def _put(
    client: DeviceClient,
    given: Any,
    shape: tuple[int, ...],
    element: dtypes.ElementType,
    semantics: HostBufferSemantics,
    place: tuple[Device, int],
    order: Order,
) -> Buffer:
    device, memory_address = place
    with client._in_call():
        callbacks.start()  # If the buffer is freed early, the dispatcher thread releases the array.
        answer = client.api.call(
            "PJRT_Client_BufferFromHostBuffer",
            client=client.address,
            data=address_of(given),
            type=element.code,
            dims=shape,
            host_buffer_semantics=int(semantics),
            device=device.address,
            memory=memory_address,
            device_layout=memory_layout.wish(order, element.bits),
        )
        done = answer.done_with_host_buffer
        if done:
            event_of_work(client, done, given)
        buffer = Buffer._adopt(client, answer.buffer, element.code, known_shape(shape), device)
        return require_layout(buffer, order)
