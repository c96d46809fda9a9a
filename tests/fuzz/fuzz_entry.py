"""A program's own words for what it takes and gives: any bytes give a signature or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pjrt_hub import Program
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.program import hlo
from pjrt_hub.running.program.entry import signature
from pjrt_hub.running.program.signature import UNTOLD_LAYOUT, Slot

TESTS = Path(__file__).parents[1]
#: Forms and annotations that the programs of other tests have none of.
TEXTS = (
    '#map = "x"\n!t = tuple<tensor<2x?xf32, #stablehlo.bounds<?, 4>>, !stablehlo.token>\n'
    "module @a attributes {mhlo.num_partitions = 8 : i32, mhlo.frontend_attributes = "
    '{xla.sdy.meshes = "{mesh = #sdy.mesh<[\\22x\\22=8]>}"}} {\n  // func.func @main(\n'
    "  func.func @main(%a: !t {jax.buffer_donor = true}, %b: tensor<8xi4> {mhlo.frontend_attributes"
    ' = {xla.sdy.sharding = "#sdy.sharding<@mesh, [{\\22x\\22:(1)2}p1]>"}} loc("b"("c":1:2))) -> '
    '(tensor<i1> {mhlo.layout_mode = "{}", mhlo.sharding = "\\08\\03\\1A\\01\\08"}) {',
    '"builtin.module"() <{sym_name = "m"}> ({\n  "func.func"() <{arg_attrs = [{a.b = #map}], '
    "function_type = (tensor<3xcomplex<f32>>) -> (), res_attrs = [], sym_name = "
    '"main", sym_visibility = "public"}> ({\n  }) : () -> ()\n}) : () -> ()\n',
)
FINDINGS: tuple[bytes, ...] = ()


def seeds() -> Iterator[bytes]:
    """Text, bytecode of several versions, and a proto."""
    for path in (*TESTS.glob("programs/*.mlir"), *TESTS.glob("cpu/data/*.mlirbc")):
        yield path.read_bytes()
    yield from (text.encode() for text in TEXTS)
    shape = Slot.of("float32", (2, 3), (0, 1), (1,)).serialize()
    yield hlo.module("m", [hlo.Instruction("a", "parameter", shape)], donated=(0,))


def one(data: bytes) -> None:
    """Read one input as every format, for one device and for eight."""
    for form in ("mlir", "hlo"):
        for num_partitions in (None, 8):
            told = signature(Program(data, form), num_partitions)
            if told is None:
                continue
            for slot in told.parameters + told.outputs:
                assert dtypes.of_code(slot.code)
                assert slot.shape is None or all(size >= 0 for size in slot.shape)
                assert slot.layout in (None, UNTOLD_LAYOUT) or len(slot.layout) == len(
                    slot.layout if slot.shape is None else slot.shape
                )
            assert all(0 <= number < len(told.parameters) for number in told.donated)
