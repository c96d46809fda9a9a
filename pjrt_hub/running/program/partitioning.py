"""Partitioning: how many devices a program says that it is for, and the options for that.

Owns reading the counts of a module in text, bytecode and HLO; must not split anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from pjrt_hub.running.capi import wire
from pjrt_hub.running.program import bytecode, hlo
from pjrt_hub.running.program.bytecode_function import ProgramReader
from pjrt_hub.running.program.compile_options import CompileOptions
from pjrt_hub.running.program.program import Program

_REPLICAS, _PARTITIONS = "mhlo.num_replicas", "mhlo.num_partitions"
#: Every program with a count contains this; most have none, and are read no further.
_MENTION = b"mhlo.num_"
#: A count. Comments and strings, which may contain anything, match too, so that they are skipped.
_COUNT = re.compile(
    rb'//[^\n]*|(?P<quote>")?\b(?P<name>mhlo\.num_(?:replicas|partitions))(?(quote)")'
    rb'\s*=\s*(?P<count>\d{1,10})\b|"(?:[^"\\\n]|\\.?)*+"?'
)
#: A mesh of Shardy, as an operation and as the attribute that replaces it in other dialects.
_MESH = re.compile(rb'(?m)^[^\S\n]*"?sdy\.mesh\b')
_MESH_ATTRIBUTE = b"xla.sdy.meshes"


class Partitioning(NamedTuple):
    """What a program says of itself: its copies, its parts, and whether Shardy splits it."""

    num_replicas: int
    num_partitions: int
    is_shardy: bool

    @classmethod
    def of(cls, program: Program) -> Partitioning:
        """Read a program; a count that it does not say, or that cannot be read, is 1."""
        outline = program.outline
        is_shardy = _MESH_ATTRIBUTE in outline
        counts: Mapping[str, int] = {}
        if program.format == "hlo":
            counts = _of_hlo(program.code)
        elif program.code.startswith(bytecode.MAGIC):
            if b"sdy" in outline or _MENTION in outline:
                with suppress(ValueError, LookupError):  # The compiler reports what is wrong.
                    reader = ProgramReader(program.code)
                    is_shardy |= any(each.startswith("sdy.") for each in reader.opened.operations)
                    counts = _of_bytecode(reader)
        else:
            is_shardy |= b"sdy.mesh" in outline and _MESH.search(outline) is not None
            counts = _of_text(outline)
        return cls(counts.get(_REPLICAS, 1), counts.get(_PARTITIONS, 1), is_shardy)


def options_for(
    program: Program,
    given: CompileOptions | None,
    there: int,
    where: str,
    more: Callable[[int], str],
) -> CompileOptions:
    """Complete a user's options by what the program says of itself, or refuse contradictions.

    If the program needs more devices than there are, `where` names their owner for the message, and
    `more` says how to get that many.
    """
    options = CompileOptions() if given is None else given
    if not isinstance(options, CompileOptions):
        raise TypeError(f"the options are {options!r}, not CompileOptions")
    said = Partitioning.of(program)
    replicas = _agree("num_replicas", said.num_replicas, options.num_replicas, program)
    partitions = _agree("num_partitions", said.num_partitions, options.num_partitions, program)
    needed = replicas * partitions
    if needed > there and not options.serialized_multi_slice_config:
        raise ValueError(
            f"{replicas} replica(s) of {partitions} partition(s) need {needed} devices, "
            f"{where} has {there}\n\nhint: {more(needed)}"
        )
    spmd, shardy = options.use_spmd_partitioning, options.use_shardy_partitioner
    return replace(
        options,
        num_replicas=replicas,
        num_partitions=partitions,
        use_spmd_partitioning=partitions > 1 if spmd is None else spmd,
        use_shardy_partitioner=said.is_shardy if shardy is None else shardy,
    )


def _agree(name: str, said: int, given: int | None, program: Program) -> int:
    """Return the count that a program and the options agree on.

    A program that says 1, as JAX writes into every program, may still be told to run as several.
    """
    if given is None or given == said or said == 1:
        return said if given is None else given
    raise ValueError(
        f"{program.origin} says mhlo.{name} = {said}, the options say {name}={given}\n\n"
        f"hint: leave {name} out of the options: the program's own is the default"
    )


def _of_text(text: bytes) -> dict[str, int]:
    """Return the counts of the outermost module, which come first."""
    counts: dict[str, int] = {}
    first, last = text.find(_MENTION), text.rfind(_MENTION)
    if first >= 0:
        line = text.rfind(b"\n", 0, first) + 1
        for found in _COUNT.finditer(text, line, text.find(b"\n", last) + 1 or len(text)):
            if found["name"]:
                counts.setdefault(found["name"].decode(), int(found["count"]))
    return counts


def _of_bytecode(reader: ProgramReader) -> dict[str, int]:
    """Return the counts of the outermost module."""
    said = reader.attributes_of(reader.module()[0])
    found = {name: reader.word(said, name) for name in (_REPLICAS, _PARTITIONS)}
    return {name: each for name, each in found.items() if isinstance(each, int)}


def _of_hlo(code: bytes) -> dict[str, int]:
    """Return the counts of an HloModuleProto's device assignment, if it has one."""
    counts: dict[int, int | memoryview] = {}
    with suppress(ValueError):  # The compiler reports what is wrong.
        told = [*wire.messages(memoryview(code), hlo.MODULE_DEVICE_ASSIGNMENT)]
        counts = dict(wire.fields(told[-1])) if told else {}
    named = {_REPLICAS: hlo.ASSIGNMENT_REPLICAS, _PARTITIONS: hlo.ASSIGNMENT_PARTITIONS}
    found = {name: counts.get(number) for name, number in named.items()}
    return {name: each for name, each in found.items() if isinstance(each, int)}
