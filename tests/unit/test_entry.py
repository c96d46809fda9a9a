"""Signatures of odd, hostile and large programs, read without a plugin."""

import time

import pytest

from pjrt_hub import Program
from pjrt_hub.running.capi import wire
from pjrt_hub.running.program import hlo
from pjrt_hub.running.program.entry import signature
from pjrt_hub.running.program.signature import UNTOLD_LAYOUT, Signature, Slot

F32, I32, U4 = 11, 4, 22
MAIN = "func.func public @main(%a: tensor<8xf32>) -> tensor<i32> {\n}\n"


def entry(text: str | bytes, num_partitions: int = 1, form: str = "mlir") -> Signature | None:
    return signature(Program(text, form), num_partitions)


def slot(dtype, shape, layout=UNTOLD_LAYOUT, dynamic=()) -> Slot:
    return Slot(dtype, shape, layout, dynamic)


@pytest.mark.parametrize(
    "before",
    [
        "// func.func @main(%a: tensor<9xf32>)\n",
        'module @m attributes {a.b = "func.func @main(%a: tensor<9xf32>) {"} {\n',
        'module @m attributes {a.b = "\\"func.func @main(%a: tensor<9xf32>) {\\\\"} {\n',
        'module @m attributes {a.b = "// no comment"} {',
        "func.func private @main2(%a: tensor<9xf32>)\n",
        "func.func private @main(%a: tensor<9xf32>)\n",
        "func.func @f(%a: !some.type<9>) { func.call @main() }\n",
        '"func.func"() <{function_type = (!some.type<9>) -> (), sym_name = "f"}> ({})\n',
        "#loc = loc(unknown)\n!t = tensor<9xf32>\nmodule {\n",
        "module {\n  // module {\n",
    ],
)
def test_main_is_found_behind(before):
    found = entry(before + MAIN)
    assert found == Signature((slot(F32, (8,)),), (slot(I32, ()),))


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("@main()", []),
        ('@"main"(%a: tensor<1xf32>)', [(1,)]),
        ("@main(%a : tensor < 1 x 2 x f32 >)", [(1, 2)]),
        ("@main(%arg0: tensor<1xf32> // ) {\n  , %b:tensor<f32>)", [(1,), ()]),
        ("@main(%0: f32, %1: i4)", [(), ()]),
        ("@main(tensor<1xf32>)", [(1,)]),
        ("@main(%a: !stablehlo.token, %b: tensor<2xi1>)", [(2,)]),
        ("@main(%a: tuple<tensor<1xf32>, tuple<!mhlo.token, tensor<2xf32>>>)", [(1,), (2,)]),
        ("@main(%a: tensor<?x3xf32>)", [None]),
        ("@main(%a: tensor<?x3xf32, #stablehlo.bounds<4, ?>>)", [(4, 3)]),
        ("@main(%a: tensor<?x3xf32, #mhlo.type_extensions<bounds = [4, ?]>>)", [(4, 3)]),
        ('@main(%a: tensor<1xf32> {x.y} loc("a, b"("c":1:2)), %b: tensor<2xf32>)', [(1,), (2,)]),
        ('@main(%a: tensor<1xf32> {x.a = dense<"0x>,">, x.b = 3 -> 4}, %b: i32)', [(1,), ()]),
        ("@other(%a: tensor<1xf32>)", [(1,)]),
    ],
)
def test_heads(head, expected):
    found = entry(f"module {{\n  func.func {head} {{\n  }}\n}}")
    assert [value.shape for value in found.parameters] == expected


def test_aliases():
    text = (
        "!e = i4\n!u = tensor<2x!e>\n!t = tuple<!u, tensor<3x?xui4, #b>>\n"
        '#b = #stablehlo.bounds<?, 5>\n#layout = "{0,1}"\n#d = {jax.buffer_donor = true}\n'
        "func.func @main(%a: !t, %b: tensor<2x3xf32> {mhlo.layout_mode = #layout}) {"
    )
    bounded = slot(U4, (3, 5), dynamic=(1,))
    assert entry(text).parameters == (slot(21, (2,)), bounded, slot(F32, (2, 3), (0, 1)))


#: A type that stands for 9 ** 20 types; test_linear.py has other programs that must end soon.
GROWN = "".join(f"!t{n} = tuple<{f'!t{n + 1}, ' * 9}i1>\n" for n in range(20))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "module {}",
        "func.func private @main(%a: tensor<8xf32>)",
        "func.func @a()\nfunc.func @b()",
        "module {\n module @inner {\n" + MAIN + "}}",
        "func.func @main(%a: tensor<8xf32>",
        "func.func @main(%a: tensor<8x!quant.uniform<i8:f32, 1.0>>)",
        "func.func @main(%a: tensor<8xindex>)",
        "func.func @main(%a: tensor<8xs1>)",
        "func.func @main(%a: tensor<8xpred>)",
        "func.func @main(%a: tensor<*xf32>)",
        "func.func @main(%a: tensor<8xf32, #sparse>)",
        "func.func @main(%a: memref<8xf32>)",
        "func.func @main(%a: vector<8xf32>)",
        "func.func @main(%a: !t)",
        "!t = !t\nfunc.func @main(%a: !t)",
        "func.func @main(%a: tensor<?xf32, #stablehlo.bounds<1, 2>>)",
        "func.func @main(%a: tensor<18446744073709551616xf32>)",
        "func.func @main(%a: tensor<9999999999999999999xf32>)",
        'func.func @main(%a: tensor<8xf32> {mhlo.layout_mode = "{1,0}"})',
        'func.func @main(%a: tensor<8xf32> {mhlo.layout_mode = "rows"})',
        'func.func @main(%a: tensor<8xf32> {x.y = "})',
        "func.func @main(%a: " + "tuple<" * 5000,
        "func.func @main(%a: tensor<8xf32> " + "{a = " * 5000,
        "func.func @main(%a: tensor<" + "1x" * 300 + "f32>)",
        '"func.func"() <{sym_name = "main"}> ({})',
        '"func.func"() <{function_type = () -> (), arg_attrs = [{}], sym_name = "main"}> ({})',
        "ML\xefR",
        f"!t20 = i1\n{GROWN}func.func @main(%a: !t0)",
    ],
)
def test_what_is_not_readable(text):
    assert entry(text) is None
    assert entry(text, form="hlo") is None


def test_only_the_head_is_read():
    """The rest of a 100 MB program is not read."""
    large = Program(MAIN + "//" + "x" * 100_000_000, "mlir")
    begin_s = time.process_time()
    assert signature(large, 1) is not None
    assert time.process_time() - begin_s < 0.1


def proto(sharding: bytes = b"") -> bytes:
    """An HloModuleProto that returns its one parameter."""
    shape = Slot.of("float32", (8, 6), (0, 1)).serialize()
    code = hlo.module("m", [hlo.Instruction("a", "parameter", shape)], donated=(0,))
    said = wire.length_delimited(hlo.INSTRUCTION_SHARDING, sharding) if sharding else b""
    return added(code, said, hlo.MODULE_COMPUTATIONS, hlo.COMPUTATION_INSTRUCTIONS)


def added(message: bytes, more: bytes, *path: int) -> bytes:
    """The message with more fields in the submessage at a path of field numbers."""
    if not path:
        return message + more
    [part] = (bytes(v) for n, v in wire.fields(memoryview(message)) if n == path[0])
    new = wire.length_delimited(path[0], added(part, more, *path[1:]))
    return message.replace(wire.length_delimited(path[0], part), new)


def test_a_proto():
    whole = slot(F32, (8, 6), (0, 1))
    found = entry(proto(), 1, "hlo")
    assert (found.parameters, found.outputs, found.donated) == ((whole,), (whole,), (0,))


TILED = wire.varint(hlo.SHARDING_TYPE, hlo.TILED)
TILES = wire.pack(hlo.SHARDING_TILES, [2, 4]) + wire.pack(hlo.SHARDING_IOTA, [8])


@pytest.mark.parametrize(
    ("sharding", "part"),
    [
        (b"", None),
        (wire.varint(hlo.SHARDING_TYPE, hlo.REPLICATED), (8, 6)),
        (TILED, None),
        (TILED + TILES, (4, 2)),
    ],
)
def test_a_proto_of_several_partitions(sharding, part):
    found = entry(proto(sharding), 8, "hlo")
    assert found is not None
    assert [value.shape for value in found.parameters + found.outputs] == [part, part]
