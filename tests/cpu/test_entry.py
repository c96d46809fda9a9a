"""A program's signature before its compilation equals what the compiler reports afterwards."""

from pathlib import Path

import pytest

from pjrt_hub import CompileOptions, Program
from pjrt_hub.running.program.entry import signature
from pjrt_hub.running.program.signature import UNTOLD_LAYOUT

PROGRAMS = [
    path
    for path in sorted((Path(__file__).parents[1] / "programs").glob("*.mlir"))
    if path.stem != "exchange"  # the CPU plugin cannot run it
]
BYTECODE = sorted((Path(__file__).parent / "data").glob("*.mlirbc"))
#: Element types that XLA's CPU compiler accepts.
TYPES = [
    *(f"i{bits}" for bits in (1, 2, 4, 8, 16, 32, 64)),
    *(f"ui{bits}" for bits in (2, 4, 8, 16, 32, 64)),
    *("f16", "bf16", "f32", "f64", "complex<f32>", "complex<f64>"),
    *("f8E5M2", "f8E4M3FN", "f8E4M3B11FNUZ", "f8E5M2FNUZ", "f8E4M3FNUZ", "f8E4M3", "f8E3M4"),
    *("f8E8M0FNU", "f4E2M1FN"),
]
COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "collective_permute", "reduce_scatter")
SPLIT = ("matmul_gspmd", "matmul_shardy")
DIMENSIONS = ["", "8x", "0x", "2x3x", "1x1x1x", "2x3x4x5x6x", "?x3x", "4x?x?x"]


def compiled(client, program, options=None):
    """The compiler's report: parameters, outputs and donated parameters."""
    told = client.compile(program, options).signature
    return told.parameters, told.outputs, told.donated


def declared(program, num_partitions=None):
    """The program's own signature, with row-major layouts if it leaves them to the plugin."""
    told = signature(Program.of(program), num_partitions)
    if told is None:
        return None
    parameters, outputs = (
        tuple(
            slot._replace(layout=None) if slot.layout == UNTOLD_LAYOUT else slot for slot in slots
        )
        for slots in (told.parameters, told.outputs)
    )
    return parameters, outputs, told.donated


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_programs_of_the_tests(eight, path):
    options = None
    if path.stem in SPLIT:
        options = CompileOptions(num_partitions=8)
    elif path.stem in COLLECTIVES:
        options = CompileOptions(num_replicas=8)
    expected = compiled(eight, path, options)
    if path.stem.startswith("shard_map"):  # only the compiler splits these values
        entry = signature(Program.of(path))
        assert [value.shape for value in entry.parameters + entry.outputs] == [None, None]
    else:
        assert declared(path, 8 if path.stem in SPLIT else None) == expected


def tensor(dimensions: str, element: str) -> str:
    bounds = ", ".join("7" if size == "?" else "?" for size in dimensions.split("x")[:-1])
    encoding = f", #stablehlo.bounds<{bounds}>" if "?" in dimensions else ""
    return f"tensor<{dimensions}{element}{encoding}>"


def identity(kind: str, attributes: str = "", of_result: str = "") -> str:
    return (
        f"func.func public @main(%a: {kind} {attributes}) -> ({kind} {of_result}) "
        f"{{\n  return %a : {kind}\n}}\n"
    )


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("dimensions", DIMENSIONS)
def test_every_type_of_every_rank(client, dimensions, element):
    text = identity(tensor(dimensions, element))
    assert declared(text) == compiled(client, text)


ATTRIBUTES = [
    "",
    '{mhlo.layout_mode = "{0,1}"}',
    '{mhlo.layout_mode = "{1,0}"}',
    '{mhlo.layout_mode = "default", mhlo.memory_kind = "device"}',
    "{tf.aliasing_output = 0 : i32}",
    "{tf.aliasing_output = 0}",
    "{jax.buffer_donor = true}",
    "{jax.buffer_donor = false}",
    "{jax.buffer_donor}",
    '{mhlo.layout_mode = "{0,1}", tf.aliasing_output = 0 : i32}',
    r'{"x.b" = "}) {\22,", x.c = [1, {d = "x"}], x.e = dense<[[1, 2], [3, 4]]> : tensor<2x2xi8>}',
    "{x.a = affine_map<(d0) -> (d0)>, jax.buffer_donor = true, x.b = 0.5 : f32, x.c = @main}",
    r'{x.a = array<i64: 1>, jax.result_info = "[(\"]", x.b = tuple<i32, !stablehlo.token>}',
]
RESULTS = ["", '{mhlo.layout_mode = "{0,1}"}', '{jax.result_info = "a > b)"}']


@pytest.mark.parametrize("attributes", ATTRIBUTES)
@pytest.mark.parametrize("of_result", RESULTS)
def test_every_attribute(client, attributes, of_result):
    kind = "tensor<2x3xf32>"
    pretty = identity(kind, attributes, of_result)
    generic = f"""// func.func @main(
"builtin.module"() <{{sym_name = "func.func @main("}}> ({{
  "func.func"() <{{arg_attrs = [{attributes or "{}"}], function_type = ({kind}) -> {kind},
      res_attrs = [{of_result or "{}"}], sym_name = "main"}}> ({{
  ^bb0(%a: {kind}):
    "func.return"(%a) : ({kind}) -> ()
  }}) : () -> ()
}}) : () -> ()"""
    old = f""""builtin.module"() ({{
  "func.func"() ({{
  ^bb0(%a: {kind}):
    "func.return"(%a) : ({kind}) -> ()
  }}) {{arg_attrs = [{attributes or "{}"}], function_type = ({kind}) -> {kind},
      res_attrs = [{of_result or "{}"}], sym_name = "main"}} : () -> ()
}}) : () -> ()"""
    told = compiled(client, pretty)
    for text in (pretty, generic, old):
        assert declared(text) == told == compiled(client, text)


MESH = 'sdy.mesh @mesh = <["x"=4, "y"=2]>\n'
#: Ways to write that rows or columns are split over a mesh of 4 by 2, or that they are not.
SHARDINGS = [
    r"""{mhlo.sharding = "{devices=[4,2]<=[8]}"}""",
    r"""{mhlo.sharding = "{devices=[2,2,2]<=[4,2]T(1,0) last_tile_dim_replicate}"}""",
    r"""{mhlo.sharding = "{devices=[4,2]0,1,2,3,4,5,6,7}"}""",
    r"""{mhlo.sharding = "{devices=[1,4,2]<=[8] last_tile_dims={replicated}}"}""",
    r"""{mhlo.sharding = "{replicated}"}""",
    r"""{mhlo.sharding = "{maximal device=3}"}""",
    r"""{mhlo.sharding = "\08\03\1A\02\04\02\22\08\00\01\02\03\04\05\06\07"}""",
    r"""{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}""",
    r"""{sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {}]>}""",
    r"""{sdy.sharding = #sdy.sharding<@mesh, [{}, {"x":(1)2, "y"}], replicated={"x":(2)2}>}""",
    r"""{sdy.sharding = #sdy.sharding<mesh<["x"=4, "y"=2]>, [{"y"}, {}]>}""",
]
#: Shardings that the compiler may refine.
OPEN = [
    "",
    r"""{sdy.sharding = #sdy.sharding<@mesh, [{?}, {?}]>}""",
    r"""{sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}p1, {}]>}""",
]


@pytest.mark.parametrize("dimensions", ["8x16x", "5x3x", "8x0x"])
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_every_sharding(eight, sharding, dimensions):
    options = CompileOptions(num_partitions=8, use_shardy_partitioner="sdy" in sharding)
    text = (MESH if "sdy" in sharding else "") + identity(
        f"tensor<{dimensions}f32>", sharding, sharding
    )
    if "sdy" in sharding and dimensions != "8x16x":  # the size is uneven or 0
        [[parameter], [output], _] = declared(text, 8)
        assert (parameter.shape, output.shape) == (None, None)
    else:
        assert declared(text, 8) == compiled(eight, text, options)
    assert declared(text)[0][0].shape == tuple(int(size) for size in dimensions.split("x")[:-1])


@pytest.mark.parametrize(
    "sharding", ['{mhlo.sharding = "{replicated}"}', "{sdy.sharding = #sdy.sharding<@mesh, []>}"]
)
def test_scalars_are_whole(eight, sharding):
    text = MESH + identity("tensor<f32>", sharding, sharding)
    options = CompileOptions(num_partitions=8, use_shardy_partitioner="sdy." in sharding)
    assert declared(text, 8) == compiled(eight, text, options)


@pytest.mark.parametrize("sharding", OPEN)
def test_what_the_compiler_decides_is_not_known(sharding):
    text = MESH + identity("tensor<8x16xf32>", sharding, sharding)
    [parameter] = signature(Program.of(text), 8).parameters
    assert parameter == (11, None, UNTOLD_LAYOUT, ())


@pytest.mark.parametrize("path", BYTECODE, ids=lambda path: path.stem)
def test_bytecode(eight, path):
    """Several versions of MLIR's own dialects and of StableHLO's portable dialect are read."""
    assert declared(path) == compiled(eight, path)
