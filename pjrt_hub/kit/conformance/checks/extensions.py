"""The extension chain, and what its nodes promise that belong to no single vendor."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from pjrt_hub.base.abi import DECLARED, compatible
from pjrt_hub.errors import InvalidArgumentError, NotFoundError, PjrtError
from pjrt_hub.kit.conformance import finding
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import ask_twice, at_least, code_name, equal, expect, raise_as
from pjrt_hub.kit.conformance.programs import ADD, DOUBLE
from pjrt_hub.kit.conformance.subject import GIVEN_ERROR, Subject
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.capi import custom_calls, irregular, table, unchecked, wire
from pjrt_hub.running.capi.unchecked import Entry
from pjrt_hub.running.extensions.phase_compile import PartialProgram
from pjrt_hub.running.program.compile_options import CompileOptions

_INTERNAL = table.ENUMS["PJRT_Error_Code"]["PJRT_Error_Code_INTERNAL"]
#: The program calls the handler by this name.
_HANDLER = "pjrt_hub.conformance.double"
#: On these platforms, named as in XLA FFI, programs can call handlers of the host.
_WITH_HANDLERS = ("Host", "CUDA", "ROCM")


@check(extension="FFI", number=17)
def custom_call(subject: Subject) -> None:
    """Register a handler, run a program that calls it -> one call; its values, if on the host."""
    calls: list[str] = []
    _hand_over(subject, _HANDLER, _entry_of(lambda frame: calls.append(_double(frame))))
    try:
        found = _run_custom_call(subject, _HANDLER)
    except PjrtError as exc:
        if _platform(subject) in _WITH_HANDLERS:
            raise
        raise finding.Unsupported(exc.message) from exc
    equal(len(calls), 1, "calls of the handler in one run")
    if _platform(subject) == "Host":
        equal(found, [0, 2, 4, 6], "what the handler wrote")


@check(extension="FFI", number=17)
def user_data(subject: Subject) -> None:
    """Add data of a registered type to an execute context -> the handler finds it."""
    node, name = subject.extension("FFI"), "pjrt_hub.conformance.data"
    context = subject.call("PJRT_ExecuteContext_Create")
    try:
        kind = node.call("PJRT_FFI_Type_Register", type_name=name, type_info={})
        node.call("PJRT_FFI_UserData_Add", context=context, user_data={"type_id": kind, "data": 42})
        seen: list[int | None] = []

        def handle(frame: custom_calls.Frame) -> None:
            seen.append(frame.user_data(kind))
            _double(frame)

        _hand_over(subject, name, _entry_of(handle))
        _run_custom_call(subject, name, context=context)
    finally:
        subject.call("PJRT_ExecuteContext_Destroy", context=context)
    equal(seen, [42], "the data that the handler found")


@check(extension="FFI", number=17)
def second_handler(subject: Subject) -> None:
    """Register two handlers under one name -> one of them is called; which one is noted."""
    name, called = "pjrt_hub.conformance.twice", list[str]()

    def handler(which: str) -> custom_calls.PythonEntry:
        return _entry_of(lambda frame: called.append(which + _double(frame)))

    _hand_over(subject, name, handler("first"))
    try:
        _hand_over(subject, name, handler("second"))
    except PjrtError as exc:
        subject.note(f"a second handler is refused: {exc.message}")
    else:
        subject.note("a second handler is taken without an error")
    _run_custom_call(subject, name)
    equal(len(called), 1, "handlers called in one run")
    subject.note(f"afterwards the {called[0]} handler is called")


@check(extension="FFI", number=17)
def unknown_custom_call(subject: Subject) -> None:
    """Run a program that calls an unregistered handler -> an error, and no crash."""
    run = partial(_run_custom_call, subject, "pjrt_hub.conformance.nobody")
    what = "a custom call of a handler that nobody registered"
    subject.expect_refusal(run, what, code=NotFoundError.code)


@check(extension="FFI", number=91)
def failing_custom_call(subject: Subject) -> None:
    """Let a custom call fail in the first of two runs -> only that run fails, with its text."""
    name = "pjrt_hub.conformance.fails_once"
    failures = [(GIVEN_ERROR["error_code"], GIVEN_ERROR["error_message"].encode())]
    run = partial(_run_custom_call, subject, name)
    _hand_over(subject, name, lambda _: failures.pop() if failures else None)
    subject.expect_given_error(run, "a run whose custom call fails")
    run()
    subject.usable()


def _platform(subject: Subject) -> str:
    """Return XLA FFI's name of the client's platform."""
    name: str = subject.call("PJRT_Client_PlatformName", client=subject.client).decode()
    return {"cpu": "Host", "gpu": "CUDA"}.get(name, name.upper())


def _hand_over(subject: Subject, name: str, entry: custom_calls.PythonEntry) -> None:
    subject.extension("FFI").call(
        "PJRT_FFI_Register_Handler",
        target_name=name,
        platform_name=_platform(subject),
        handler=custom_calls.entry(entry, 0),
        traits=0,
    )


def _entry_of(handle: Callable[[custom_calls.Frame], object]) -> custom_calls.PythonEntry:
    def run(address: int) -> tuple[int, bytes] | None:
        try:
            handle(custom_calls.Frame(address))
        except Exception as exc:  # No exception may reach the plugin.
            return _INTERNAL, str(exc).encode()
        return None

    return run


def _double(frame: custom_calls.Frame) -> str:
    """Write twice the argument into the result, if both are on the host."""
    (argument,), (result,) = frame.arguments(), frame.results()
    if frame.number("XLA_FFI_Stream_Get", "stream") is None:
        memories = (custom_calls.memory(each.address, 16) for each in (argument, result))
        source, target = (np.frombuffer(each, np.float32) for each in memories)
        target[:] = 2 * source
    return ""


def _run_custom_call(subject: Subject, name: str, **options: int) -> list[float]:
    program = DOUBLE.replace(
        "stablehlo.add %a, %a : tensor<4xf32>",
        f"stablehlo.custom_call @{name}(%a) {{api_version = 4 : i32}} : (tensor<4xf32>) -> "
        "tensor<4xf32>",
    )
    executable = subject.compile(program)
    argument = subject.put(np.arange(4, dtype=np.float32))
    return list(subject.values(executable, [argument], **options)[0])


_NODE_NBYTES = 24  # A node begins with struct_size, type and next.
_LONGEST_CHAIN = 64
_LARGEST = 1 << 16  # If a size is larger, `next` did not point at a node.
_POINTER = 8
_TWO_BY_THREE = np.arange(6, dtype=np.float32).reshape(2, 3)
#: A plugin need not lend out its compiler, so these may be NULL.
_MAY_BE_NULL = ("PJRT_PhaseCompile_Get_Compiler", "PJRT_PhaseCompile_Destroy_Compiler")
#: No check calls these nodes: they belong to one platform, or need several hosts.
_UNASKED = frozenset(table.EXTENSIONS) - {
    *("AbiVersion", "FFI", "Layouts", "MemoryDescriptions", "PhaseCompile"),
    *("RawBuffer", "Shardings", "Stream", "Triton"),
}


@check(needs="library", number=12)
def chain(subject: Subject) -> None:
    """Walk the extension chain -> it ends, each node is whole, and no type comes twice."""
    nodes = _chain(_entry(subject))
    why = f"expected an end within {_LONGEST_CHAIN} nodes, found more: it leads back, or is garbage"
    expect(len(nodes) <= _LONGEST_CHAIN, why)
    names = {extension.type: name for name, extension in table.EXTENSIONS.items()}
    for kind, size in nodes:
        what = names.get(kind, f"the unknown type {kind}")
        expect(
            _NODE_NBYTES <= size <= _LARGEST,
            f"{what}: expected a node of {_NODE_NBYTES} to {_LARGEST} bytes, found {size}",
        )
    kinds = [kind for kind, _ in nodes]
    twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
    expect(not twice, f"expected each type once, found {twice} more than once")
    if unknown := [kind for kind in kinds if kind not in names]:
        subject.note(f"types that nobody knows yet: {unknown}")


@check(needs="library", number=13)
def node_sizes(subject: Subject) -> None:
    """Read the struct_size of each known node -> it covers whole functions, all of its version."""
    known = {extension.type: (name, extension) for name, extension in table.EXTENSIONS.items()}
    entry = _entry(subject)
    for kind, size in _chain(entry):
        if kind not in known:
            continue
        name, extension = known[kind]
        for function in extension.functions.values():
            expect(
                not function.offset < size < function.offset + _POINTER,
                f"{name} of {size} bytes: expected a whole function at byte {function.offset}, "
                "found its end inside it",
            )
        promised = unchecked.size_at(extension.struct, entry.version.minor)
        wanted = f"the {promised} bytes of version {entry.version}"
        expect(size >= promised, f"{name}: expected {wanted}, found {size}")


@check(needs="plugin", number=13)
def node_functions(subject: Subject) -> None:
    """Read the functions of each known node -> code, or NULL if callers do not need them."""
    api, lost = subject.api, []
    extents = custom_calls.code()
    for name in api.extensions:
        if name not in table.EXTENSIONS:
            continue
        pointers = unchecked.pointers(api.extension(name))
        for each, address in pointers.items():
            is_code = not address or any(address in extent for extent in extents)
            expect(is_code, f"{each}: expected NULL or the address of code, found {address:#x}")
        empty = [each for each, address in pointers.items() if not address]
        if empty:
            subject.note(f"{name}: NULL are {', '.join(empty)}")
        lost += [each for each in empty if each not in _MAY_BE_NULL]
    expect(not lost, f"expected functions inside their nodes, found NULL: {', '.join(lost)}")


@check(needs="plugin", number=22)
def unasked(subject: Subject) -> None:
    """List the extensions that no other check uses -> they are noted."""
    if found := [name for name in subject.api.extensions if name in _UNASKED]:
        subject.note(f"present and not asked: {', '.join(found)}")


@check(extension="MemoryDescriptions", needs="topology", number=18)
def memory_descriptions(subject: Subject) -> None:
    """List the memories of each device description -> one is the default; kinds have names."""
    call = subject.extension("MemoryDescriptions").call
    ask = "PJRT_TopologyDescription_GetDeviceDescriptions"
    for device in subject.call(ask, topology=subject.topology):
        found = call("PJRT_DeviceDescription_MemoryDescriptions", device_description=device)
        if not found.memory_descriptions:
            raise finding.Unsupported("the plugin describes no memories")
        count, default = len(found.memory_descriptions), found.default_memory_index
        if default == 2**64 - 1:
            subject.note("no memory is the default one")
        else:
            expect(default < count, f"expected a default below {count}, found {default}")
        name = "PJRT_MemoryDescription_Kind"
        kinds = [call(name, memory_description=each) for each in found.memory_descriptions]
        expect(all(each.kind for each in kinds), "expected a name of each kind, found none")
        equal(len({each.kind_id for each in kinds}), len({each.kind for each in kinds}), "kind ids")


@check(extension="PhaseCompile", needs="topology", number=19)
def phase_names(subject: Subject) -> None:
    """Ask for the names of the compiler's phases -> at least one, none empty, none twice."""
    with _phase_compiler(subject) as compiler:
        names = _phases(subject, compiler)
    expect(bool(names) and all(names), f"expected names of phases, found {names}")
    equal(len(set(names)), len(names), "different names of phases")


@check(extension="PhaseCompile", needs="topology", number=19)
def unknown_phase(subject: Subject) -> None:
    """Run an unknown phase -> an error; the result of no phase at all is noted."""
    with _phase_compiler(subject) as compiler:
        run = partial(_run_phases, subject, compiler, ["no such phase"])
        subject.expect_error(run, "an unknown phase", InvalidArgumentError.code)
        try:
            _run_phases(subject, compiler, [])
        except PjrtError as exc:
            subject.note(f"no phase: {code_name(exc.code)}")
        else:
            subject.note("no phase: the program comes back")


@check(extension="PhaseCompile", needs="topology", number=19, seconds=60)
def first_phase(subject: Subject) -> None:
    """Run the first phase on a + b -> programs of that phase, each with code."""
    with _phase_compiler(subject) as compiler:
        first = _phases(subject, compiler)[0]
        programs = _run_phases(subject, compiler, [first])
    expect(bool(programs), f"expected a program after the phase {first}, found none")
    for program in programs:
        with raise_as(finding.Failed, "expected a PjRtPartialProgramProto, found", ValueError):
            read = PartialProgram.read(program)
        equal(read.generating_phase, first, "the phase that gave a program")
        expect(bool(read.code), "expected code in each program, found none")


@check(extension="AbiVersion", number=20)
def abi_versions(subject: Subject) -> None:
    """Compare the ABI versions of the client and of a program -> each is compatible."""
    node = subject.extension("AbiVersion")
    executable = subject.executable(subject.compile(ADD))
    runtime = node.call("PJRT_Client_RuntimeAbiVersion", client=subject.client)
    program = node.call("PJRT_Executable_GetAbiVersion", executable=executable)
    try:
        for name, version in (("Runtime", runtime), ("Executable", program)):
            proto = node.call(f"PJRT_{name}AbiVersion_ToProto", abi_version=version)
            expect(bool(proto), f"expected a message of the {name}AbiVersion, found no bytes")
        for name, other in (
            ("Runtime", {"other_abi_version": runtime}),
            ("Executable", {"executable_abi_version": program}),
        ):
            ask = f"PJRT_RuntimeAbiVersion_IsCompatibleWith{name}"
            node.call(ask, abi_version=runtime, **other)
    finally:
        node.call("PJRT_RuntimeAbiVersion_Destroy", abi_version=runtime)
        node.call("PJRT_ExecutableAbiVersion_Destroy", abi_version=program)


@check(extension="AbiVersion", needs="plugin", number=20)
def abi_version_of_junk(subject: Subject) -> None:
    """Read ABI versions from invalid bytes -> an error."""
    node = subject.extension("AbiVersion")
    for name in ("Runtime", "Executable"):
        read = partial(node.call, f"PJRT_{name}AbiVersion_FromProto")
        junk = b"\xff" * 32
        subject.expect_error(partial(read, serialized_proto=junk), f"{name}AbiVersion of junk")


@check(extension="Stream", number=21)
def stream(subject: Subject) -> None:
    """Get the stream for external events, let it wait for a ready buffer -> both succeed."""
    node = subject.extension("Stream")
    found = node.call("PJRT_Get_Stream_For_External_Ready_Events", device=subject.device)
    buffer = subject.put(_TWO_BY_THREE)
    node.call("PJRT_Wait_Until_Buffer_Ready_On_Stream", stream=found, buffer=buffer)


@check(extension="RawBuffer", number=22)
def raw_buffer(subject: Subject) -> None:
    """Alias a buffer, copy bytes in and out -> the same bytes."""
    call, buffer = subject.extension("RawBuffer").call, subject.put(_TWO_BY_THREE)
    raw = call("PJRT_RawBuffer_CreateRawAliasOfBuffer", buffer=buffer)
    try:
        size = call("PJRT_RawBuffer_GetOnDeviceSizeInBytes", buffer=raw)
        at_least(size, _TWO_BY_THREE.nbytes, "bytes")
        given, found = np.arange(size, dtype=np.uint8), np.zeros(size, np.uint8)
        for side, name, host in (
            ("src", "PJRT_RawBuffer_CopyRawHostToDevice", given),
            ("dst", "PJRT_RawBuffer_CopyRawDeviceToHost", found),
        ):
            memory = {side: host.ctypes.data, "transfer_size": size}
            subject.await_(call(name, buffer=raw, offset=0, **memory))
        equal(found.tolist(), given.tolist(), "the bytes of the alias")
    finally:
        call("PJRT_RawBuffer_Destroy", buffer=raw)


@check(extension="Shardings", number=22)
def shardings(subject: Subject) -> None:
    """Ask a + b on one device for shardings -> two of parameters and one of outputs, or none."""
    executable, call = subject.executable(subject.compile(ADD)), subject.extension("Shardings").call
    for name, count in (("Parameter", 2), ("Output", 1)):
        found = call(f"PJRT_Shardings_PJRT_Executable_{name}Shardings", executable=executable)
        expect(len(found) in (0, count), f"{name}Shardings: expected {count}, found {len(found)}")


@check(extension="Triton", needs="plugin", number=22)
def triton_of_junk(subject: Subject) -> None:
    """Compile an invalid module by Triton -> an error."""
    node = subject.extension("Triton")
    given: dict[str, Any] = {"arch_name": "9.0", "num_warps": 4, "num_ctas": 1, "num_stages": 3}
    compile = partial(node.call, "PJRT_Triton_Compile", module="this is no module", **given)
    subject.expect_error(compile, "a module of junk")


def _entry(subject: Subject) -> Entry:
    with raise_as(finding.Skipped, "the library does not load:", OSError):
        entry = Entry.of(subject.path)
    if entry is None or not compatible(DECLARED, entry.version):
        raise finding.Skipped("there is no table of a version whose chain is known")
    return entry


def _chain(entry: Entry) -> list[tuple[int, int]]:
    """Return each node's type and size up to an invalid one, at most _LONGEST_CHAIN + 1 nodes."""
    found = list[tuple[int, int]]()
    for kind, size in itertools.islice(entry.chain(), _LONGEST_CHAIN + 1):
        found.append((kind, size))
        if not _NODE_NBYTES <= size <= _LARGEST:
            break
    return found


@contextmanager
def _phase_compiler(subject: Subject) -> Iterator[int]:
    call = subject.extension("PhaseCompile").call
    compiler = call("PJRT_PhaseCompile_Get_Compiler")
    try:
        yield compiler
    finally:
        call("PJRT_PhaseCompile_Destroy_Compiler", phase_compiler=compiler)


def _phases(subject: Subject, compiler: int) -> list[str]:
    ask = "PJRT_PhaseCompile_Get_PhaseNames"
    names = irregular.phase_texts(subject.api, ask, phase_compiler=compiler)
    return [name.decode() for name in names]


def _run_phases(subject: Subject, compiler: int, phases: Sequence[str]) -> list[bytes]:
    return irregular.phase_texts(
        subject.api,
        "PJRT_PhaseCompile_Run_Phase",
        phase_compiler=compiler,
        input_programs=[wire.length_delimited(1, ADD.encode())],
        phases_to_run=list(phases),
        compile_options=CompileOptions().serialize(),
        topology=subject.topology,
    )


_ARRAY: dict[str, Any] = {"type": dtypes.of_numpy("float32").code, "dims": (2, 3)}
_ADD_2X3 = ADD.replace("4xf32", "2x3xf32")


@check(extension="Layouts", number=14)
def default_layout(subject: Subject) -> None:
    """Ask twice for the client's default layout of f32[2,3] -> the same order of dimensions."""
    _orders(subject, ask_twice(partial(_default_layout, subject), "the default layout"))


@check(extension="Layouts", number=14)
def buffer_layout(subject: Subject) -> None:
    """Ask for the layout of an f32[2,3] buffer -> the client's default."""
    found = _layout(subject, "Buffer_MemoryLayout", buffer=subject.put(_TWO_BY_THREE))
    equal(found, _default_layout(subject), "the layout of a buffer f32[2,3]")


@check(extension="Layouts", number=15)
def output_layouts(subject: Subject) -> None:
    """Ask twice for a program's output layouts -> one, the default; the caller frees none."""
    _executable_layouts(subject, "PJRT_Layouts_PJRT_Executable_GetOutputLayouts", 1)


@check(extension="Layouts", number=15)
def parameter_layouts(subject: Subject) -> None:
    """Ask twice for a program's parameter layouts -> two, each the default."""
    _executable_layouts(subject, "PJRT_Layouts_PJRT_Executable_GetParameterLayouts", 2)


@check(extension="Layouts", needs="topology", number=16)
def topology_layout(subject: Subject) -> None:
    """Ask for the topology's default layout of f32[2,3] -> an order of both dimensions."""
    given = {"topology_description": subject.topology, **_ARRAY}
    _orders(subject, _layout(subject, "Topology_GetDefaultLayout", **given))


def _default_layout(subject: Subject) -> str:
    return _layout(subject, "Client_GetDefaultLayout", client=subject.client, **_ARRAY)


def _orders(subject: Subject, layout: str) -> None:
    """Fail unless a layout of f32[2,3] orders both dimensions, in any order; note column-major."""
    order = re.match(r"\{(1,0|0,1)[:}]", layout)
    expect(order is not None, f"expected {{1,0}} or {{0,1}} of f32[2,3], found {layout}")
    if not layout.startswith("{1,0"):
        subject.note(f"arrays do not lie row-major by default: f32[2,3] is {layout}")


def _executable_layouts(subject: Subject, name: str, count: int) -> None:
    executable = subject.executable(subject.compile(_ADD_2X3))
    # A layout that the first call freed by mistake would be gone at the second call.
    for _ in range(2):
        layouts = subject.extension("Layouts").call(name, executable=executable)
        equal(len(layouts), count, "layouts")
        default = _default_layout(subject)
        for layout in layouts:
            equal(_text(subject, layout), default, "the layout of f32[2,3]")


def _layout(subject: Subject, function: str, **fields: Any) -> str:
    """Ask for a layout that the caller owns, read its text and destroy it."""
    layout = subject.extension("Layouts").call(f"PJRT_Layouts_PJRT_{function}", **fields)
    try:
        return _text(subject, layout)
    finally:
        subject.extension("Layouts").call("PJRT_Layouts_MemoryLayout_Destroy", layout=layout)


def _text(subject: Subject, layout: int) -> str:
    node = subject.extension("Layouts")
    return node.call("PJRT_Layouts_MemoryLayout_Serialize", layout=layout).decode()
