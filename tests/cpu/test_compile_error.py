"""Errors of programs that the compiler refuses, or that would never end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from texts import custom_call, identity

from pjrt_hub import CompileOptions
from pjrt_hub.errors import (
    FileFormatError,
    InvalidArgumentError,
    NotFoundError,
    PjrtError,
    PluginInternalError,
    UnimplementedError,
    UnknownError,
)
from pjrt_hub.running.capi import wire
from pjrt_hub.running.program import compile_error, hlo
from pjrt_hub.running.program.program import Program

TOKEN = "%t = stablehlo.create_token : !stablehlo.token"


def function(body: str, name: str = "main") -> str:
    return (
        f"func.func @{name}(%a: tensor<4xf32>) -> tensor<4xf32> {{\n"
        f"{body}\nreturn %r : tensor<4xf32>\n}}"
    )


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (custom_call("absent"), NotFoundError, "plugin.ffi.register('absent', function)"),
        (custom_call("absent", version=1), NotFoundError, "`api_version = 4 : i32`"),
        (custom_call("lapack_absent_ffi"), NotFoundError, "pip install 'pjrt-hub[lapack]'"),
        (custom_call("lapack_spotrf", version=2), NotFoundError, "and newer call: export it again"),
        (custom_call("lapack_spotrf", version=1), NotFoundError, "named lapack_..._ffi"),
        (function("%r = stablehlo.newer %a : tensor<4xf32>"), UnknownError,
         "reads StableHLO up to {stablehlo}: stablehlo.newer is misspelled or newer"),
        (function('%r = "vhlo.newer_v1"(%a) : (tensor<4xf32>) -> tensor<4xf32>'), UnknownError,
         "reads StableHLO up to {stablehlo}: vhlo.newer_v1 is misspelled or newer"),
        (b"ML\xefR" + bytes([51] * 60), UnknownError, "portable artifact"),
        (function("%r = tosa.add %a, %a : tensor<4xf32>"), UnknownError, "the dialect 'tosa'"),
        (function("%r = arith.addf %a, %a : tensor<4xf32>"), UnknownError, "the dialect 'arith'"),
        (function("%r = stablehlo.tanh %a : tensor<4xf32>", "run"), UnknownError,
         "`func.func @main`"),
        (function("%r = stablehlo.tanh %a : tensor<5xf32>"), UnknownError,
         "about StableHLO's version follow every error"),
    ],
)  # fmt: skip
def test_the_hint_of_a_refused_program(client, text, kind, words):
    with pytest.raises(kind) as refusal:
        client.compile(text)
    newest = client.plugin.attributes["stablehlo_current_version"]
    assert words.replace("{stablehlo}", ".".join(map(str, newest))) in refusal.value.hint


@pytest.mark.parametrize(
    "said",
    [
        "loc(\"-\":2:1): error: Dialect `func' not found for custom op 'func.func'",
        "loc(\"-\":0:0): error: dialect 'func' is unknown. If this is intended, please call",
        "error: failed to deserialize portable artifact using StableHLO_v1.17.0",
    ],
)
@pytest.mark.parametrize("code", [function("%r = stablehlo.tanh %a : tensor<4xf32>"), b"ML\xefR"])
def test_the_hint_of_a_plugin_that_reads_portable_artifacts_alone(said, code):
    hint = compile_error.hint(PluginInternalError(said), Program.of(code))
    assert hint.startswith("the plugin reads portable artifacts alone, and the program is none: ")
    assert "`stablehlo.serialize_portable_artifact_str(code, version)`" in hint


def test_a_malformed_artifact_is_not_called_none():
    said = "error: failed to deserialize portable artifact using StableHLO_v1.17.0"
    artifact = Program.of(b"ML\xefR\x0dStableHLO_v1.9.0\0")
    assert compile_error.hint(PluginInternalError(said), artifact) == ""


def test_an_error_that_nobody_explains_keeps_its_own_words(client):
    with pytest.raises(InvalidArgumentError, match="Unbounded dynamism") as refusal:
        client.compile(identity("?xf32"))
    assert refusal.value.hint == ""


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--xla_cpu_enable_fast_math", "without dashes: 'xla_cpu_enable_fast_math'"),
        ("xla_absent", "XLA's flags by name"),
    ],
)
def test_the_hint_of_a_flag_that_is_not_there(client, flag, words):
    with pytest.raises(PjrtError, match="No such compile option") as refusal:
        client.compile(function("%r = stablehlo.tanh %a : tensor<4xf32>"),
                       CompileOptions(flags={flag: True}))  # fmt: skip
    assert words in refusal.value.hint


@pytest.mark.parametrize("path", ["saved.bin", Path("saved.bin")])
def test_a_path_is_not_the_bytes_of_an_executable(client, path):
    with pytest.raises(TypeError, match=r"'saved.bin' is not the bytes .*\n\nhint: .*read_bytes"):
        client.load(path)


def test_a_type_that_is_only_too_large_for_this_machine_is_compiled(client):
    large = "tensor<1000000x1000000x1000xf32>"
    client.compile(f"func.func @main() -> {large} {{\n%r = stablehlo.iota dim = 0 : {large}\n"
                   f"return %r : {large}\n}}")  # fmt: skip


@pytest.mark.parametrize(
    ("feed", "body"),
    [
        ("infeed", '%r, %u = "stablehlo.infeed"(%t) {infeed_config = ""} : '
         "(!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)"),
        ("outfeed", '%u = "stablehlo.outfeed"(%a, %t) {outfeed_config = ""} : '
         "(tensor<4xf32>, !stablehlo.token) -> !stablehlo.token\n"
         "%r = stablehlo.tanh %a : tensor<4xf32>"),
    ],
)  # fmt: skip
def test_a_program_that_nobody_could_feed_is_refused(client, feed, body):
    with pytest.raises(UnimplementedError, match=f"an {feed}, which would wait for ever"):
        client.compile(function(f"{TOKEN}\n{body}"))


def test_a_name_is_no_infeed(client):
    text = function('%r = stablehlo.add %a, %a : tensor<4xf32> loc("infeed")')
    buffer = client.buffer_from_host(np.ones(4, np.float32))
    assert client.compile(text)(buffer).tolist() == [2.0] * 4


FLOATS = "tensor<4xf32>"
#: Shapes as serialized ShapeProto messages of XLA.
ARRAY = wire.varint(2, 11) + wire.pack(3, [4]) + wire.length_delimited(5, wire.pack(1, [0]))
PAIR = wire.varint(2, 13) + wire.length_delimited(4, ARRAY) * 2


class Element(hlo.Instruction):
    """An element of a tuple, with its index in its name."""

    def serialize(self, place):
        return super().serialize(place) + wire.varint(13, int(self.name[1:]))


TAKES_PAIR, TAKES_ARRAY = (hlo.Instruction("p", "parameter", each) for each in (PAIR, ARRAY))
FROM_PAIR = [TAKES_PAIR, *(Element(each, "get-tuple-element", ARRAY, [0]) for each in ("e0", "e1"))]
FROM_PAIR = hlo.module("m", [*FROM_PAIR, hlo.Instruction("r", "subtract", ARRAY, [1, 2])])
FROM_PAIR_AND_ARRAY = [TAKES_PAIR, TAKES_ARRAY, Element("e0", "get-tuple-element", ARRAY, [0])]
FROM_PAIR_AND_ARRAY += [hlo.Instruction("r", "subtract", ARRAY, [1, 2])]
TUPLE = f"tuple<{FLOATS}, {FLOATS}>"
TEXT_OF_PAIR = f"""func.func @main(%a: {TUPLE}) -> {FLOATS} {{
  %0 = stablehlo.get_tuple_element %a[0] : ({TUPLE}) -> {FLOATS}
  return %0 : {FLOATS}
}}"""


@pytest.mark.parametrize("program", [FROM_PAIR, TEXT_OF_PAIR], ids=["proto", "text"])
def test_a_program_that_takes_a_tuple_is_refused_when_it_is_loaded(client, program):
    with pytest.raises(
        TypeError, match=r"takes a tuple.*\n\nhint: .*parameter_is_tupled_arguments"
    ):
        client.compile(program)


def test_a_plugin_makes_the_tuple_of_the_arguments(client):
    executable = client.compile(FROM_PAIR, CompileOptions(parameter_is_tupled_arguments=True))
    a, b = (client.buffer_from_host([float(n)] * 4) for n in (5, 3))
    assert executable(a, b).tolist() == [2.0] * 4
    again = client.load(executable.serialize())
    assert again(a, b).tolist() == [2.0] * 4


def test_a_tuple_beside_other_parameters_is_refused(client):
    """XLA would abort the process."""
    with pytest.raises(FileFormatError, match="a tuple beside other parameters"):
        client.compile(hlo.module("m", FROM_PAIR_AND_ARRAY))
