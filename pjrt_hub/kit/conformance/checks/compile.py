"""Compilation: the forms of programs, options, and what an executable says of itself."""

from __future__ import annotations

from functools import partial

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance.artifact import ARTIFACT, TEXT, add_hlo, artifact_for
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, equal, expect, expect_reason
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.kit.conformance.threads import at_once
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.capi import wire
from pjrt_hub.running.program.compile_options import CompileOptions

_F32, _S32 = dtypes.of_numpy("float32").code, dtypes.of_numpy("int32").code
_ASSIGNMENT_REPLICAS, _ASSIGNMENT_PARTITIONS, _ASSIGNMENT_DEVICES = 1, 2, 3

_MHLO = """
func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %sum = mhlo.add %a, %b : tensor<4xf32>
  return %sum : tensor<4xf32>
}
"""
_TWO_OUTPUTS = """
module @two_outputs {
  func.func @main(%a: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<i32>) {
    %turned = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %number = stablehlo.constant dense<7> : tensor<i32>
    return %turned, %number : tensor<3x2xf32>, tensor<i32>
  }
}
"""


@check(number=59)
def stablehlo_text(subject: Subject) -> None:
    """Compile a + b as StableHLO text -> the exact values."""
    if not subject.takes(TEXT):
        raise Unsupported("the plugin does not take text")
    subject.expect_add(subject.compile(ADD.encode()))


@check(number=60)
def artifact_of_current_version(subject: Subject) -> None:
    """Compile a + b as an artifact of the plugin's current StableHLO -> the exact values."""
    _add_of(subject, "current")


@check(number=61)
def artifact_of_minimum_version(subject: Subject) -> None:
    """Compile a + b as an artifact of the plugin's minimum StableHLO -> the exact values."""
    _add_of(subject, "minimum")


@check(number=62)
def artifact_of_newer_version(subject: Subject) -> None:
    """Compile a + b as artifacts newer than the plugin -> the exact values, or an error."""
    subject.require(ARTIFACT)
    major, minor, patch = subject.stablehlo("current")
    for version in ((major, minor + 1, 0), (major, minor + 20, patch), (major + 98, 0, 0)):
        text = ".".join(map(str, version))
        try:
            executable = subject.compile(artifact_for(ADD, version))
        except PjrtError as exc:
            expect_reason(exc)
            continue
        subject.expect_add(executable)
        subject.note(f"takes an artifact of StableHLO {text}")
    subject.usable()


@check(number=63)
def mhlo_text(subject: Subject) -> None:
    """Compile a + b as MHLO text -> the exact values or an error; which one is noted."""
    _either(subject, _MHLO.encode(), "mlir", "MHLO text")


@check(number=64)
def hlo_proto(subject: Subject) -> None:
    """Compile a + b as an HloModuleProto -> the exact values, or an error."""
    _either(subject, add_hlo(), "hlo", "an HloModuleProto")


@check(number=65)
def unknown_format(subject: Subject) -> None:
    """Compile a program of the format "invalid" -> an error, usually INVALID_ARGUMENT."""
    subject.expect_refusal(lambda: subject.compile(ADD, format="invalid"), 'the format "invalid"')


@check(number=66)
def junk_mlir(subject: Subject) -> None:
    """Compile text that is not MLIR -> an error."""
    subject.expect_refusal(lambda: subject.compile(b"this is no program"), "junk as MLIR")


@check(number=66)
def junk_hlo(subject: Subject) -> None:
    """Compile bytes that are not an HloModuleProto -> an error."""
    subject.expect_refusal(lambda: subject.compile(b"\xff" * 64, format="hlo"), "junk as HLO")


@check(number=66)
def truncated_artifact(subject: Subject) -> None:
    """Compile the first half of an artifact -> an error."""
    subject.require(ARTIFACT)
    whole = artifact_for(ADD, (1, 0, 0))
    subject.expect_refusal(lambda: subject.compile(whole[: len(whole) // 2]), "half an artifact")


@check(number=66)
def empty_program(subject: Subject) -> None:
    """Compile an empty program -> an error."""
    subject.expect_refusal(lambda: subject.compile(b""), "an empty program")


@check(number=66)
def undefined_value(subject: Subject) -> None:
    """Compile a program that uses an undefined value -> an error."""
    program = ADD.replace("add %a, %b", "add %a, %c")
    subject.expect_refusal(lambda: subject.compile(program), "a value that is not defined")


@check(number=67)
def junk_options(subject: Subject) -> None:
    """Compile with invalid options -> an error, usually INVALID_ARGUMENT."""
    subject.expect_refusal(lambda: subject.compile(ADD, options=b"\xff" * 32), "junk as options")


@check(number=68)
def empty_options(subject: Subject) -> None:
    """Compile with empty options -> the exact values, or an error."""
    try:
        executable = subject.compile(ADD, options=b"")
    except PjrtError as exc:
        subject.note(f"refuses options of no bytes: {exc.message}")
        subject.usable()
        return
    subject.expect_add(executable)


@check(number=69)
def too_many_replicas(subject: Subject) -> None:
    """Compile for more replicas than there are devices -> an error."""
    many = len(subject.call("PJRT_Client_Devices", client=subject.client)) + 1
    options = CompileOptions(num_replicas=many).serialize()
    subject.expect_refusal(lambda: subject.compile(ADD, options=options), f"{many} replicas")


@check(needs="devices:2", number=70)
def device_assignment(subject: Subject) -> None:
    """Compile for the second device -> the program runs there, its only addressable device."""
    executable, second = _for_second(subject)
    found = subject.call("PJRT_LoadedExecutable_AddressableDevices", executable=executable)
    equal(found, [second], "the addressable devices")
    subject.expect_add(executable, second)


@check(needs="devices:2", number=70, since=79)
def serialized_device_assignment(subject: Subject) -> None:
    """Ask for the assignment of a program for the second device -> 1 x 1, that device's id."""
    executable, second = _for_second(subject)
    name = "PJRT_LoadedExecutable_GetDeviceAssignment"
    message = subject.api.call(name, executable=executable)
    fields = dict(wire.fields(memoryview(message)))
    for number in (_ASSIGNMENT_REPLICAS, _ASSIGNMENT_PARTITIONS):
        equal(fields.get(number), 1, f"field {number} of the DeviceAssignmentProto")
    devices = dict(wire.fields(memoryview(bytes(fields[_ASSIGNMENT_DEVICES]))))
    wanted = [subject.describe(second, "Id")]
    equal(wire.integers(devices.get(1, 0)), wanted, "the assigned device ids")


@check(needs="devices:2", number=70, since=96)
def logical_ids(subject: Subject) -> None:
    """Ask for the logical ids of a program for the second device -> replica 0, partition 0."""
    name = "PJRT_LoadedExecutable_AddressableDeviceLogicalIds"
    found = subject.api.call(name, executable=_for_second(subject)[0])
    equal(found, [(0, 0)], "the logical ids")


@check(needs="plugin", number=71, seconds=60)
def counts(subject: Subject) -> None:
    """Ask a program with two outputs for its counts -> 1 replica, 1 partition, 2 outputs."""
    executable = subject.compile_executable(_TWO_OUTPUTS)
    for what, wanted in (("NumReplicas", 1), ("NumPartitions", 1), ("NumOutputs", 2)):
        equal(subject.call(f"PJRT_Executable_{what}", executable=executable), wanted, what)
    size = subject.call("PJRT_Executable_SizeOfGeneratedCodeInBytes", executable=executable)
    expect(size >= -1, f"expected the size of code, or -1 where it is unknown, found {size}")


@check(needs="plugin", number=71, seconds=60)
def name(subject: Subject) -> None:
    """Ask a program for its name -> a name; one that is not the module's is noted."""
    executable = subject.compile_executable(_TWO_OUTPUTS)
    found = subject.call("PJRT_Executable_Name", executable=executable)
    expect(bool(found), "expected a name, found none")
    if found != b"two_outputs":
        subject.note(f"a module called two_outputs becomes {found.decode(errors='replace')}")


@check(needs="plugin", number=71, since=29, seconds=60)
def output_types(subject: Subject) -> None:
    """Ask for the types and dimensions of two outputs -> f32[3,2] and s32[]."""
    executable = subject.compile_executable(_TWO_OUTPUTS)
    found = subject.call("PJRT_Executable_OutputElementTypes", executable=executable)
    equal(list(found), [_F32, _S32], "the element types of the outputs")
    dims = subject.api.call("PJRT_Executable_OutputDimensions", executable=executable)
    equal(dims, [(3, 2), ()], "the dimensions of the outputs")


@check(number=71)
def fingerprint(subject: Subject) -> None:
    """Compile a program twice, ask for the fingerprints -> the same, unlike another program's."""
    name = "PJRT_Executable_Fingerprint"
    executables = [subject.compile_executable(text) for text in (ADD, ADD, _TWO_OUTPUTS)]
    prints = [subject.call(name, executable=each) for each in executables]
    equal(subject.call(name, executable=executables[0]), prints[0], "the fingerprint, asked again")
    expect(bool(prints[0]), "expected a fingerprint, found no bytes")
    expect(prints[2] != prints[0], "expected another fingerprint of another program")
    equal(prints[1], prints[0], "the fingerprint, compiled again")


@check(needs="plugin", number=72, since=87, seconds=60)
def compile_options(subject: Subject) -> None:
    """Ask an executable for its compile options -> those that it was compiled with."""
    executable = subject.compile_executable(options=CompileOptions(profile_version=7))
    name = "PJRT_Executable_GetCompileOptions"
    found = CompileOptions.parse(subject.api.call(name, executable=executable))
    equal(found.profile_version, 7, "profile_version of the options that come back")
    equal(found.num_replicas, 1, "num_replicas of the options that come back")


@check(number=73, seconds=60)
def threads(subject: Subject) -> None:
    """Compile one program in 4 threads at once -> 4 executables with exact values."""
    made: set[int] = set()
    for each in at_once([partial(subject.compile, ADD)] * 4):
        if isinstance(each, Exception):
            raise each
        made.add(each)
    equal(len(made), 4, "different executables")
    for executable in made:
        subject.expect_add(executable)


def _add_of(subject: Subject, which: str) -> None:
    """Run a + b as an artifact of a StableHLO version that the plugin reports."""
    subject.require(ARTIFACT)
    subject.expect_add(subject.compile(artifact_for(ADD, subject.stablehlo(which))))


def _either(subject: Subject, code: bytes, form: str, what: str) -> None:
    try:
        executable = subject.compile(code, format=form)
    except PjrtError as exc:
        expect_reason(exc)
        subject.note(f"does not take {what}: {exc.message}")
        subject.usable()
        return
    subject.expect_add(executable)
    subject.note(f"takes {what}")


def _for_second(subject: Subject) -> tuple[int, int]:
    """Compile a program for the second device, and return that device as well."""
    second = subject.devices[1]
    options = CompileOptions(device_ids=[[subject.describe(second, "Id")]])
    return subject.compile(ADD, options=options.serialize()), second
