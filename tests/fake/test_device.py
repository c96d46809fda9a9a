"""Devices of a plugin that has all functions of 0.117, which no plugin for the CPU has."""

from __future__ import annotations

PRELUDE = """
library = ctypes.CDLL(path)
def count(name):
    return ctypes.c_long.in_dll(library, name).value
client = Plugin(load(path)).client()
device = client.devices[0]
"""


def test_memory_statistics(check, stub):
    check(
        stub(),
        PRELUDE
        + """
assert device.memory_stats() == {
    "bytes_in_use": 100, "peak_bytes_in_use": 200, "peak_allocated_bytes": 300
}
device.clear_memory_stats()
assert count("stub_cleared") == 1
""",
    )


def test_an_older_plugin_never_writes_the_newest_statistic(check, stub):
    check(
        stub("MINOR=112"),
        PRELUDE + 'assert set(device.memory_stats()) == {"bytes_in_use", "peak_bytes_in_use"}\n',
    )


def test_attributes_are_copied_and_freed(check, stub):
    check(
        stub(),
        PRELUDE
        + """
assert device.get_attributes() == {"temperature": 40}
assert count("stub_attributes") == 0
""",
    )


def test_poison(check, stub):
    check(
        stub(),
        PRELUDE
        + """
error = errors.AbortedError("the host went away", payloads={"who": b"host 3"})
assert device.poison_execution(5, error) is True
poison = (ctypes.c_char * 512).in_dll(library, "stub_poison")
assert poison.value == b"5 10 the host went away who=host 3", poison.value
assert device.poison_execution(-1, errors.PjrtError("", code=13)) is False
assert poison.value == b"-1 13 "
""",
    )


def test_tracking_events_end_once(check, stub):
    check(
        stub(),
        PRELUDE
        + """
with device.create_async_tracking_event("a transfer") as event:
    assert count("stub_tracked") == 1
    assert (event.device, event.description) == (device, "a transfer")
event.close()
assert count("stub_tracked") == 0
late = device.create_async_tracking_event("of a client that is closed first")
client.close()
raises(errors.ClosedError, late.close)
late.close()
assert count("stub_tracked") == 1
""",
    )


def test_what_other_processes_do(check, stub):
    check(
        stub(),
        PRELUDE
        + """
from pjrt_hub.running.distributed.process_info import ProcessInfo
error = errors.AbortedError("gone", code=10, function="f", payloads={})
client.update_global_process_info([ProcessInfo(0, 2**63), ProcessInfo(1, 7, "error", error)])
told = (ctypes.c_char * 256).in_dll(library, "stub_processes").value
assert told == b"48:0:9223372036854775808:3:0: 48:1:7:4:10:gone ", told
""",
    )


def test_the_plugin_reads_process_information_otherwise(check, stub):
    check(
        stub("MINOR=77"),
        PRELUDE
        + """
from pjrt_hub.running.distributed.process_info import ProcessInfo
try:
    client.update_global_process_info([ProcessInfo(0)])
except errors.UnsupportedByPluginError as exc:
    assert (exc.since, exc.have) == ("0.78", "0.77"), exc
else:
    raise AssertionError
""",
    )


LOAD = """
plugin = Plugin(load(path))
client = plugin.client()
executable = plugin.topology("any").compile(func("add"))
"""


def test_an_executable_of_this_process_is_loaded_and_given_away(check, stub):
    check(
        stub(),
        LOAD
        + """
loaded = client.load(executable)
a = client.buffer_from_host(ONE_TO_FOUR)
assert loaded(a, a).tolist() == [2, 4, 6, 8]
for use in (lambda: executable.name, executable.serialize, lambda: client.load(executable)):
    try:
        use()
    except errors.ClosedError as exc:
        assert "given to a client" in str(exc)
    else:
        raise AssertionError
assert repr(executable) == "<Executable given away>"
del executable
client.close()
""",
    )


def test_an_older_plugin_loads_only_bytes(check, stub):
    check(
        stub("TABLE_SIZE=offsetof(PJRT_Api, PJRT_Client_Load)", "MINOR=94"),
        LOAD
        + """
try:
    client.load(executable)
except errors.UnsupportedByPluginError as exc:
    assert exc.since == "0.95", exc
else:
    raise AssertionError
assert "given" not in repr(type(executable))
""",
    )
