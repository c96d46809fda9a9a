"""The library and its function table: loading, version, sizes of structs, initialization."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from pjrt_hub import errors
from pjrt_hub.base.abi import DECLARED, compatible
from pjrt_hub.errors import InvalidArgumentError, PjrtError
from pjrt_hub.kit.conformance import finding
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import ask_twice, code_name, equal, expect, raise_as
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.kit.conformance.subject import Subject, load
from pjrt_hub.running.capi import custom_calls, table, unchecked
from pjrt_hub.running.capi.status import FIRST_SLOT
from pjrt_hub.running.capi.unchecked import Entry, Sized

_WORD = 8
_ATTRIBUTES = ("xla_version", "stablehlo_current_version", "stablehlo_minimum_version")
#: Callers depend on these functions: without one of them, there are no errors, events or values, or
#: something cannot be freed.
_NEEDED = (
    *("PJRT_Error_Destroy", "PJRT_Error_Message", "PJRT_Error_GetCode"),
    *("PJRT_Event_Destroy", "PJRT_Event_IsReady", "PJRT_Event_Error", "PJRT_Event_OnReady"),
    *("PJRT_Client_Destroy", "PJRT_Client_BufferFromHostBuffer"),
    *("PJRT_Buffer_Destroy", "PJRT_Buffer_Delete", "PJRT_Buffer_IsDeleted"),
    *("PJRT_Buffer_ReadyEvent", "PJRT_LoadedExecutable_Destroy", "PJRT_LoadedExecutable_Execute"),
)
#: These functions need nothing but a client, and change nothing.
_GETTERS = (
    *("PJRT_Client_PlatformName", "PJRT_Client_PlatformVersion", "PJRT_Client_ProcessIndex"),
    *("PJRT_Client_Devices", "PJRT_Client_AddressableDevices"),
    *("PJRT_Client_AddressableMemories", "PJRT_Client_TopologyDescription"),
)


@check(needs="library", number=1)
def loads(subject: Subject) -> None:
    """Open the library as a loader does, with RTLD_NOW and RTLD_LOCAL -> it loads."""
    try:
        Entry.of(subject.path)
    except OSError as exc:
        lost = _missing_libraries(subject)
        raise finding.Failed(f"expected a library that loads, found: {exc}{lost}") from exc


@check(needs="library", number=2)
def entry(subject: Subject) -> None:
    """Call GetPjrtApi twice -> the same table both times."""
    first, second = _entry(subject), _entry(subject)
    equal(second.address, first.address, "the table of a second call of GetPjrtApi")


@check(needs="library", number=3)
def version(subject: Subject) -> None:
    """Read the version in the table -> major 0, and a minor whose order of functions is known."""
    found = _entry(subject).version
    verdict = compatible(DECLARED, found)
    expect(bool(verdict), f"expected 0.57 or newer of major 0, found {found}: {verdict.reason}")
    if found > DECLARED:
        subject.note(f"speaks {found}, which is newer than {DECLARED}: what came since is unknown")


@check(needs="library", number=4)
def table_size(subject: Subject) -> None:
    """Read the table's struct_size -> it covers whole functions, and all of its version."""
    read = _entry(subject)
    functions, rest = divmod(read.struct_size - FIRST_SLOT, _WORD)
    wanted = f"{FIRST_SLOT} bytes and 8 for each function"
    expect(functions > 0 and rest == 0, f"expected {wanted}, found {read.struct_size}")
    promised = sum(each.since <= read.version.minor for each in table.FUNCTIONS.values())
    wanted = f"the {promised} functions of version {read.version}"
    expect(functions >= promised, f"expected {wanted}, found {functions}")
    if functions > promised:
        subject.note(f"{functions - promised} functions more than version {read.version} has")


@check(needs="library", number=5)
def functions(subject: Subject) -> None:
    """Read all functions within the table's struct_size -> NULL, or the address of code."""
    names = {each.slot: name for name, each in table.FUNCTIONS.items()}
    slots = _entry(subject).slots()
    extents = custom_calls.code()  # The library's code can be found once it is loaded.
    for slot, address in enumerate(slots):
        is_code = not address or any(address in extent for extent in extents)
        name = names.get(slot, f"function {slot}")
        expect(is_code, f"{name}: expected NULL or the address of code, found {address:#x}")


@check(needs="library", number=5)
def base_functions(subject: Subject) -> None:
    """Read the functions that every version has -> none that callers depend on is NULL."""
    read = _entry(subject)
    if not compatible(DECLARED, read.version):
        raise finding.Skipped(f"the order of functions of version {read.version} is unknown")
    known = dict(enumerate(read.slots()))
    base = [name for name, function in table.FUNCTIONS.items() if function.since == 0]
    missing = [name for name in base if not known.get(table.FUNCTIONS[name].slot)]
    needed = [name for name in missing if name in _NEEDED]
    expect(not needed, f"expected functions that every caller needs, found NULL: {_list(needed)}")
    if missing:
        subject.note(f"NULL, though in every version's table: {_list(missing)}")


@check(needs="library", number=10, seconds=60)
def initialize(subject: Subject) -> None:
    """Call PJRT_Plugin_Initialize twice -> success, or the second call's error says `already`."""
    try:
        api = load(subject.path)
    except PjrtError as exc:
        raise finding.Failed(
            f"expected success, found {code_name(exc.code)}: {exc.message}"
        ) from exc
    except errors.PjrtHubError as exc:
        raise finding.Skipped(exc.message) from exc
    try:
        api.call("PJRT_Plugin_Initialize")
    except PjrtError as exc:
        subject.note(f"refuses a second time: {exc.message}")
        wanted = "a second success, or an error that says `already`"
        expect("already" in exc.message.lower(), f"expected {wanted}, found {exc.message}")


@check(needs="plugin", number=6)
def absent_functions(subject: Subject) -> None:
    """Look for functions that are NULL or past the table -> callers can tell without a call."""
    absent = [name for name in table.FUNCTIONS if not subject.api.has(name)]
    for name in absent:
        try:
            subject.call(name)
        except finding.Unsupported:
            continue
        raise finding.Failed(f"{name}: expected to be told that it is absent, found a call")
    if absent:
        subject.note(f"absent of {len(table.FUNCTIONS)} functions: {_list(absent)}")


@check(needs="plugin", number=11)
def attributes(subject: Subject) -> None:
    """Call PJRT_Plugin_Attributes -> each name once; minimum StableHLO up to the current."""
    found = unchecked.named_values(subject.api, "PJRT_Plugin_Attributes")
    names = [name for name, _ in found]
    expect(all(names), f"expected a name of each attribute, found {names}")
    equal(len(set(names)), len(names), "different names among the attributes")
    values = dict(found)
    lacking = [name for name in _ATTRIBUTES if name not in values]
    if lacking:  # By XLA's convention, plugins have these, and its clients rely on them.
        subject.note(f"lacks the attributes {_list(lacking)}")
    current, minimum = (values.get(name) for name in _ATTRIBUTES[1:])
    for value in (current, minimum):
        right = value is None or (isinstance(value, tuple) and len(value) == 3)
        expect(right, f"expected a version of three numbers, found {value!r}")
    if isinstance(current, tuple) and isinstance(minimum, tuple):
        expect(minimum <= current, f"expected a minimum up to {current}, found {minimum}")


@check(needs="plugin", number=11)
def attributes_are_kept(subject: Subject) -> None:
    """Call PJRT_Plugin_Attributes twice -> the same; a list that moves in memory is noted."""
    name = "PJRT_Plugin_Attributes"
    ask_twice(partial(unchecked.named_values, subject.api, name), "the attributes")
    subject.note_moved(name, "attributes")


@check(needs="plugin", number=7)
def empty_struct(subject: Subject) -> None:
    """Call PJRT_Plugin_Attributes with struct_size 0 -> an error, usually INVALID_ARGUMENT."""
    _refuse_empty(subject, "PJRT_Plugin_Attributes")


@check(needs="plugin", number=8)
def longer_struct(subject: Subject) -> None:
    """Call PJRT_Plugin_Attributes with 64 extra bytes -> success, the extra bytes unchanged."""
    _accept_longer(subject, "PJRT_Plugin_Attributes")


@check(number=7)
def empty_structs(subject: Subject) -> None:
    """Query a client with a struct_size of 0 -> an error, usually INVALID_ARGUMENT."""
    for name in _GETTERS:
        _refuse_empty(subject, name, client=subject.client)
    subject.usable()


@check(number=8)
def longer_structs(subject: Subject) -> None:
    """Query a client with 64 extra bytes -> success, and the extra bytes are unchanged."""
    for name in _GETTERS:
        _accept_longer(subject, name, client=subject.client)


@check(needs="plugin", number=9)
def older_client_create(subject: Subject) -> None:
    """Call PJRT_Client_Create with the struct of 0.60 -> nothing past it is read or written."""
    _ask_as(subject, 60, "PJRT_Client_Create", create_options=subject.options)


@check(number=9)
def older_execute_options(subject: Subject) -> None:
    """Run with PJRT_ExecuteOptions of 0.57, 0.64, 0.78 -> exact values; nothing past it is used."""
    executable = subject.compile(ADD)
    a = subject.put(np.arange(4, dtype=np.float32))
    for minor in (57, 64, 78):
        options = Sized("PJRT_ExecuteOptions", unchecked.size_at("PJRT_ExecuteOptions", minor))
        try:
            rows = subject.launch(executable, [[a, a]], options.address)[0]
            found = subject.get(rows[0][0]).tolist()  # The plugin may refuse as late as here.
        except PjrtError as exc:
            _note_refusal(subject, options, exc)
            continue
        equal(found, [0, 2, 4, 6], f"a + a with options of 0.{minor}")
        _expect_untouched(options)


@check(number=9, since=40)
def older_memory_stats(subject: Subject) -> None:
    """Call PJRT_Executable_GetCompiledMemoryStats with older structs -> no writes past them."""
    name = "PJRT_Executable_GetCompiledMemoryStats"
    executable = subject.executable(subject.compile(ADD))
    subject.call(name, executable=executable)
    for minor in (40, 43, 72, 90):
        _ask_as(subject, minor, name, executable=executable)


@check(number=9)
def older_device_memory_stats(subject: Subject) -> None:
    """Call PJRT_Device_MemoryStats with the struct of 0.112 -> no writes past it."""
    name = "PJRT_Device_MemoryStats"
    subject.call(name, device=subject.device)
    _ask_as(subject, 112, name, device=subject.device)


def _entry(subject: Subject) -> Entry:
    with raise_as(finding.Skipped, "the library does not load:", OSError):
        found = Entry.of(subject.path)
    if found is None:
        raise finding.Failed("expected a table of functions from GetPjrtApi, found none")
    return found


def _missing_libraries(subject: Subject) -> str:
    """Name the libraries that the loader will not find, as far as files show; empty for none."""
    from pjrt_hub.finding.contract import headers, linking

    try:
        lost = linking.find_missing(headers.inspect(subject.path), linking.Search())
    except (errors.PjrtHubError, OSError):
        return ""
    return f"; missing: {_list([each.name for each in lost])}" if lost else ""


def _list(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _refuse_empty(subject: Subject, name: str, **inputs: Any) -> None:
    if not subject.api.has(name):
        return
    args = Sized(f"{name}_Args", 0, **inputs)
    what = f"{name} without a size"
    error = subject.expect_error(lambda: unchecked.call(subject.api, name, args), what)
    if isinstance(error, errors.UnimplementedError):
        return
    subject.note_code(error, what, InvalidArgumentError.code)


def _accept_longer(subject: Subject, name: str, **inputs: Any) -> None:
    if not subject.api.has(name):
        return
    args = Sized(f"{name}_Args", table.STRUCT_SIZE[f"{name}_Args"] + 64, **inputs)
    try:
        unchecked.call(subject.api, name, args)
    except errors.UnimplementedError:
        return
    except PjrtError as exc:
        raise finding.Failed(
            f"{name} with 64 bytes more: expected success, found {exc.message}"
        ) from exc
    _expect_untouched(args)


def _ask_as(subject: Subject, minor: int, name: str, **inputs: Any) -> None:
    """Call a function with the struct of an older version; fail if it writes past the struct."""
    args = Sized(f"{name}_Args", unchecked.size_at(f"{name}_Args", minor), **inputs)
    try:
        unchecked.call(subject.api, name, args)
    except PjrtError as exc:
        _note_refusal(subject, args, exc)
    else:
        if name == "PJRT_Client_Create":
            subject.own("Client", args.client)
    _expect_untouched(args)


def _note_refusal(subject: Subject, args: Sized, error: PjrtError) -> None:
    """Note a refusal of a caller that is too old for the plugin, which the header allows."""
    if "size" not in error.message:
        raise finding.Skipped(error.message) from error
    subject.note(f"takes no {args.name} of {args.size} bytes: {error.message}")


def _expect_untouched(args: Sized) -> None:
    changed = args.overwritten()
    expect(
        changed == 0,
        f"{args.name} of {args.size} bytes: expected nothing written behind it, found {changed} "
        "bytes of the caller's memory changed",
    )
