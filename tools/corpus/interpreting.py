"""The child of `interpreter`: answers each program by a line with the values of its results."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import stablehlo


def main() -> None:
    """Answer each program of standard input by a line with the values of its results."""
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    with ir.Context() as context:
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        stablehlo.register_dialect(context)
        stablehlo.register_interpreter_dialect(context)
        for line in sys.stdin:
            try:
                module = ir.Module.parse(json.loads(line))
                values = [_listed(each) for each in stablehlo.eval_module(module, [])]
                said: dict[str, Any] = {"values": values}
            except (ir.MLIRError, ValueError, RuntimeError) as exc:
                said = {"refusal": str(exc)}
            print(json.dumps(said), flush=True)


def _listed(attribute: ir.Attribute) -> list[Any]:
    array = np.array(attribute)
    flat = array.reshape(-1).tolist()
    return [value.hex() for value in flat] if array.dtype.kind == "f" else flat


if __name__ == "__main__":
    main()
