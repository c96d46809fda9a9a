"""The extension chain, and what the nodes promise that are not of one device maker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pjrt_hub.base.abi import DECLARED, compatible
from pjrt_hub.errors import InvalidArgumentError, PjrtError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import (
    Failed,
    Skipped,
    Unsupported,
    code_name,
    equal,
    expect,
    expect_error,
)
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.kit.conformance.refusal import note_code
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import custom_calls, irregular, table, unchecked, wire
from pjrt_hub.running.capi.unchecked import Entry
from pjrt_hub.running.extensions.phase_compile import PartialProgram
from pjrt_hub.running.program.compile_options import CompileOptions

_NODE_NBYTES = 24  # A node begins with struct_size, type and next.
_LONGEST_CHAIN = 64
_LARGEST = 1 << 16  # No node is larger, so `next` pointed elsewhere.
_POINTER = 8
_TWO_BY_THREE = np.arange(6, dtype=np.float32).reshape(2, 3)
#: A plugin need not lend out its compiler, so these may be NULL.
_MAY_BE_NULL = ("PJRT_PhaseCompile_Get_Compiler", "PJRT_PhaseCompile_Destroy_Compiler")
#: No check calls these nodes: they belong to one platform, or need several hosts.
_UNASKED = frozenset(table.EXTENSIONS) - {
    "AbiVersion",
    "FFI",
    "Layouts",
    "MemoryDescriptions",
    "PhaseCompile",
    "RawBuffer",
    "Shardings",
    "Stream",
    "Triton",
}


@check(needs="library", number=12)
def chain(subject: Subject) -> None:
    """Walk the extension chain -> it ends, each node is whole, and no type comes twice."""
    nodes = _chain(_entry(subject))
    expect(
        len(nodes) <= _LONGEST_CHAIN,
        f"expected an end within {_LONGEST_CHAIN} nodes, found more: it leads back, or is garbage",
    )
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
    """Read the struct_size of each known node -> whole functions, and all that its version has."""
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
        expect(
            size >= promised,
            f"{name}: expected the {promised} bytes of version {entry.version}, found {size}",
        )


@check(needs="plugin", number=13)
def node_functions(subject: Subject) -> None:
    """Read the functions of each known node -> code; none that callers take for granted is NULL."""
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
    """List the memories of each device description -> the default is one; kinds have names."""
    call = subject.extension("MemoryDescriptions").call
    for device in subject.call(
        "PJRT_TopologyDescription_GetDeviceDescriptions", topology=subject.topology
    ):
        found = call("PJRT_DeviceDescription_MemoryDescriptions", device_description=device)
        if not found.memory_descriptions:
            raise Unsupported("the plugin describes no memories")
        count, default = len(found.memory_descriptions), found.default_memory_index
        if default == 2**64 - 1:
            subject.note("no memory is the default one")
        else:
            expect(default < count, f"expected a default below {count}, found {default}")
        kinds = [
            call("PJRT_MemoryDescription_Kind", memory_description=each)
            for each in found.memory_descriptions
        ]
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
        error = expect_error(
            lambda: _run_phases(subject, compiler, ["no such phase"]), what="an unknown phase"
        )
        note_code(subject, error, "an unknown phase", InvalidArgumentError.code)
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
        try:
            read = PartialProgram.read(program)
        except ValueError as exc:
            raise Failed(f"expected a PjRtPartialProgramProto, found {exc}") from exc
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
        node.call(
            "PJRT_RuntimeAbiVersion_IsCompatibleWithRuntime",
            abi_version=runtime,
            other_abi_version=runtime,
        )
        node.call(
            "PJRT_RuntimeAbiVersion_IsCompatibleWithExecutable",
            abi_version=runtime,
            executable_abi_version=program,
        )
    finally:
        node.call("PJRT_RuntimeAbiVersion_Destroy", abi_version=runtime)
        node.call("PJRT_ExecutableAbiVersion_Destroy", abi_version=program)


@check(extension="AbiVersion", needs="plugin", number=20)
def abi_version_of_junk(subject: Subject) -> None:
    """Read ABI versions from invalid bytes -> an error."""
    node = subject.extension("AbiVersion")
    for name in ("Runtime", "Executable"):
        expect_error(
            lambda name=name: node.call(  # type: ignore[misc]
                f"PJRT_{name}AbiVersion_FromProto", serialized_proto=b"\xff" * 32
            ),
            what=f"{name}AbiVersion of junk",
        )


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
        expect(size >= _TWO_BY_THREE.nbytes, f"expected 24 bytes or more, found {size}")
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
    expect_error(
        lambda: node.call("PJRT_Triton_Compile", module="this is no module", **given),
        what="a module of junk",
    )


def _entry(subject: Subject) -> Entry:
    try:
        entry = Entry.of(subject.path)
    except OSError as exc:
        raise Skipped(f"the library does not load: {exc}") from exc
    if entry is None or not compatible(DECLARED, entry.version):
        raise Skipped("there is no table of a version whose chain is known")
    return entry


def _chain(entry: Entry) -> list[tuple[int, int]]:
    """Return type and size of each node up to what is none, at most one more than the longest."""
    found = list[tuple[int, int]]()
    for _, kind, size in itertools.islice(entry.chain(), _LONGEST_CHAIN + 1):
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
    names = irregular.phase_texts(
        subject.api, "PJRT_PhaseCompile_Get_PhaseNames", phase_compiler=compiler
    )
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
