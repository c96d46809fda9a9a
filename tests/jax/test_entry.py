"""Every form of a program has the same signature: MLIR and StableHLO write them, we read them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from pjrt_hub import Program
from pjrt_hub.kit.authoring import interpreter
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.program import bytecode
from pjrt_hub.running.program.entry import signature
from pjrt_hub.running.program.partitioning import Partitioning

PROGRAMS = sorted((Path(__file__).parents[1] / "programs").glob("*.mlir"))
TYPES = [each.name for each in dtypes.ELEMENT_TYPES if each.name not in ("s1", "u1")]
KINDS = [
    *("tensor<{}>", "tensor<0x5x{}>", "tensor<?x{}>", "tuple<tensor<2x{}>, !stablehlo.token>"),
    "tensor<2x?x{}, #stablehlo.bounds<?, 4>>",
]
ATTRIBUTES = [
    *("", '{mhlo.layout_mode = "{0}"}', "{tf.aliasing_output = 0 : i32}"),
    *("{jax.buffer_donor = true}", "{jax.buffer_donor = false}", "{jax.buffer_donor}"),
    r'{x.a = [1, "\22)"], x.b = {c = unit}, x.d = 7 : i8, x.e = @f, x.f = i32, x.g = 0.5 : f32}',
]
SHARDINGS = [
    '{mhlo.sharding = "{devices=[4,2]<=[8]}"}',
    r'{mhlo.sharding = "\08\03\1A\02\04\02\22\08\00\01\02\03\04\05\06\07"}',
    '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}',
    '{sdy.sharding = #sdy.sharding<@mesh, [{}, {"x":(1)2, "y"}p1], replicated={"x":(2)2}>}',
    '{sdy.sharding = #sdy.sharding<mesh<["z"=4, "w"=2]>, [{"z"}, {}], unreduced={"w"}>}',
    '{sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {}]>}',
    r'{mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding<@m, [{\22x\22}, {}]>"}}',
]
MODULE = r"""module @m attributes {mhlo.num_partitions = 8 : i32,
    mhlo.frontend_attributes = {xla.sdy.meshes = "{m = #sdy.mesh<[\22x\22=8]>}"}} {
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func private @before(%a: vector<2xf32>) -> vector<2xf32> {
    return %a : vector<2xf32>
  }
  FUNCTION
}"""


@pytest.fixture(scope="module", autouse=True)
def _context() -> Iterator[None]:
    with interpreter.context() as context:
        context.allow_unregistered_dialects = True
        yield


def forms(text: str) -> Iterator[tuple[str, bytes]]:
    """All forms that MLIR and StableHLO write of a program."""
    with ir.Location.unknown():
        module = ir.Module.parse(text)
        for form in ("print_generic_op_form", "enable_debug_info", "use_local_scope"):
            file = io.BytesIO()
            module.operation.print(file=file, binary=True, **{form: True})
            yield form, file.getvalue()
        for version in range(7):
            file = io.BytesIO()
            module.operation.write_bytecode(file, desired_version=version)
            yield f"bytecode {version}", file.getvalue()
        if "sdy" not in text and "mhlo.frontend" not in text and "vector<" not in text:
            for target in ("0.9.0", "0.14.0", "1.0.0", stablehlo.get_current_version()):
                try:
                    yield target, stablehlo.serialize_portable_artifact(module, target)
                except ValueError:  # the types are newer than the target
                    continue


def require_agreement(text: str, num_partitions: int | None = None) -> None:
    expected = signature(Program(text, "mlir"), num_partitions)
    assert expected is not None
    found = {form: signature(Program(code, "mlir"), num_partitions) for form, code in forms(text)}
    assert {form: entry for form, entry in found.items() if entry != expected} == {}


def identity(kind: str, attributes: str = "") -> str:
    """A function whose parameter is its result."""
    return (
        f"func.func @main(%a: {kind} {attributes}) -> ({kind} {attributes}) {{"
        f" return %a : {kind} }}"
    )


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs(path):
    require_agreement(path.read_text())


@pytest.mark.parametrize("element", TYPES)
def test_types(element):
    for kind in KINDS:
        require_agreement(identity(kind.format(element)))


@pytest.mark.parametrize("attributes", ATTRIBUTES)
def test_attributes(attributes):
    require_agreement(identity("tensor<2xf32>", attributes))


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_shardings(sharding):
    text = identity("tensor<8x16xf32>", sharding)
    require_agreement(MODULE.replace("FUNCTION", text))
    if "sdy" not in sharding:
        require_agreement(text, 8)


@pytest.mark.parametrize("target", ["0.9.0", "0.14.0", "1.0.0"])
def test_what_artifacts_of_every_version_call(target):
    text = identity("tensor<2xf32>").replace(
        "return %a",
        "%b = stablehlo.custom_call @there(%a) : (tensor<2xf32>) -> tensor<2xf32> return %b",
    )
    with ir.Location.unknown():
        code = stablehlo.serialize_portable_artifact(ir.Module.parse(text), target)
    found = bytecode.uses(code)
    assert found is not None
    assert found.custom_calls == ("there",)
    assert found.operations == (
        *("builtin.module", "vhlo.custom_call_v1", "vhlo.func_v1", "vhlo.return_v1"),
    )


@pytest.mark.parametrize("version", range(7))
def test_the_counts_of_every_version(version):
    text = f"module attributes {{mhlo.num_partitions = 8 : i32}} {{{identity('tensor<2xf32>')}}}"
    with ir.Location.unknown():
        file = io.BytesIO()
        ir.Module.parse(text).operation.write_bytecode(file, desired_version=version)
    assert Partitioning.of(Program(file.getvalue(), "mlir")).num_partitions == 8
