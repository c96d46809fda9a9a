"""Compiling: every form of a program, every kind of junk, and options that would abort a plugin."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pytest
from children import ADD, NAME, adds, in_child, in_threads

import pjrt_hub
from pjrt_hub import CompileOptions, Program
from pjrt_hub.errors import (
    FileFormatError,
    InvalidArgumentError,
    PjrtHubError,
    UnknownError,
)

ONES = np.ones(8, np.float32)
ARTIFACT = Path(__file__).parent / "data" / "add.mlirbc"


@pytest.fixture(scope="session")
def text(program):
    return program("add").read_text()


@pytest.fixture(scope="session")
def proto(executables):
    """The bare HloModuleProto that the compiler made of a + b."""
    return executables("add").optimized_program().code


def test_the_optimized_program_is_one(client, executables):
    add = executables("add")
    program = add.optimized_program()
    assert str(program) == f"<Program hlo, {len(program.code)} bytes, from the optimized main>"
    assert str(pjrt_hub.signature(program)) == str(add.signature)
    assert pjrt_hub.signature(Program.of(program.code)) == add.signature
    assert adds(client.compile(program))


def test_every_form_of_a_program(client, program, text, proto, tmp_path):
    saved = tmp_path / "saved"
    saved.write_bytes(proto)
    forms = {
        "text": text,
        "text as bytes": text.encode(),
        "a bytearray": bytearray(text.encode()),
        "a memoryview": memoryview(text.encode()),
        "after empty lines": "\n\n\n" + text,
        "a path": program("add"),
        "the name of a file": str(program("add")),
        "a proto": proto,
        "a proto in a file": saved,
        "a Program": Program.of(text),
    }
    assert [form for form, source in forms.items() if not adds(client.compile(source))] == []
    assert Program.of(proto).format == "hlo"
    assert Program.of(text).format == "mlir"


def test_bytecode(client):
    """Other software saved programs/add.mlir as a portable artifact of StableHLO 1.0.0."""
    assert Program.of(ARTIFACT).format == "mlir"
    assert adds(client.compile(ARTIFACT))
    with pytest.raises(UnknownError):
        client.compile(ARTIFACT.read_bytes()[:-100])


JUNK = random.Random(0).randbytes(1 << 20)


@pytest.mark.parametrize(
    ("junk", "message"),
    [
        (b"", "the program is empty"),
        ("", "the program is empty"),
        (" \n\t ", "the program is empty"),
        (b"\0" * 1000, "no known format: they begin 00 00"),
        (JUNK[:64], "no known format"),
        (JUNK, "no known format"),
        (b"\x7fELF" + JUNK[:100], "no known format: they begin 7f 45 4c 46"),
        (b"PK\3\4" + JUNK[:100], "no known format"),
        ("HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }", "HLO text"),
        ("hello\nworld", "text, but not MLIR: it begins 'hello"),
        ("<html>{}</html>", "text, but not MLIR"),
        ("x\n" * (1 << 19), "text, but not MLIR"),
        ("/absent/program.mlir", "cannot be read: No such file"),
        ("a\0b", "cannot be read: embedded null byte"),
        ("a" * (1 << 20), r"'a{200}\.\.\.' cannot be read: File name too long"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_junk_is_named(client, junk, message):
    with pytest.raises(FileFormatError, match=message) as caught:
        client.compile(junk)
    assert len(str(caught.value)) < 1000
    assert "give StableHLO" in caught.value.hint


def test_a_directory_is_no_program(client, tmp_path):
    with pytest.raises(FileFormatError, match="Is a directory") as caught:
        client.compile(tmp_path)
    assert caught.value.path == str(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("@main", "@first"), "`main` function"),
        (lambda t: t.replace("func.func @main", "func.func private @main"), "`main` function"),
        (lambda t: "module {}", "`main` function"),
        (lambda t: t + t, "redefinition of symbol"),
        (lambda t: t[: len(t) // 2], "error:"),
        (lambda t: t.replace("%b:", "%c:"), "undeclared"),
        (lambda t: t.replace("%b: tensor<8xf32>", "%b: tensor<9xf32>"), "different type"),
        (lambda t: t.replace("stablehlo.add", "stablehlo.plus"), "plus"),
        (lambda t: t.replace("stablehlo.add", "foo.add"), "foo"),
        (lambda t: "module {" + "x" * (1 << 20), "custom op"),
        (lambda t: b"ML\xefR", "error:"),
        (lambda t: b"ML\xefR" + JUNK[:5000], "error:"),
    ],
)
def test_what_the_compiler_says_is_passed_on(client, text, change, message):
    changed = change(text)
    with pytest.raises(UnknownError, match=message) as caught:
        client.compile(changed)
    assert caught.value.hint
    assert isinstance(changed, bytes) or "as text" not in caught.value.hint
    assert caught.value.function == "PJRT_Client_Compile"


class Module:
    """A stand-in for the module class of MLIR's bindings, which does not support comparison."""

    def __init__(self, code):
        self.code = code

    @property
    def operation(self):
        return self

    def write_bytecode(self, file):
        file.write(self.code)

    def __eq__(self, other):
        raise TypeError("incompatible function arguments")

    __hash__ = None


def test_a_module_of_mlirs_bindings(client, text):
    result = client.compile(Module(text.encode()))(ONES, ONES)
    assert result.tolist() == [2.0] * 8


@pytest.mark.parametrize("kind", [str, str.encode, lambda text: bytearray(text.encode())])
def test_a_program_by_its_parts(client, text, kind):
    program = Program(kind(text), "mlir")
    assert program.code == text.encode()
    assert client.compile(program)(ONES, ONES).tolist() == [2.0] * 8


@pytest.mark.parametrize(
    "junk", [None, 5, 1.5, [], {}, object(), Module, lambda: None, np.zeros(3), ("a", "b")]
)
def test_junk_is_no_program(client, junk):
    with pytest.raises(TypeError, match="the program is of type"):
        client.compile(junk)
    with pytest.raises(TypeError, match="not text or bytes"):
        Program(junk, "mlir")
    with pytest.raises(TypeError, match="the format is"):
        Program(b"", junk)


def test_an_exported_function_is_told_apart(client, tmp_path):
    (tmp_path / "f.jaxexport").write_bytes(b"\x0c\0\0\0junk")
    with pytest.raises(FileFormatError, match="no known format") as caught:
        client.compile(tmp_path / "f.jaxexport")
    assert "load_exported" in caught.value.hint


def test_an_exported_function_is_told_by_its_content(client, tmp_path):
    path = Path(__file__).parents[1] / "exported" / "artifacts" / "add.jaxexport"
    (tmp_path / "f.bin").write_bytes(path.read_bytes())
    for source in (path, path.read_bytes(), tmp_path / "f.bin", path.read_bytes()[:900]):
        for compile_ in (client.compile, client.topology.compile):
            with pytest.raises(FileFormatError, match=r"as what jax\.export serializes") as caught:
                compile_(source)
            assert "load_exported(file) and `pjrt-hub run`" in caught.value.hint


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (b"\0", "text that has a zero byte at "),
        (b"// \xe9", "text that is not UTF-8 from byte "),
    ],
)
def test_text_is_not_told_to_be_text(client, text, tail, words):
    with pytest.raises(FileFormatError, match=words) as caught:
        client.compile(text.encode() + tail)
    assert caught.value.hint == "write it as UTF-8 without zero bytes"


@in_child
def test_damaged_protos_are_errors(client):
    """Each proto has changed bytes or is cut short."""
    proto, chance, failed = client.compile(ADD).optimized_program().code, random.Random(7), 0
    for _ in range(300):
        damaged = bytearray(proto)
        damaged[chance.randrange(len(proto))] = chance.randrange(256)
        damaged = damaged[: chance.choice([len(proto), chance.randrange(1, len(proto))])]
        try:
            client.compile(bytes(damaged))
        except (PjrtHubError, ValueError):  # some ask for more devices than exist
            failed += 1
    assert failed > 150


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device_ids": [[7]]}, "device_id 7"),
        ({"flags": {"xla_absent": True}}, "xla_absent"),
        ({"flags": {"": True}}, "No such compile option"),
        ({"flags": {"xla_cpu_enable_fast_math": 3}}, "not a valid bool"),
        ({"flags": {"xla_cpu_enable_fast_math": "perhaps"}}, "not a valid bool"),
        ({"flags": {"xla_backend_optimization_level": "high"}}, "xla_backend_optimization_level"),
    ],
)
def test_options_that_the_plugin_refuses(pair, text, options, message):
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        pair.compile(text, CompileOptions(**options))
    assert bool(caught.value.hint) == ("No such compile option" in str(caught.value))


def test_a_flag_has_an_effect(client):
    """`x / rsqrt(x)` compiles to different code if fast math allows an estimate."""
    source = """func.func @main(%a: tensor<64xf32>) -> tensor<64xf32> {
      %0 = stablehlo.rsqrt %a : tensor<64xf32>
      %1 = stablehlo.divide %a, %0 : tensor<64xf32>
      return %1 : tensor<64xf32>
    }"""
    flags = {"xla_cpu_enable_fast_math": True, "xla_cpu_fast_math_honor_division": False}
    plain, fast = (client.compile(source, CompileOptions(flags=f)) for f in ({}, flags))
    assert plain.serialize() != fast.serialize()


def test_a_chosen_device(pair, text):
    executable = pair.compile(text, CompileOptions(device_ids=[[1]]))
    assert executable.devices == (pair.devices[1],)
    here, there = (pair.buffer_from_host(ONES, device=device) for device in pair.devices)
    result = executable(there, there)
    assert result.device is pair.devices[1]
    assert result.tolist() == [2.0] * 8
    with pytest.raises(ValueError, match=rf"(?s)on {NAME}:0, the .* on {NAME}:1.*copy_to_device\("):
        executable(there, here)


def test_compiling_in_threads_while_another_runs(client, text, executables, vector):
    stop, failures, compiled = threading.Event(), [], []

    def run():
        while not stop.is_set():
            if executables("add")(vector(), vector(1)).tolist() != [*range(1, 16, 2)]:
                failures.append("a wrong result")

    def compile_it():
        compiled.extend(adds(client.compile(text)) for _ in range(5))

    runner = threading.Thread(target=run)
    runner.start()
    in_threads(*[compile_it] * 4)
    stop.set()
    runner.join()
    assert failures == []
    assert compiled == [True] * 20


def test_what_an_executable_tells(executables):
    executable = executables("matmul_64")
    assert executable.name == "main"
    assert str(executable.signature) == "(f32[64,64], f32[64,64]) -> (f32[64,64])"
    assert repr(executable) == (
        f"<LoadedExecutable main (f32[64,64], f32[64,64]) -> (f32[64,64]) on {NAME}:0>"
    )
    assert executable.fingerprint == executables("matmul_64").fingerprint != ""
    assert executable.fingerprint != executables("add").fingerprint
