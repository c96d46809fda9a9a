"""Programs that name their number of devices: compiled for it, or refused with both numbers."""

import base64
from pathlib import Path

import numpy as np
import pytest
from children import NAME
from test_multi_device import split_rows
from texts import doubling

from pjrt_hub import CompileOptions, Program
from pjrt_hub.errors import InvalidArgumentError, NotFoundError
from pjrt_hub.frameworks.exported import reading
from pjrt_hub.running.capi import wire
from pjrt_hub.running.program.partitioning import Partitioning

SPLIT = Path(__file__).parents[1] / "exported" / "artifacts" / "split.jaxexport"
ROWS = np.random.default_rng(0).integers(-9, 9, (16, 4)).astype(np.float32)


def module(text: str, attributes: str) -> str:
    return f"module attributes {{{attributes}}} {{\n{text}\n}}"


def run(executable, parts):
    """The result of each device for its part."""
    rows = [
        [executable.client.buffer_from_host(np.ascontiguousarray(part), device=device)]
        for part, device in zip(parts, executable.devices, strict=True)
    ]
    return [result.to_numpy() for [result] in executable.execute(rows)]


@pytest.mark.parametrize("name", ["shard_map_shardy", "shard_map_gspmd"])
@pytest.mark.parametrize("options", [None, CompileOptions(), CompileOptions(num_partitions=8)])
def test_a_mapped_program_runs_on_its_devices(eight, program, name, options):
    executable = eight.compile(program(name), options)
    assert (executable.num_replicas, executable.num_partitions) == (1, 8)
    expected = 2 * ROWS.reshape(8, 2, 4).sum(axis=0)
    for result in run(executable, ROWS.reshape(8, 2, 4)):
        assert np.array_equal(result, expected)
    told = executable.compile_options
    assert told.use_spmd_partitioning is True
    assert told.use_shardy_partitioner is (name == "shard_map_shardy")


SPLITS = {
    "shardy": (
        'sdy.mesh @mesh = <["x"=4, "y"=2]>',
        'sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>',
        'sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>',
    ),
    "gspmd": (
        "",
        'mhlo.sharding = "{devices=[4,2]<=[8]}"',
        'mhlo.sharding = "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"',
    ),
}


@pytest.mark.parametrize(
    ("split", "options", "in_parts"),
    [
        ("shardy", None, True),
        ("gspmd", None, False),
        ("gspmd", CompileOptions(allow_spmd_sharding_propagation_to_output=[True]), True),
    ],
)
def test_outputs_that_are_left_to_the_compiler(eight, split, options, in_parts):
    """`jax.jit(lambda a, b: (tanh(a @ b), a.sum(0)), in_shardings=...)` on a mesh of 4 by 2.

    Shardy also splits the outputs; the other partitioner keeps them whole unless options allow it.
    """
    mesh, of_a, of_b = SPLITS[split]
    text = f"""
    module @jit_f attributes {{mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32}} {{
      {mesh}
      func.func public @main(%a: tensor<8x16xf32> {{{of_a}}}, %b: tensor<16x6xf32> {{{of_b}}})
          -> (tensor<8x6xf32>, tensor<16xf32>) {{
        %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
            : (tensor<8x16xf32>, tensor<16x6xf32>) -> tensor<8x6xf32>
        %1 = stablehlo.tanh %0 : tensor<8x6xf32>
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %2 = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0]
            : (tensor<8x16xf32>, tensor<f32>) -> tensor<16xf32>
        return %1, %2 : tensor<8x6xf32>, tensor<16xf32>
      }}
    }}"""
    random = np.random.default_rng(3)
    a, b = (random.integers(-9, 9, size).astype(np.float32) / 16 for size in ((8, 16), (16, 6)))
    executable = eight.compile(text, options)
    product, total = np.tanh(a @ b), a.sum(axis=0)
    for index, found in enumerate(executable.execute(split_rows(executable.devices, a, b))):
        x, y = divmod(index, 2)
        expected = (product, total)
        if in_parts:
            expected = product[2 * x : 2 * x + 2], total[8 * y : 8 * y + 8]
        assert [part.device for part in found] == [executable.devices[index]] * 2
        np.testing.assert_allclose(found[0].to_numpy(), expected[0], rtol=1e-5, atol=1e-6)
        assert np.array_equal(found[1].to_numpy(), expected[1])


def test_replicas(eight, program):
    text = module(program("all_reduce").read_text(), "mhlo.num_replicas = 8 : i32")
    for result in run(eight.compile(text), ROWS[:8]):
        assert np.array_equal(result, ROWS[:8].sum(axis=0))
    backwards = [[7 - number] for number in range(8)]
    executable = eight.compile(text, CompileOptions(device_ids=backwards))
    assert executable.device_assignment == tuple(map(tuple, backwards))
    pairs = module(program("collective_permute").read_text(), "mhlo.num_replicas = 8 : i32")
    moved = run(eight.compile(pairs), ROWS[:8])
    assert np.array_equal(np.stack(moved), np.vstack([np.zeros((1, 4)), ROWS[:7]]))


#: A portable artifact of version 1.8.0: `a + a` of four elements, split in two by Shardy.
HALVED = base64.b85decode(
    b"O-%1n4O4VsVr*qdOiy2SF)lbRFaQA|2LS~M3jqTU0|OHU2NxS315Ymr0T~Mm6AKR$6AKd)6B7dq6Au>`4+RYm6AK"
    b"Fq3jqTU1qTxs2Li7J5d{eY0|yBO6A=Lk7XbqU7XbwW2?G}a2Ll%Y2O}2&2@w|o3kL-Q8vz3q2@MYe9{~#kAprpi6"
    b"#)YSB@F{79UT`V1sxe38vz0WDFYD)5d#AQ0|^9I1p!eD1px;HMFRl|13(P}1yB(M2Lvet1q%ZQ695MW6$1kW0Rag"
    b"F7Xt$Z0|5mA0O1`23mXL~1r-kw3l9qk5n^>|Y;<XE0CQw{0Cs3>Zvbs?WOZz10BvP+XaHt)Zew3|F#us?WM6hM0C"
    b"Ht?b#iWBb};}g0BvY&Z!T_iZC`L<a&&2QX>V?G0C)g%WO*)gXkl_>X>Ml#ZDDC{000OZ2L%BE1sMYiBPk;*Ed"
)


def test_a_portable_artifact(pair, client):
    executable = pair.compile(HALVED)
    halves = run(executable, ROWS[0].reshape(2, 2))
    assert np.array_equal(np.concatenate(halves), 2 * ROWS[0])
    assert executable.compile_options.use_shardy_partitioner is True
    with pytest.raises(ValueError, match=f"need 2 devices, {NAME} has 1"):
        client.compile(HALVED)
    assert Partitioning.of(Program.of(HALVED[:200])) == (1, 1, False)


def test_an_exported_function():
    assert Partitioning.of(reading.read(SPLIT).program) == (1, 4, True)


def test_an_hlo_proto(client):
    """The counts are in its device assignment, if it has one, and in Shardy's meshes as text."""
    add = client.compile(module(TWICE, ""))
    bare = add.optimized_program().code
    assert Partitioning.of(Program(bare, "hlo")) == (1, 1, False)
    assignment = wire.varint(1, 4) + wire.varint(2, 2)
    placed = bare + wire.length_delimited(15, assignment)
    assert Partitioning.of(Program(placed, "hlo")) == (4, 2, False)
    with pytest.raises(ValueError, match=r"4 replica\(s\) of 2 partition\(s\) need 8 devices"):
        client.compile(Program(placed, "hlo"))
    meshes = wire.length_delimited(1, b"xla.sdy.meshes") + wire.length_delimited(2, b"{}")
    shardy = bare + wire.length_delimited(19, wire.length_delimited(1, meshes))
    assert Partitioning.of(Program(shardy, "hlo")) == (1, 1, True)


TWICE = doubling("4xf32")


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (TWICE, (1, 1)),
        (module(TWICE, "mhlo.num_replicas = 3 : i32, mhlo.num_partitions=5:i32"), (3, 5)),
        (module(TWICE, '"mhlo.num_replicas" = 3 : i32, "mhlo.num_partitions"=5:i32'), (3, 5)),
        (module(TWICE, 'x.y = "mhlo.num_replicas = 3"'), (1, 1)),
        (f"// mhlo.num_replicas = 3 : i32\n{TWICE}", (1, 1)),
        (module(TWICE, 'x.y = "mhlo.num_replicas = 3", mhlo.num_partitions = 2 : i32'), (1, 2)),
        (module(TWICE, 'x.y = "\\\\\\" // ", mhlo.num_replicas = 3 : i32'), (3, 1)),
        (module(TWICE, "x.mhlo.num_replicas_of = 3 : i32"), (1, 1)),
        (
            f'"builtin.module"() ({{\n{TWICE}\n}}) {{mhlo.num_replicas = 7 : i32}} : () -> ()',
            (7, 1),
        ),
    ],
)
def test_what_counts_as_a_count(text, counts):
    assert Partitioning.of(Program.of(text)) == (*counts, False)


LONG = f'stablehlo.constant dense<"0x{"3f" * 5000}"> : tensor<1250xf32>'


@pytest.mark.parametrize(
    ("text", "outline"),
    [
        (TWICE, TWICE),
        (f"{LONG} // one\n{LONG}", f"{LONG} // one\n{LONG}".replace("3f", "")),
        (f'// a comment with "0x\n{LONG}', f'// a comment with "0x\n{LONG}'.replace("3f", "")),
        (f'{TWICE} // that ends with "0x', f'{TWICE} // that ends with "0x'),
        (TWICE.replace("%a", "%é"), TWICE.replace("%a", "%é")),
    ],
)
def test_the_outline_of_a_text(text, outline):
    """The outline is the part of a program that is searched for counts and for some operations."""
    assert Program(text, "mlir").outline == outline.encode()


def test_the_outline_of_bytecode():
    """The outline is its strings, or all of it if it cannot be parsed."""
    words = Program.of(HALVED).outline
    assert b"sdy" in words
    assert b"mhlo.num_partitions" in words
    assert words in HALVED
    assert len(words) < len(HALVED)
    assert Program.of(HALVED[:200]).outline == HALVED[:200]


def test_a_count_behind_a_long_constant():
    text = f'"builtin.module"() ({{{LONG}\n}}) {{mhlo.num_replicas = 7 : i32}} : () -> ()'
    assert Partitioning.of(Program(text, "mlir")) == (7, 1, False)


@pytest.mark.parametrize(
    ("text", "is_shardy"),
    [
        (f'sdy.mesh @mesh = <["x"=2]>\n{TWICE}', True),
        (f'module {{\n  "sdy.mesh"() {{sym_name = "m"}} : () -> ()\n{TWICE}\n}}', True),
        (module(TWICE, 'mhlo.frontend_attributes = {xla.sdy.meshes = "{}"}'), True),
        (f"// not a sdy.mesh\n{TWICE}", False),
    ],
)
def test_who_says_how_it_is_split(text, is_shardy):
    assert Partitioning.of(Program.of(text)).is_shardy is is_shardy


def test_options_that_contradict_the_program(eight):
    text = module(TWICE, "mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 4 : i32")
    for options, message in [
        ({"num_replicas": 4}, "says mhlo.num_replicas = 2, the options say num_replicas=4"),
        ({"num_replicas": 1}, "says mhlo.num_replicas = 2, the options say num_replicas=1"),
        ({"num_partitions": 8}, "says mhlo.num_partitions = 4, the options say num_partitions=8"),
        ({"device_ids": [[1], [0]]}, "says mhlo.num_partitions = 4"),
    ]:
        with pytest.raises(ValueError, match=message):
            eight.compile(text, CompileOptions(**options))


def test_a_program_of_one_runs_as_several(eight):
    """JAX writes 1 into every program that is not split."""
    text = module(TWICE, "mhlo.num_replicas = 1 : i32, mhlo.num_partitions = 1 : i32")
    executable = eight.compile(text, CompileOptions(num_replicas=8))
    assert np.array_equal(np.stack(run(executable, ROWS[:8])), 2 * ROWS[:8])


def test_too_few_devices(client, pair):
    text = module(TWICE, "mhlo.num_partitions = 8 : i32")
    for few in (client, pair):
        with pytest.raises(ValueError, match="need 8 devices") as caught:
            few.compile(text)
        assert str(caught.value) == (
            f"1 replica(s) of 8 partition(s) need 8 devices, {NAME} has {len(few.devices)}\n\n"
            'hint: make the client with options={"cpu_device_count": 8}'
        )
    with pytest.raises(ValueError, match="8 devices, the topology has 1"):
        client.topology.compile(text)


def test_compile_cache_keeps_them_apart(eight, kept):
    text = module(TWICE, "mhlo.num_replicas = 8 : i32")
    assert eight.compile(text, cache=kept).num_replicas == 8
    assert eight.compile(text, CompileOptions(num_replicas=8), cache=kept).num_replicas == 8
    assert len(kept) == 1


def test_what_is_split_by_nobody(pair, program):
    """The hint of the error if a program has no counts, or if options turn partitioning off."""
    text = program("shard_map_shardy").read_text().partition("i32} {")[2]
    bare = "module {" + text
    with pytest.raises(NotFoundError) as caught:
        pair.compile(bare)
    assert caught.value.hint.endswith("does not say how many: give num_partitions")
    with pytest.raises(InvalidArgumentError, match="SPMD partitioning not enabled") as caught:
        pair.compile(TWICE, CompileOptions(num_partitions=2, use_spmd_partitioning=False))
    assert "use_spmd_partitioning, which is the default" in caught.value.hint
    assert len(pair.compile(TWICE, CompileOptions(num_partitions=2)).devices) == 2
