"""Single ops: each program of the corpus, from arguments and from constants."""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from pjrt_hub.errors import PjrtError, UnsupportedByPluginError
from pjrt_hub.kit.conformance import corpus, numerics
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.corpus import Program
from pjrt_hub.kit.conformance.finding import Failed, Unsupported
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.array import dtypes

#: Compilers use these words to refuse legal programs; their error codes differ.
_REFUSES = re.compile(
    r"un-?supported|un-?implemented|unregistered|unknown (op|type)|invalid element type"
    r"|not (yet )?(supported|implemented)|(do|does|did) not support"
    r"|can't be translated|cannot be (lowered|legalized)",
    re.IGNORECASE,
)
#: A check calls these functions after it has compiled a program with arguments.
_CALLED = (
    "PJRT_Client_BufferFromHostBuffer",
    "PJRT_Event_Await",
    "PJRT_LoadedExecutable_Execute",
    "PJRT_Buffer_ToHostBuffer",
)


def run(subject: Subject, program: Program) -> None:
    """Fail unless a program gives the right results, from arguments and from constants."""
    # The functions are required before the compilation, which takes most of the time.
    subject.require(*_CALLED)
    _require_elements(subject, program)
    refusals = {}
    for constants, of in ((False, "of arguments"), (True, "of constants")):
        try:
            _run(subject, program, constants)
        except Unsupported as exc:
            refusals[of] = str(exc)
        except Failed as exc:
            raise Failed(f"{of}: {exc.found}") from exc.__cause__
    for of, words in refusals.items():
        if len(refusals) == 2:
            raise Unsupported(words)
        subject.note(f"not supported {of}: {words}")


def _run(subject: Subject, program: Program, constants: bool) -> None:
    executable = _compile(subject, program.text(constants=constants))
    arguments = [] if constants else [subject.put(tensor.array) for tensor in program.arguments]
    found = _execute(subject, executable, arguments)
    if program.compare == corpus.REPEATABLE:
        wanted = _execute(subject, executable, arguments)
    else:
        wanted = [tensor.array for tensor in program.results]
    subject.destroy(*arguments, executable)
    if len(found) != len(wanted):
        raise Failed(f"expected {len(wanted)} result(s), found {len(found)}")
    for place, (ours, right) in enumerate(zip(found, wanted, strict=True)):
        name = f"result {place}: " if len(wanted) > 1 else ""
        if (ours.shape, ours.dtype) != (right.shape, right.dtype):
            raise Failed(
                f"{name}expected {right.dtype}{list(right.shape)}, "
                f"found {ours.dtype}{list(ours.shape)}"
            )
        if program.compare != corpus.ANYTHING:
            _compare(subject, program, place, ours, right, name)


def _compare(
    subject: Subject,
    program: Program,
    place: int,
    found: numerics.Array,
    wanted: numerics.Array,
    name: str,
) -> None:
    within = program.tolerances[place]
    off = numerics.difference(found, wanted, within)
    if off is None:
        return
    if program.flushed:
        for right in (numerics.flush(wanted), program.flushed[place].array):
            near = numerics.ulps(found, right) <= within.ulps
            wanted = np.where(near, found, wanted)
        off = numerics.difference(found, wanted, within)
        if off is None:
            subject.note("subnormal numbers are taken or given as zero")
            return
    raise Failed(f"{name}{off}")


def _require_elements(subject: Subject, program: Program) -> None:
    """Raise Unsupported if the plugin does not know an element type: it might end the process."""
    for tensor in (*program.arguments, *program.results):
        try:
            dtypes.require(dtypes.of_type(tensor.element), subject.api.version)
        except UnsupportedByPluginError as exc:
            raise Unsupported(exc.message) from exc


def _compile(subject: Subject, text: str) -> int:
    try:
        return subject.compile(text)
    except PjrtError as exc:
        if _REFUSES.search(exc.message):
            raise Unsupported(exc.message) from exc
        raise Failed(f"expected an executable, found the error {exc.message}") from exc


def _execute(subject: Subject, executable: int, arguments: list[int]) -> list[numerics.Array]:
    outputs = subject.execute(executable, arguments)
    arrays = [subject.get(output) for output in outputs]
    subject.destroy(*outputs)
    return arrays


for _program in corpus.programs():
    check(name=_program.name, title=f"{_program.title} -> {_program.promise}", number=149)(
        partial(run, program=_program)
    )
