"""Devices of a plugin that has all functions of 0.117, which no plugin for the CPU has."""

from __future__ import annotations

from stubbed import ONE_TO_FOUR, func, number, path, raises, text_of, with_stub

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin
from pjrt_hub.running.distributed import process_info
from pjrt_hub.running.distributed.process_info import ProcessInfo


@with_stub()
def test_devices_tell_and_are_told(client):
    device = client.devices[0]
    peaks = {"peak_bytes_in_use": 200, "peak_allocated_bytes": 300}
    assert device.memory_stats() == {"bytes_in_use": 100, **peaks}
    device.clear_memory_stats()
    assert number("stub_cleared") == 1
    assert device.get_attributes() == {"temperature": 40}
    assert number("stub_attributes") == 0, "the attributes are not freed"
    error = errors.AbortedError("the host went away", payloads={"who": b"host 3"})
    assert device.poison_execution(5, error) is True
    assert text_of("stub_poison") == "5 10 the host went away who=host 3"
    assert device.poison_execution(-1, errors.PjrtError("", code=13)) is False
    assert text_of("stub_poison") == "-1 13 "
    error = errors.AbortedError("gone", code=10, function="f", payloads={})
    process_info.update(client, [ProcessInfo(0, 2**63), ProcessInfo(1, 7, "error", error)])
    assert text_of("stub_processes") == "48:0:9223372036854775808:3:0: 48:1:7:4:10:gone "


@with_stub("MINOR=112")
def test_an_older_plugin_never_writes_the_newest_statistic(client):
    assert set(client.devices[0].memory_stats()) == {"bytes_in_use", "peak_bytes_in_use"}


@with_stub('ON_MEMORY_STATS=if (stub_cleared) return fail(13, ""); return fail(12, "")')
def test_memory_statistics_that_are_not_counted_or_fail(client):
    (device,) = client.devices
    assert device.memory_stats() is None
    device.clear_memory_stats()
    raises(errors.PluginInternalError, device.memory_stats)


@with_stub()
def test_tracking_events_end_once(client):
    device = client.devices[0]
    with pjrt_hub.AsyncTrackingEvent(device, "a transfer") as event:
        assert number("stub_tracked") == 1
        assert (event.device, event.description) == (device, "a transfer")
    event.close()
    assert number("stub_tracked") == 0
    late = pjrt_hub.AsyncTrackingEvent(device, "of a client that is closed first")
    client.close()
    raises(errors.ClosedError, late.close)
    late.close()
    assert number("stub_tracked") == 1


@with_stub("MINOR=77")
def test_the_plugin_reads_process_information_otherwise(client):
    told = [ProcessInfo(0)]
    error = raises(errors.UnsupportedByPluginError, process_info.update, client, told)
    assert (error.since, error.have) == ("0.78", "0.77"), error


def compiled():
    """A client, and what was compiled for it without it."""
    plugin = Plugin(load(path))
    client = plugin.client()
    return client, plugin.topology("any").compile(func("add"))


@with_stub()
def test_an_executable_of_this_process_is_loaded_and_given_away():
    client, executable = compiled()
    loaded = client.load(executable)
    a = client.buffer_from_host(ONE_TO_FOUR)
    assert loaded(a, a).tolist() == [2, 4, 6, 8]
    for use, *given in ((getattr, "name"), (type(executable).serialize,), (client.load,)):
        error = raises(errors.ClosedError, use, executable, *given)
        assert "given to a client" in str(error)
    assert repr(executable) == "<Executable given away>"
    del executable
    client.close()


@with_stub("TABLE_SIZE=offsetof(PJRT_Api, PJRT_Client_Load)", "MINOR=94")
def test_an_older_plugin_loads_only_bytes():
    client, executable = compiled()
    error = raises(errors.UnsupportedByPluginError, client.load, executable)
    assert error.since == "0.95", error
    assert "given" not in repr(type(executable))
