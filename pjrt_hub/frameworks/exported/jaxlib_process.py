"""A script that makes programs fit plugins, with jaxlib but without jax.

MLIR may end its process if its input is unexpected, so the script runs in one of its own. It reads
a request from stdin and writes the program to stdout: see `specialise`. Must not import pjrt-hub.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

OK, REFUSED, UNREAD = b"ok\0", b"no\0", b"unread\0"


class UnreadError(Exception):
    """The error that this jaxlib cannot read the program."""


def main() -> None:
    """Answer one request: a line of JSON, then the program."""
    request = json.loads(sys.stdin.buffer.readline())
    code = sys.stdin.buffer.read()
    try:
        answer = OK + specialise(code, **request)
    except UnreadError as exc:
        answer = UNREAD + str(exc).encode()
    except Exception as exc:
        answer = REFUSED + f"{type(exc).__name__}: {exc}".encode()
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()


def specialise(
    code: bytes, types: dict[str, str], refine: bool, single_device: bool, version: str
) -> bytes:
    """Make a program with fewer unknowns and for an older StableHLO.

    `code` is a portable artifact of jax.export. `types` has types without symbols, by the number of
    an argument; `refine` says whether other shapes follow from these types, `single_device` whether
    shardings can be left out. `version` is the StableHLO version of the result. A program that is
    malformed, or newer than this jaxlib, raises UnreadError.
    """
    import jaxlib
    from jaxlib import _jax
    from jaxlib.mlir import ir, passmanager
    from jaxlib.mlir.dialects import func, stablehlo

    with _context() as context, ir.Location.unknown():
        newest = stablehlo.get_current_version()
        try:
            module = _jax.mlir.deserialize_portable_artifact(code, context)
        except RuntimeError as exc:  # MLIR writes the reason to stderr.
            reads = f"jaxlib {jaxlib.__version__} reads StableHLO up to {newest}"
            raise UnreadError(f"{reads}: {exc}") from exc
        [main] = [
            each
            for each in module.body.operations
            if isinstance(each, func.FuncOp) and each.name.value == "main"
        ]
        block, inputs = main.entry_block, list(main.type.inputs)
        for number, text in types.items():
            wanted, argument = ir.Type.parse(text), block.arguments[int(number)]
            given = inputs[int(number)]
            inputs[int(number)] = wanted
            argument.set_type(wanted)
            with ir.InsertionPoint.at_block_begin(block):
                # As in calls by JAX, the code of the function still gets the symbolic type that it
                # was written for.
                converted = stablehlo.convert(given, argument)
            argument.replace_all_uses_except(converted, converted.owner.operation)
        type_of = ir.FunctionType.get(inputs, list(main.type.results))
        main.attributes["function_type"] = ir.TypeAttr.get(type_of)
        if refine:
            buffer = io.BytesIO()
            module.operation.write_bytecode(buffer)
            refined = _jax.mlir.refine_polymorphic_shapes(
                buffer.getvalue(), enable_shape_assertions=True, validate_static_shapes=True
            )
            module = ir.Module.parse(refined)
        passes = passmanager.PassManager.parse("builtin.module(inline,canonicalize,symbol-dce)")
        passes.run(module.operation)
        if single_device:
            module.operation.walk(_without_sharding)
        target = min(version, newest, key=lambda text: tuple(map(int, text.split("."))))
        return bytes(_jax.mlir.serialize_portable_artifact(module, target))


def _context() -> Any:
    """Return a context with the dialects of JAX's programs and of what jaxlib makes from them."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo

    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    sdy.register_dialect(context)
    return context


def _without_sharding(operation: Any) -> Any:
    from jaxlib.mlir import ir

    names = [getattr(each, "name", each) for each in operation.attributes]
    for name in names:
        if name.startswith("sdy."):
            del operation.attributes[name]
    return ir.WalkResult.ADVANCE


if __name__ == "__main__":
    main()
