"""Devices and their descriptions: lists, look-ups, properties, memory statistics, poisoning."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from pjrt_hub.errors import InvalidArgumentError, NotFoundError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Skipped, ask_twice, code_name, equal, expect, some_text
from pjrt_hub.kit.conformance.programs import DOUBLE, SLOW_SHAPE
from pjrt_hub.kit.conformance.slow import slow
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import unchecked

_16_KIB = 16 << 10
_INTERNAL = 13


@check(number=37)
def lists(subject: Subject) -> None:
    """List all devices and the addressable ones -> both non-empty, the second within the first."""
    every, usable = (_devices(subject, kind) for kind in ("Devices", "AddressableDevices"))
    expect(bool(every) and bool(usable), f"expected devices, found {len(every)}, {len(usable)}")
    expect(0 not in every, "expected devices, found NULL among them")
    expect(set(usable) <= set(every), "expected addressable devices among all, found others")
    equal(len(set(every)), len(every), "different devices")


@check(number=37)
def lists_are_kept(subject: Subject) -> None:
    """List the devices twice -> the same, in the same order; a list that moves is noted."""
    for kind, field in (("Devices", "devices"), ("AddressableDevices", "addressable_devices")):
        ask_twice(partial(_devices, subject, kind), f"PJRT_Client_{kind}")
        subject.note_moved(f"PJRT_Client_{kind}", field, client=subject.client)


@check(number=37)
def ids(subject: Subject) -> None:
    """Ask each device twice for its id -> different ids from 0, the same both times."""
    devices = _devices(subject, "Devices")
    found = ask_twice(lambda: [_id(subject, device) for device in devices], "the ids")
    expect(min(found) >= 0, f"expected ids from 0, found {found}")
    equal(len(set(found)), len(found), "different ids of devices")


@check(number=38)
def look_up(subject: Subject) -> None:
    """Look each device up by its id -> that device."""
    for device in _devices(subject, "Devices"):
        found = _look_up(subject, _id(subject, device))
        equal(found, device, f"the device of id {_id(subject, device)}")


@check(number=38)
def look_up_addressable(subject: Subject) -> None:
    """Look each addressable device up by its local hardware id -> that device."""
    for device in subject.devices:
        local = subject.call("PJRT_Device_LocalHardwareId", device=device)
        if local < 0:
            subject.note(f"a device has the local hardware id {local}")
            continue
        equal(_look_up_local(subject, local), device, f"the device of local hardware id {local}")


@check(number=39)
def look_up_unknown(subject: Subject) -> None:
    """Look up the id -1 and one past the last -> an error, usually NOT_FOUND."""
    past = max(_id(subject, device) for device in _devices(subject, "Devices")) + 1
    for number in (-1, past):
        _refuses_id(subject, lambda number=number: _look_up(subject, number), f"the id {number}")
    subject.usable()


@check(number=39)
def look_up_unknown_addressable(subject: Subject) -> None:
    """Look up the local hardware id -1 and one past the last -> an error, usually NOT_FOUND."""
    locals_ = [subject.call("PJRT_Device_LocalHardwareId", device=each) for each in subject.devices]
    wanted = {-1, max(locals_) + 1} - set(locals_)
    for number in sorted(wanted):
        what = f"the local hardware id {number}"
        _refuses_id(subject, lambda number=number: _look_up_local(subject, number), what)
    subject.usable()


@check(number=40)
def addressable(subject: Subject) -> None:
    """Ask IsAddressable of each device -> true for the client's addressable devices only."""
    for device in _devices(subject, "Devices"):
        found = subject.call("PJRT_Device_IsAddressable", device=device)
        equal(bool(found), device in subject.devices, f"device {_id(subject, device)} addressable")


@check(number=40)
def process_index(subject: Subject) -> None:
    """Ask each addressable device for its process index -> the client's."""
    wanted = subject.call("PJRT_Client_ProcessIndex", client=subject.client)
    for device in subject.devices:
        found = subject.describe(device, "ProcessIndex")
        equal(found, wanted, f"the process of device {_id(subject, device)}")


@check(number=41)
def texts(subject: Subject) -> None:
    """Ask each device for its kind, debug string and string -> UTF-8, none empty."""
    for device in _devices(subject, "Devices"):
        for name in ("Kind", "DebugString", "ToString"):
            some_text(subject.describe(device, name), f"{name} of device {_id(subject, device)}")


@check(number=42)
def attributes(subject: Subject) -> None:
    """Ask each device description twice for its attributes -> the same, each name once."""
    for device in _devices(subject, "Devices"):
        description = subject.call("PJRT_Device_GetDescription", device=device)
        function = "PJRT_DeviceDescription_Attributes"
        subject.call(function, device_description=description)
        ask = partial(unchecked.named_values, subject.api, function)
        found = ask_twice(partial(ask, device_description=description), "the attributes")
        expect(all(dict(found)), f"expected a name of each attribute, found {found}")
        equal(len(dict(found)), len(found), "different names among the attributes")


@check(number=42, since=92)
def live_attributes(subject: Subject) -> None:
    """Ask each device for its live attributes -> readable, and their deleter frees them."""
    for device in subject.devices:
        found = subject.api.call("PJRT_Device_GetAttributes", device=device)
        expect(all(found), f"expected a name of each attribute, found {list(found)}")


@check(number=43)
def memory_stats(subject: Subject) -> None:
    """Ask each device that holds an array for its statistics -> use is within limit and peak."""
    for device in subject.devices:
        subject.put(np.zeros(_16_KIB // 4, np.float32), device=device)
        stats = subject.call("PJRT_Device_MemoryStats", device=device)
        used = stats.bytes_in_use
        expect(used >= 0, f"expected bytes in use from 0, found {used}")
        if stats.bytes_limit_is_set:
            expect(used <= stats.bytes_limit, f"{used} bytes in use of {stats.bytes_limit}")
        if stats.peak_bytes_in_use_is_set:
            peak = stats.peak_bytes_in_use
            expect(used <= peak, f"expected a peak of {used} or more, found {peak}")


@check(number=44)
def memory_in_use(subject: Subject) -> None:
    """Put 16 KiB, destroy the buffer -> bytes in use grow by at least that, then fall again."""
    before = _in_use(subject)
    buffer = subject.put(np.zeros(_16_KIB // 4, np.float32))
    during, least = _in_use(subject), before + _16_KIB
    expect(during >= least, f"expected {before} + {_16_KIB} or more in use, found {during}")
    subject.destroy(buffer)
    after = _in_use(subject)
    expect(after <= during - _16_KIB, f"expected {before} bytes in use again, found {after}")


@check(number=44, since=106)
def clear_memory_stats(subject: Subject) -> None:
    """Put 16 KiB, destroy the buffer, clear the statistics -> the peak is the bytes in use."""
    subject.destroy(subject.put(np.zeros(_16_KIB // 4, np.float32)))
    stats = subject.call("PJRT_Device_MemoryStats", device=subject.device)
    subject.call("PJRT_Device_ClearMemoryStats", device=subject.device)
    cleared = subject.call("PJRT_Device_MemoryStats", device=subject.device)
    if not stats.peak_bytes_in_use_is_set:
        subject.note("counts no peak")
        return
    equal(cleared.peak_bytes_in_use, cleared.bytes_in_use, "the peak after it was cleared")


@check(number=45, since=86)
def async_tracking_event(subject: Subject) -> None:
    """Create an async tracking event and destroy it -> both succeed."""
    name = "PJRT_Device_CreateAsyncTrackingEvent"
    event = subject.call(name, device=subject.device, description="a check")
    subject.call("PJRT_AsyncTrackingEvent_Destroy", event=event)


@check(number=46, since=85)
def poison_nothing(subject: Subject) -> None:
    """Poison an unknown launch -> false, and no error."""
    equal(bool(_poison(subject, 123_456)), False, "whether an unknown launch was poisoned")
    subject.usable()


@check(number=46, since=85)
def poison(subject: Subject) -> None:
    """Poison a launch that waits for its input -> true, and its output fails with that message."""
    launch, identity = 77, slow(subject)
    executable = subject.compile(DOUBLE.replace("4xf32", SLOW_SHAPE))
    (output,) = subject.execute(executable, [identity], launch_id=launch)
    if not _poison(subject, launch):
        raise Skipped("the launch was not poisoned: it may have been over")
    error = subject.expect_error(lambda: subject.wait(output), "a poisoned output")
    expect("poison of a check" in error.message, f"expected its message, found {error.message}")
    if error.code != _INTERNAL:
        subject.note(f"a poisoned output: {code_name(error.code)}, where INTERNAL was given")


def _devices(subject: Subject, kind: str) -> list[int]:
    return list(subject.call(f"PJRT_Client_{kind}", client=subject.client))


def _id(subject: Subject, device: int) -> int:
    return int(subject.describe(device, "Id"))


def _look_up(subject: Subject, number: int) -> int:
    return subject.call("PJRT_Client_LookupDevice", client=subject.client, id=number)


def _look_up_local(subject: Subject, number: int) -> int:
    name = "PJRT_Client_LookupAddressableDevice"
    return int(subject.call(name, client=subject.client, local_hardware_id=number))


def _refuses_id(subject: Subject, call: Any, what: str) -> None:
    subject.expect_error(call, what, InvalidArgumentError.code, NotFoundError.code)


def _in_use(subject: Subject) -> int:
    return subject.call("PJRT_Device_MemoryStats", device=subject.device).bytes_in_use


def _poison(subject: Subject, launch: int) -> bool:
    error = {"error_code": _INTERNAL, "error_message": "the poison of a check"}
    name = "PJRT_Device_PoisonExecution"
    return bool(subject.call(name, device=subject.device, launch_id=launch, **error))
