"""Where signatures come from: the optimized program, the C API, and the program itself.

XLA's plugins tell everything in the optimized program. Others answer in another format or not at
all, so no source is required, and what the sources tell is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pjrt_hub.errors import PjrtError, PluginError, UnsupportedByPluginError
from pjrt_hub.running.capi import irregular
from pjrt_hub.running.capi.library import Api
from pjrt_hub.running.capi.status import refuse_answer
from pjrt_hub.running.program import hlo, signature
from pjrt_hub.running.program.program import Program
from pjrt_hub.running.program.signature import ANYTHING, UNTOLD_LAYOUT, UNTOLD_TYPE, Signature, Slot

if TYPE_CHECKING:
    import logging

T = TypeVar("T")


class Outputs(NamedTuple):
    """What the C API tells of an executable's outputs; None for what it does not tell."""

    number: int | None
    dtypes: Sequence[int] | None
    shapes: Sequence[tuple[int, ...]] | None

    def agree(self, slots: Sequence[Slot]) -> bool:
        """Tell whether these outputs agree with all that the plugin tells."""
        return (
            (self.number is None or self.number == len(slots))
            and (self.dtypes is None or list(self.dtypes) == [each.code for each in slots])
            and (self.shapes is None or list(self.shapes) == [each.shape for each in slots])
        )

    def require(self, signature: Signature) -> None:
        """Refuse another number of outputs: the plugin writes all, whatever room there is.

        If the plugin has more, the others are not arrays; if fewer, it mistook the program.
        """
        if self.number is not None and self.number < len(signature.outputs):
            refuse_answer(
                "PJRT_Executable_NumOutputs", f"{self.number} for {len(signature.outputs)} outputs"
            )
        if self.number not in (None, len(signature.outputs)):
            raise TypeError(
                f"the program gives {self.number} values, of which {len(signature.outputs)} are "
                "arrays: tokens cannot be given\n\nhint: let its main function return arrays only"
            )


class ExecutableSignature(NamedTuple):
    """A signature, and whether the program takes all its arguments as a tuple."""

    signature: Signature | None  # This is None if the number of outputs is unknown.
    takes_tuple: bool = False  # Whether a parameter is a tuple of all arguments.


def of_executable(api: Api, view: int | None, program: Signature | None) -> ExecutableSignature:
    """Put together what an executable takes and gives on one device.

    `view` is a `PJRT_Executable`, None if the plugin gives none for a loaded one; `program` is what
    the program says of itself, if it can be read. Tokens are a TypeError, an infeed or outfeed an
    UnimplementedError.
    """
    outputs, found = Outputs(None, None, None), None
    if view is not None:
        outputs = Outputs(
            _number(api, view),
            _ask(lambda: tuple(api.call("PJRT_Executable_OutputElementTypes", executable=view))),
            _ask(lambda: api.call("PJRT_Executable_OutputDimensions", executable=view)),
        )
        found = _read_optimized(api, view)
    if found is not None and found.signature is not None:
        outputs.require(found.signature)
        if _take_the_same(found.signature, program) and outputs.agree(found.signature.outputs):
            return found
        _log().info("the optimized program is another than the program that it was made of")
    if program is not None:
        outputs.require(program)
    return ExecutableSignature(_compose(api, view, outputs, program))


def require(signature: Signature | None, api: Api) -> Signature:
    """Return the signature that `of_executable` told, if there is one."""
    if signature is None:
        raise UnsupportedByPluginError(
            "the program cannot be read, and the plugin does not report how many outputs it has, "
            "for which a call needs room",
            function="PJRT_Executable_NumOutputs",
            since="0.0",
            have=str(api.version),
        )
    return signature


def require_outputs(api: Api, view: int, signature: Signature) -> None:
    """Refuse an executable that gives another number of outputs than its signature says."""
    Outputs(_number(api, view), None, None).require(signature)


def _read_optimized(api: Api, view: int) -> ExecutableSignature | None:
    """Return what `PJRT_Executable_OptimizedProgram` says, if it can be read."""
    answer = _ask(lambda: irregular.optimized_program(api, view))
    if answer is None:
        return None
    code, form = answer
    if not form.startswith("hlo"):
        from pjrt_hub.running.program import entry

        read = entry.signature(Program(code, "mlir"))
        return None if read is None else ExecutableSignature(read)
    try:
        told = ExecutableSignature(
            Signature.of_optimized(code, form), any(signature.tuple_parameters(code, form))
        )
        hlo.refuse_feeds(code, form)
    except (ValueError, TypeError) as exc:
        _log().info("the optimized program cannot be read: %s", exc)
        return None
    return told


def _number(api: Api, view: int) -> int | None:
    return _ask(lambda: api.call("PJRT_Executable_NumOutputs", executable=view))


def _take_the_same(optimized: Signature, program: Signature | None) -> bool:
    """Compare number and types of parameters; shapes may be of one device or of the whole."""
    if program is None:
        return True
    pairs = [[each.code for each in s.parameters] for s in (optimized, program)]
    return pairs[0] == pairs[1]


def _compose(
    api: Api, view: int | None, outputs: Outputs, program: Signature | None
) -> Signature | None:
    """Return the program's parameters and the C API's outputs; None if their number is unknown."""
    count = outputs.number
    if count is None:
        gives = None if program is None else program.outputs
        lists = (outputs.dtypes, outputs.shapes, gives)
        count = next((len(each) for each in lists if each is not None), None)
    if count is None:
        return None
    if program is None:
        program = _unread(api, view, count)
    return program._replace(
        outputs=tuple(
            _merge_output(slot, dtype, shape)
            for slot, dtype, shape in zip(
                program.outputs,
                _each(outputs.dtypes, count),
                _each(outputs.shapes, count),
                strict=True,
            )
        )
    )


def _unread(api: Api, view: int | None, count: int) -> Signature:
    """Return the signature of a program that nobody can read, or that is not here."""
    kinds = None
    if view is not None:
        kinds = _ask(lambda: api.call("PJRT_Executable_ParameterMemoryKinds", executable=view))
    _log().warning(
        "nobody tells what a program takes: its arguments are passed %s",
        "unchecked" if kinds is None else "with no check but of their number",
    )
    return Signature((ANYTHING,) * len(kinds or ()), (ANYTHING,) * count, open=kinds is None)


def _merge_output(slot: Slot, dtype: int | None, shape: tuple[int, ...] | None) -> Slot:
    """Merge what the C API and the program tell of an output; where they differ, it is unknown."""
    if shape is None or any(size < 0 for size in shape):  # In MLIR, dynamic sizes are negative.
        shape = slot.shape
    elif slot.shape not in (None, shape):  # The plugin's shape may be unset, or that of a part.
        shape = None
    if dtype is None:
        dtype = slot.code
    elif slot.code not in (UNTOLD_TYPE, dtype):
        dtype = UNTOLD_TYPE
    dynamic = slot.dynamic if shape == slot.shape else ()
    return Slot.make(dtype, shape, UNTOLD_LAYOUT, dynamic)


def _each(told: Sequence[T] | None, count: int) -> Sequence[T | None]:
    """Return the facts of the outputs, or None for each if their number differs."""
    return told if told is not None and len(told) == count else [None] * count


def _ask(question: Callable[[], T]) -> T | None:
    """Return the answer, or None if the plugin has none."""
    try:
        return question()
    except (PjrtError, UnsupportedByPluginError):
        return None
    except PluginError as exc:
        _log().info("%s", exc.message)
        return None


def _log() -> logging.Logger:
    import logging

    return logging.getLogger("pjrt_hub.signature")
