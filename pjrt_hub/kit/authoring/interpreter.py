"""The process in which StableHLO's reference interpreter runs: `python -m ... FD`.

The interpreter ends its process if a program needs what it cannot do, so it has its own process,
which answers requests from a socket in order. It needs jaxlib and nothing of jax.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from pjrt_hub.kit.authoring import limitations, partitioning, rewrites
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.program.signature import Signature, Slot

#: These passes lower a program to operations that the interpreter has, and complex functions to
#: exact functions of real numbers.
_LOWERING = (
    "func.func(chlo-legalize-to-stablehlo)",
    "func.func(stablehlo-legalize-deprecated-ops{fail-on-unused=false})",
    "func.func(stablehlo-canonicalize-dynamism)",
    "func.func(stablehlo-complex-math-expander)",
    "symbol-dce",
)

#: The bindings know these element types, which are C's types of numbers.
_PLAIN = ("i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f16", "f32", "f64")

Array = Any


class Carrier(NamedTuple):
    """How values of an element type get into the interpreter and out.

    Values that are not `_PLAIN` pass as `types`, and operations of the program convert them there
    and back.
    """

    types: tuple[str, ...]
    enter: str
    leave: tuple[str, ...]


def _carrier(slot: Slot) -> Carrier:
    element = slot.element_type or ""
    if element in _PLAIN:
        return Carrier((element,), "", ("",))
    if element.startswith("complex"):
        part = element[len("complex<") : -1]
        return Carrier((part, part), "complex", ("real", "imag"))
    if element in ("i2", "i4", "ui2", "ui4"):
        wider = "ui8" if element[0] == "u" else "i8"
        return Carrier((wider,), "convert", ("convert",))
    if element.startswith(("f4", "f6")):
        return Carrier(("f32",), "convert", ("convert",))
    bits = "ui16" if element == "bf16" else "ui8"
    return Carrier((bits,), "bitcast_convert", ("bitcast_convert",))


def _type(slot: Slot, element: str | None = None) -> str:
    """Return a tensor's type as StableHLO writes it, by default with the slot's own elements."""
    sizes = "".join(f"{size}x" for size in slot.shape or ())
    return f"tensor<{sizes}{element or slot.element_type}>"


def _carried(slot: Slot) -> list[str]:
    """Return the types of the tensors that carry a slot's values."""
    return [_type(slot, each) for each in _carrier(slot).types]


class Runnable(NamedTuple):
    """A program that is ready to run: a main that runs all devices at once."""

    module: ir.Module
    signature: Signature  # That of one device's program.


def context() -> ir.Context:
    """Make a context with the dialects that programs come in, and the passes for them."""
    stablehlo.register_stablehlo_passes()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    made = ir.Context()
    made.append_dialect_registry(registry)
    made.load_all_available_dialects()
    for register in (
        stablehlo.register_dialect,
        stablehlo.register_interpreter_dialect,
        chlo.register_dialect,
        sdy.register_dialect,
        mhlo.register_mhlo_dialect,
    ):
        register(made)
    return made


def versions() -> dict[str, list[int]]:
    """Return the StableHLO versions that can be read."""
    texts = stablehlo.get_current_version(), stablehlo.get_minimum_version()
    current, minimum = ([int(each) for each in text.split(".")] for text in texts)
    return {"stablehlo_current_version": current, "stablehlo_minimum_version": minimum}


def parse(code: bytes, form: str) -> ir.Module:
    """Read a program in any format that the plugin takes; the exception says why it is none."""
    from jaxlib import _jax

    if form == "hlo":
        code = _jax.mlir.hlo_to_stablehlo(code)
    if code.startswith(b"ML\xefR"):
        return stablehlo.deserialize_portable_artifact(ir.Context.current, code)
    return ir.Module.parse(code)


def lower(module: ir.Module, partitions: int) -> None:
    """Turn a program into what the interpreter knows, in place, or raise NotImplementedError."""
    names, elements = _names_and_types(module)
    if unsayable := sorted(each for each in elements if each.startswith("f6E")):
        raise NotImplementedError(f"XLA, whose HLO hosts read, has no {', '.join(unsayable)}")
    passes = list(_LOWERING)
    if "sdy.mesh" in names:
        if partitions > 1:
            partitioning.require_manual(module, _main(module))
        passes = [*partitioning.PASSES, *passes]
    elif partitions > 1:
        raise NotImplementedError("only Shardy's programs of several partitions can be split here")
    for each in passes:
        passmanager.PassManager.parse(f"builtin.module({each})").run(module.operation)
    limitations.require_right(module)
    rewrites.mend(module)


def _names_and_types(module: ir.Module) -> tuple[set[str], set[str]]:
    """Collect the names of operations, and the element types of their operands and results."""
    names, elements = set[str](), set[str]()
    for each in rewrites.operations(module):
        names.add(each.name)
        blocks = (block for region in each.regions for block in region)
        taken = (argument.type for block in blocks for argument in block.arguments)
        kinds = itertools.chain(taken, (result.type for result in each.results))
        elements.update(str(k.element_type) for k in kinds if isinstance(k, ir.RankedTensorType))
    return names, elements


def _attribute(operation: ir.Operation, name: str) -> Any:
    return operation.attributes[name].value if name in operation.attributes else None


def describe(module: ir.Module) -> tuple[str, Signature, bytes]:
    """Return the name, the signature of `main`, and the program in HLO, for one device."""
    main = _main(module)
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    parameters, outputs = (tuple(map(_slot, each)) for each in (kind.inputs, kind.results))
    given = ir.ArrayAttr(main.attributes["arg_attrs"]) if "arg_attrs" in main.attributes else ()
    donors = ("tf.aliasing_output", "jax.buffer_donor")
    donated = [i for i, each in enumerate(given) if any(name in each for name in donors)]
    signature = Signature(parameters, outputs, donated=tuple(donated))
    name = _attribute(module.operation, "sym_name") or "main"
    return name, signature, _hlo(module, outputs)


def _hlo(module: ir.Module, outputs: Sequence[Slot]) -> bytes:
    """Convert to HLO for hosts that read it; no bytes if XLA cannot, or changes result shapes."""
    from io import BytesIO

    from jaxlib import _jax

    module.operation.attributes["mhlo.xla_entry_computation_result_layout"] = ir.ArrayAttr.get(
        [_row_major(len(each.shape or ())) for each in outputs]
    )
    code = BytesIO()
    module.operation.write_bytecode(code)
    try:
        computation = _jax.mlir.mlir_module_to_xla_computation(code.getvalue(), False, False)
        hlo = bytes(computation.as_serialized_hlo_module_proto())
    except Exception:  # The interpreter may know programs that XLA refuses.
        return b""
    given = computation.program_shape().result_shape()
    shapes = [each.dimensions() for each in (given.tuple_shapes() if given.is_tuple() else [given])]
    # A bool has eight bits in XLA and one bit in the interpreter, so shapes may differ.
    if shapes != [each.shape for each in outputs]:
        return b""
    return hlo + partitioning.sharding_fields(module, _main(module))


def _row_major(rank: int) -> ir.Attribute:
    """Return a row-major layout for outputs, so that XLA's importer does not choose another."""
    order = str(list(range(rank)[::-1])) if rank else ""
    return ir.Attribute.parse(f"dense<{order}> : tensor<{rank}xindex>")


def _main(module: ir.Module) -> ir.Operation:
    for each in module.body.operations:
        if each.operation.name == "func.func" and _attribute(each.operation, "sym_name") == "main":
            return each.operation
    raise ValueError("the program has no function main")


def _slot(kind: ir.Type) -> Slot:
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        raise NotImplementedError(f"a program on this plugin neither takes nor gives {kind}")
    return Slot.of(dtypes.of_type(str(kind.element_type)).code, kind.shape)


def wrap(module: ir.Module, signature: Signature, replicas: int, partitions: int) -> Runnable:
    """Add a main that runs the program on all devices, in types that the bindings can pass."""
    program = _main(module)
    program.attributes["sym_name"] = ir.StringAttr.get("pjrt_program")
    program.attributes["sym_visibility"] = ir.StringAttr.get("private")
    wrapper = ir.Module.parse(_wrapper(signature, replicas, partitions))
    for each in list(wrapper.body.operations):
        if _attribute(each.operation, "sym_name") != "pjrt_program":
            module.body.append(each)
    return Runnable(module, signature)


def _wrapper(program: Signature, replicas: int, partitions: int) -> str:
    taken = [each for slot in program.parameters for each in _carried(slot)]
    given = [each for slot in program.outputs for each in _carried(slot)]
    names = iter([f"%a{i}" for i in range(len(taken))])
    lines, inner, outer = list[str](), list[str](), list[str]()
    for number, slot in enumerate(program.parameters):
        carrier = _carrier(slot)
        carriers = list(itertools.islice(names, len(carrier.types)))
        inner += [f"%p{number}"] if carrier.enter else carriers
        if carrier.enter:
            entry = f'"stablehlo.{carrier.enter}"{_list(carriers)} : {_list(_carried(slot))}'
            lines.append(f"%p{number} = {entry} -> {_type(slot)}")
    signature = f"{_list(map(_type, program.parameters))} -> {_list(map(_type, program.outputs))}"
    named = f"%r:{len(program.outputs)} = " if program.outputs else ""
    lines.append(f"{named}func.call @pjrt_program{_list(inner)} : {signature}")
    for number, slot in enumerate(program.outputs):
        for leave, to in zip(_carrier(slot).leave, _carried(slot), strict=True):
            outer.append(f"%o{len(outer)}" if leave else f"%r#{number}")
            if leave:
                left = f'"stablehlo.{leave}"(%r#{number}) : ({_type(slot)}) -> {to}'
                lines.append(f"{outer[-1]} = {left}")
    lines.append(f'"func.return"{_list(outer)} : {_list(given)} -> ()')
    devices = replicas * partitions
    every, whole = taken * devices, given * devices
    arguments = _list(f"%a{i}" for i in range(len(every)))
    programs = ", ".join([f"[{', '.join(['@pjrt_device'] * partitions)}]"] * replicas)
    ran = f"%r:{len(whole)} = " if whole else ""
    run_all = f'{ran}"interpreter.run_parallel"{arguments} {{programs = [{programs}]}}'
    return "\n".join(
        [
            f"func.func private @pjrt_program{signature}",
            f"func.func private @pjrt_device{_parameters(taken)} -> {_list(given)} {{",
            *lines,
            "}",
            f"func.func @main{_parameters(every)} -> {_list(whole)} {{",
            f"{run_all} : {_list(every)} -> {_list(whole)}",
            f'"func.return"{_list(f"%r#{i}" for i in range(len(whole)))} : {_list(whole)} -> ()',
            "}",
        ]
    )


def _list(each: Iterable[object]) -> str:
    return f"({', '.join(map(str, each))})"


def _parameters(types: Iterable[str]) -> str:
    return _list(f"%a{i}: {each}" for i, each in enumerate(types))


def run(program: Runnable, rows: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Run a program on the arrays of each device."""
    taken = [
        ir.DenseElementsAttr.get(part, type=ir.Type.parse(element), shape=slot.shape)
        for row in rows
        for array, slot in zip(row, program.signature.parameters, strict=True)
        for part, element in zip(_parts(array, slot), _carrier(slot).types, strict=True)
    ]
    given = iter(stablehlo.eval_module(program.module, taken))
    return [[_whole(given, slot) for slot in program.signature.outputs] for _ in rows]


def _parts(array: Array, slot: Slot) -> list[Array]:
    """Split an array into the arrays that carry its values."""
    import numpy

    array = numpy.ascontiguousarray(array)
    carrier = _carrier(slot)
    if carrier.enter == "complex":
        return [array.real.copy(), array.imag.copy()]
    if carrier.enter == "bitcast_convert":
        return [array.view(_numpy(carrier.types[0]))]
    if carrier.enter:
        return [array.astype(_numpy(carrier.types[0]))]
    return [array]


def _whole(given: Iterator[ir.Attribute], slot: Slot) -> Array:
    """Join the next array from the arrays that carry its values."""
    import numpy

    carrier, wanted = _carrier(slot), slot.dtype
    parts = [
        numpy.asarray(next(given)).reshape(slot.shape).astype(_numpy(each), copy=False)
        for each in carrier.types
    ]
    if carrier.enter == "complex":
        whole = numpy.empty_like(parts[0], wanted)
        whole.real, whole.imag = parts
        return whole
    if carrier.enter == "bitcast_convert":
        return parts[0].view(wanted)
    return parts[0].astype(wanted) if carrier.enter else numpy.array(parts[0])


def _numpy(element: str) -> Any:
    return dtypes.numpy_dtype(dtypes.of_type(element).code)


def serve(connection: Connection) -> None:
    """Answer requests such as ("execute", key, rows) until the other side closes the socket."""
    programs: dict[int, Runnable] = {}
    with context(), ir.Location.unknown():

        def compile_(key: int, code: bytes, form: str, replicas: int, partitions: int) -> object:
            module = parse(code, form)
            lower(module, partitions)
            name, signature, hlo = describe(module)
            programs[key] = wrap(module, signature, replicas, partitions)
            return name, signature, hlo

        def execute(key: int, rows: list[list[Array]]) -> object:
            return run(programs[key], rows) if key in programs else None

        def forget(key: int) -> object:
            return programs.pop(key, None) and None

        answers: dict[str, Callable[..., object]] = {
            "versions": versions,
            "compile": compile_,
            "execute": execute,
            "forget": forget,
        }
        while True:
            try:
                what, *rest = connection.recv()
            except EOFError:
                return
            try:
                answer: tuple[str, object] = ("", answers[what](*rest))
            except NotImplementedError as exc:
                answer = ("unimplemented", str(exc))
            except Exception as exc:  # MLIR's exception says why the program was refused.
                answer = ("invalid", str(exc))
            connection.send(answer)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
