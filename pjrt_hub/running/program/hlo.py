"""HLO modules: writing small ones, what their readers share, and refusing what cannot run.

The numbers are fields of XLA's HloModuleProto, of what is in it, and of what is around it. Shapes
are ShapeProtos, which `signature` owns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pjrt_hub.errors import UnimplementedError
from pjrt_hub.running.capi import wire

WITH_CONFIG_MODULE, _WITH_CONFIG_CONFIG = 1, 2
_CONFIG_ENTRY_LAYOUT, _CONFIG_REPLICA_COUNT, _CONFIG_NUM_PARTITIONS = 1, 4, 5

MODULE_COMPUTATIONS, MODULE_PROGRAM_SHAPE, MODULE_ALIASES, MODULE_DONORS = 3, 4, 8, 18
MODULE_OUTPUT_SHARDING, MODULE_PARAMETER_SHARDINGS, MODULE_DEVICE_ASSIGNMENT = 12, 14, 15
ASSIGNMENT_REPLICAS, ASSIGNMENT_PARTITIONS = 1, 2
MODULE_ENTRY_ID = 6
_MODULE_NAME, _MODULE_ENTRY_NAME, _MODULE_ID = 1, 2, 5
ENTRIES = 1  # The field that holds the entries, in aliases as in donors.
ALIAS_PARAMETER, DONOR_PARAMETER = 2, 1  # The field after each is the place in a tuple.

COMPUTATION_INSTRUCTIONS, COMPUTATION_ID, COMPUTATION_ROOT = 2, 5, 6
_COMPUTATION_NAME, _COMPUTATION_SHAPE = 1, 4

INSTRUCTION_OPCODE, PARAMETER_NUMBER = 2, 9
INSTRUCTION_ID, INSTRUCTION_SHARDING = 35, 40
_NAME, _SHAPE, _CALL_TARGET, _OPERANDS = 1, 3, 28, 36

PROGRAM_PARAMETERS, PROGRAM_RESULT, PROGRAM_NAMES = 1, 2, 3

SHARDING_TYPE, SHARDING_TILES, SHARDING_DEVICES, SHARDING_TUPLE = 1, 3, 4, 5
#: These tell what a tile's dimensions beyond the array's are: copies (a bool), or a type for each.
SHARDING_COPIES_LAST, SHARDING_COPIES = 6, 8
SHARDING_IOTA, SHARDING_IOTA_ORDER = 9, 10
REPLICATED, MAXIMAL, TUPLE, TILED, MANUAL = range(5)  # These are the types of an OpSharding.

_ENTRY = "main"
_ENTRY_NUMBER = 1
_FEEDS = (b"infeed", b"outfeed")


class Instruction(NamedTuple):
    """One instruction; a module's parameters come first, its result last."""

    name: str
    opcode: str
    shape: bytes
    operands: Sequence[int] = ()  # The indices of other instructions, from 0.
    target: str = ""  # The target of a custom call.

    def serialize(self, place: int) -> bytes:
        """Make the HloInstructionProto; ids begin at 1, because 0 means none."""
        return b"".join(
            [
                _text(_NAME, self.name),
                _text(INSTRUCTION_OPCODE, self.opcode),
                wire.length_delimited(_SHAPE, self.shape),
                wire.varint(PARAMETER_NUMBER, place) if self.opcode == "parameter" else b"",
                _text(_CALL_TARGET, self.target) if self.target else b"",
                wire.varint(INSTRUCTION_ID, place + 1),
                wire.pack(_OPERANDS, [each + 1 for each in self.operands]),
            ]
        )


def module(name: str, instructions: Sequence[Instruction], donated: Sequence[int] = ()) -> bytes:
    """Make an HloModuleProto of one computation; a call may take the memory of those `donated`."""
    parameters = [each for each in instructions if each.opcode == "parameter"]
    program = b"".join(
        [
            *(wire.length_delimited(PROGRAM_PARAMETERS, each.shape) for each in parameters),
            wire.length_delimited(PROGRAM_RESULT, instructions[-1].shape),
            *(_text(PROGRAM_NAMES, each.name) for each in parameters),
        ]
    )
    computation = b"".join(
        [
            _text(_COMPUTATION_NAME, _ENTRY),
            *(
                wire.length_delimited(COMPUTATION_INSTRUCTIONS, each.serialize(place))
                for place, each in enumerate(instructions)
            ),
            wire.length_delimited(_COMPUTATION_SHAPE, program),
            wire.varint(COMPUTATION_ID, _ENTRY_NUMBER),
            wire.varint(COMPUTATION_ROOT, len(instructions)),
        ]
    )
    donors = b"".join(
        wire.length_delimited(ENTRIES, wire.varint(DONOR_PARAMETER, number)) for number in donated
    )
    return b"".join(
        [
            _text(_MODULE_NAME, name),
            _text(_MODULE_ENTRY_NAME, _ENTRY),
            wire.length_delimited(MODULE_COMPUTATIONS, computation),
            wire.length_delimited(MODULE_PROGRAM_SHAPE, program),
            wire.varint(_MODULE_ID, 1),
            wire.varint(MODULE_ENTRY_ID, _ENTRY_NUMBER),
            wire.length_delimited(MODULE_DONORS, donors) if donors else b"",
        ]
    )


def with_config(module: bytes, replicas: int, partitions: int) -> bytes:
    """Make an HloModuleProtoWithConfig, the "hlo_with_config" of compilers."""
    shape = bytes(message(memoryview(module), MODULE_PROGRAM_SHAPE))
    config = b"".join(
        [
            wire.length_delimited(_CONFIG_ENTRY_LAYOUT, shape),
            wire.varint(_CONFIG_REPLICA_COUNT, replicas),
            wire.varint(_CONFIG_NUM_PARTITIONS, partitions),
        ]
    )
    return wire.length_delimited(WITH_CONFIG_MODULE, module) + wire.length_delimited(
        _WITH_CONFIG_CONFIG, config
    )


def module_in(code: bytes, form: str) -> memoryview:
    """Return the HloModuleProto in what `PJRT_Executable_OptimizedProgram` gave, or ValueError."""
    whole = memoryview(code)
    return message(whole, WITH_CONFIG_MODULE) if form == "hlo_with_config" else whole


def message(of: memoryview, number: int) -> memoryview:
    """Return the first message in a field of another; ValueError if there is none."""
    for each in wire.messages(of, number):
        return each
    raise ValueError(f"field {number} is missing")


def _text(number: int, text: str) -> bytes:
    return wire.length_delimited(number, text.encode())


def refuse_feeds(code: bytes, form: str) -> None:
    """Refuse a program with an infeed or outfeed, which no function of the PJRT C API answers."""
    if not any(feed in code for feed in _FEEDS):  # The walk is slow, and few programs need it.
        return
    walked = [memoryview(code)]
    outer = [WITH_CONFIG_MODULE] if form == "hlo_with_config" else []
    for number in (*outer, MODULE_COMPUTATIONS, COMPUTATION_INSTRUCTIONS, INSTRUCTION_OPCODE):
        walked = [each for whole in walked for each in wire.messages(whole, number)]
    for opcode in walked:
        if opcode in _FEEDS:
            raise UnimplementedError(
                f"the program has an {bytes(opcode).decode()}, which would wait for ever: the PJRT "
                "C API has no function that feeds it",
                hint="exchange values by arguments and results, by a custom call, or by "
                "stablehlo.send and stablehlo.recv where the plugin compiles these",
            )
