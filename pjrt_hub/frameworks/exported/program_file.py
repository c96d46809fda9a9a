"""The file of a program for hosts in other languages, by docs/spec/program.md.

Must not touch a plugin.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from pjrt_hub.errors import FileFormatError, NotRunnableError
from pjrt_hub.frameworks.exported import obstacle, specialisation
from pjrt_hub.frameworks.exported.function import ExportedFunction
from pjrt_hub.running.program.bytecode import MAGIC as BYTECODE
from pjrt_hub.running.program.bytecode_locations import without_locations
from pjrt_hub.running.program.compile_options import CompileOptions
from pjrt_hub.running.program.entry import signature
from pjrt_hub.running.program.program import Program
from pjrt_hub.running.program.signature import Slot

MAGIC, VERSION = b"PJRTPROG", 1
_FORMAT, _CODE, _OPTIONS, _PARAMETERS, _RESULTS = range(1, 6)
_HEAD, _SECTION, _COUNT, _VALUE = "<8sIIQ", "<IIQQ", "<II", "<IIII"


def program_file(
    source: ExportedFunction | Program,
    options: CompileOptions,
    platform: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> bytes:
    """Make the file of a program for one device.

    `platform` is needed of a function for several, `sizes` of one with symbolic dimensions, which
    needs jaxlib, too. What cannot be in such a file raises NotRunnableError; a program whose
    signature cannot be read raises FileFormatError.
    """
    takes, gives = list[str](), list[str]()
    if isinstance(source, ExportedFunction):
        program = _program(source, platform, sizes or {})
        takes = [source.input_paths[each] for each in source.arguments if isinstance(each, int)]
        gives = list(source.output_paths)
    else:
        program = source
    if options.num_replicas not in (None, 1) or options.num_partitions not in (None, 1):
        raise NotRunnableError("the file of a program is for one device", hint="omit the counts")
    code = without_locations(program.code) if program.code.startswith(BYTECODE) else program.code
    told = signature(program, 1)
    if told is None:
        raise FileFormatError(
            f"what {program.origin} takes and gives cannot be read",
            path=program.origin,
            hint="`pjrt-hub run` shows what a compiler says of it",
        )
    return _write(
        {
            _FORMAT: program.format.encode(),
            _CODE: code,
            _OPTIONS: options.serialize(),
            _PARAMETERS: _values(told.parameters, takes, program.origin),
            _RESULTS: _values(told.outputs, gives, program.origin),
        }
    )


def _program(function: ExportedFunction, platform: str | None, sizes: Mapping[str, int]) -> Program:
    if not all(isinstance(each, int) for each in function.arguments):
        raise NotRunnableError(
            f"{function.origin} has weights beside its program, which this file cannot hold",
            hint="export a function that takes its weights as arguments",
        )
    if platform is None and len(function.platforms) > 1:
        raise NotRunnableError(
            f"{function.origin} was exported for {', '.join(function.platforms)}",
            hint="choose one by --platform",
        )
    name = platform or next(iter(function.platforms), "any platform")
    obstacle.refuse_platform(function, name, 1)
    function = function.for_platform(obstacle.platform_index(function, name) or 0)
    newest = {"stablehlo_current_version": function.program.stablehlo_version}
    if reasons := specialisation.needs(function, newest):
        return specialisation.program(function, newest, sizes, reasons)
    return function.program_at(sizes)


def _values(slots: Sequence[Slot], names: Sequence[str], origin: str) -> bytes:
    parts = [struct.pack(_COUNT, len(slots), 0)]
    for number, slot in enumerate(slots):
        if slot.shape is None or slot.dynamic:
            raise NotRunnableError(f"{origin} has sizes that only a running program knows")
        text = names[number].encode() if number < len(names) else b""
        parts.append(struct.pack(_VALUE, slot.code, len(slot.shape), len(text), 0))
        parts.append(struct.pack(f"<{len(slot.shape)}q", *slot.shape) + _padded(text))
    return b"".join(parts)


def _padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 8)


def _write(sections: Mapping[int, bytes]) -> bytes:
    offset = struct.calcsize(_HEAD) + len(sections) * struct.calcsize(_SECTION)
    table, contents = b"", list[bytes]()
    for kind, content in sections.items():
        table += struct.pack(_SECTION, kind, 0, offset, len(content))
        contents.append(_padded(content))
        offset += len(contents[-1])
    head = struct.pack(_HEAD, MAGIC, VERSION, len(sections), offset)
    return b"".join([head, table, *contents])
