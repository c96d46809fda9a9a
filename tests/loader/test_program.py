"""Programs in files: what `pjrt-hub export` writes, and how loader/pjrt_program.c runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from programs import api_folder

import pjrt_hub
from pjrt_hub.cli.__main__ import run as command_line
from pjrt_hub.errors import NotRunnableError
from pjrt_hub.frameworks.exported import reading, torch_file
from pjrt_hub.frameworks.exported.aval import Aval
from pjrt_hub.frameworks.exported.function import ExportedFunction, TemplateProgram, Weight
from pjrt_hub.frameworks.exported.program_file import program_file
from pjrt_hub.frameworks.exported.tree import DICT, LEAF, TUPLE, Tree
from pjrt_hub.running.program.bytecode_locations import without_locations

ROOT = Path(__file__).parents[2]
LOADER, HERE = ROOT / "loader", Path(__file__).parent
PROGRAMS = ROOT / "tests" / "programs"
ARTIFACTS = ROOT / "tests" / "exported" / "artifacts"
C, CPP = ("cc", "-std=c11"), ("c++", "-std=c++17")
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-g", "-O1", "-pthread")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
#: Plugins of XLA write errors to stderr, too, unless this forbids it.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
#: A plugin keeps memory until the process ends, and frees some with another C++ library's operator.
SANITIZED = {"ASAN_OPTIONS": "detect_leaks=0:alloc_dealloc_mismatch=0"}
HEAD, ROW = 24, 24  # The sizes of a file's head, and of a row of its table.

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="there is no cc"
)


def build(folder, compiler, *sources, flags=(), header=None):
    """Compile sources beside pjrt_program.c, against the C API's header in a folder."""
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"there is no {compiler[0]}")
    api = ["-DPJRT_PROGRAM_API=<pjrt_api.h>", f"-I{header}"] if header else [f"-I{api_folder()}"]
    common = [*WARNINGS, *flags, f"-I{LOADER}", *api]
    c = ["cc", "-std=c11", *common, "-Wpedantic", "-c", "-fPIC", "-o", folder / "program.o"]
    subprocess.run([*c, LOADER / "pjrt_program.c"], check=True)
    out = folder / "built"
    subprocess.run(
        [*compiler, *common, *sources, folder / "program.o", "-o", out, "-ldl"], check=True
    )
    return out


@pytest.fixture(scope="module")
def client():
    with pjrt_hub.client("cpu", offline=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def driver(tmp_path_factory, header_folder):
    folder = tmp_path_factory.mktemp("driver")
    source = HERE / "program_driver.c"
    return build(folder, C, source, flags=SANITIZERS, header=header_folder)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    source = HERE / "program_reader.c"
    return build(tmp_path_factory.mktemp("reader"), C, source, flags=SANITIZERS)


@pytest.fixture
def drive(driver, library, tmp_path):
    """`drive(file, *arrays)` runs a program's file and returns the bytes of its results."""

    def drive(file, *arrays, way="arrays"):
        paths = []
        for number, array in enumerate(arrays):
            paths.append(tmp_path / f"given_{number}")
            paths[-1].write_bytes(np.asarray(array).tobytes())
        (tmp_path / "program").write_bytes(file)
        (tmp_path / "made").mkdir(exist_ok=True)
        line = [driver, library, tmp_path / "program", tmp_path / "made", way, *paths]
        done = subprocess.run(
            line, env=os.environ | SANITIZED | QUIET, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise RuntimeError(f"{done.returncode}: {done.stderr}")
        made = sorted((tmp_path / "made").iterdir(), key=lambda path: int(path.stem))
        return [path.read_bytes() for path in made]

    return drive


def exported(source, **options):
    program = pjrt_hub.Program.of(source)
    return program_file(program, pjrt_hub.CompileOptions(**options))


def hub(client, source, *arrays):
    """The bytes of the results that pjrt-hub gives for the same program."""
    executable = client.compile(source)
    buffers = [client.buffer_from_host(np.asarray(each)) for each in arrays]
    return [each.to_numpy().tobytes() for each in executable(*buffers, simplify=False)]


def example(signature):
    """An array for each parameter, with small numbers of either sign."""
    for number, slot in enumerate(signature.parameters):
        count = int(np.prod(slot.shape))
        values = (np.arange(count) + number) % 7 - 3
        yield (
            (values if slot.element_type != "ui8" else abs(values))
            .reshape(slot.shape)
            .astype(slot.dtype)
        )


ALONE = ("column_major", "donate", "mlp", "no_args", "scalar", "thirty_to_thirty", "two_outputs")


@pytest.mark.parametrize("way", ["arrays", "buffers", "threads"])
@pytest.mark.parametrize("name", ALONE)
def test_values_are_those_of_pjrt_hub(client, drive, name, way):
    source = PROGRAMS / f"{name}.mlir"
    arrays = list(example(pjrt_hub.signature(source)))
    assert drive(exported(source), *arrays, way=way) == hub(client, source, *arrays)


@pytest.mark.parametrize("way", ["arrays", "buffers"])
@pytest.mark.parametrize(
    "kind",
    ["i1", "i8", "ui8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "complex<f32>", "i4"],
)
def test_each_type(client, drive, kind, way):
    """Of scalars, of arrays of each rank, and of one without elements."""
    types = [f"tensor<{dims}{kind}>" for dims in ("", "5x", "2x3x", "0x3x")]
    names = ", ".join(f"%r{n}" for n in range(len(types)))
    takes = ", ".join(f"%a{n}: {each}, %b{n}: {each}" for n, each in enumerate(types))
    sums = "".join(f"  %r{n} = stablehlo.add %a{n}, %b{n} : {t}\n" for n, t in enumerate(types))
    given = ", ".join(types)
    source = f"func.func @main({takes}) -> ({given}) {{\n{sums}  return {names} : {given}\n}}"
    arrays = list(example(pjrt_hub.signature(source)))
    made = drive(exported(source), *arrays, way=way)
    assert made == hub(client, source, *arrays)
    if kind in ("i32", "f64", "bf16"):
        sums = [(a + b).tobytes() for a, b in zip(arrays[::2], arrays[1::2], strict=True)]
        assert made == sums


@pytest.mark.parametrize("kind", ["i4", "ui4", "i2", "ui2"])
def test_the_high_bits_of_small_integers_do_not_count(drive, kind):
    """A host may send any, and must not rely on those that it gets."""
    source = f"""func.func @main(%a: tensor<16x{kind}>) -> tensor<16x{kind}> {{
  %r = stablehlo.add %a, %a : tensor<16x{kind}>
  return %r : tensor<16x{kind}>
}}"""
    mask = 15 if "4" in kind else 3
    numbers = np.arange(16, dtype=np.uint8) & mask
    for high in (0, 0xFF & ~mask, 0x50 & ~mask):
        [made] = drive(exported(source), numbers | high)
        found = np.frombuffer(made, np.uint8) & mask
        assert found.tolist() == (2 * numbers & mask).tolist()


@pytest.mark.parametrize("way", ["arrays", "buffers"])
def test_a_layout_of_three_dimensions(drive, way):
    kind = "tensor<2x3x4xi32>"
    source = f"""func.func @main(%a: {kind}) -> ({kind} {{mhlo.layout_mode = "{{1,0,2}}"}}) {{
  %r = stablehlo.add %a, %a : {kind}
  return %r : {kind}
}}"""
    given = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    [made] = drive(exported(source), given, way=way)
    assert np.frombuffer(made, np.int32).tolist() == list(range(0, 48, 2))


def test_a_handler_by_name(drive):
    source = """func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %r = stablehlo.custom_call @loader_triple(%a) {api_version = 4 : i32, backend_config = {}}
      : (tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}"""
    given = np.arange(8, dtype=np.float32)
    [made] = drive(exported(source), given, way="handler")
    assert np.frombuffer(made, np.float32).tolist() == [0, 3, 6, 9, 12, 15, 18, 21]


def test_an_exported_function(client, drive, reader, tmp_path):
    function = reading.read(ARTIFACTS / "nested.jaxexport")
    file = program_file(function, pjrt_hub.CompileOptions())
    (tmp_path / "file").write_bytes(file)
    [line] = read(reader, tmp_path / "file")
    names = [each.partition("=")[0] for each in line.split()[1:]]
    assert names == [function.input_paths[each] for each in function.arguments]
    signature = pjrt_hub.signature(function.program)
    arrays = list(example(signature))
    assert drive(file, *arrays) == hub(client, function.program, *arrays)


def test_one_of_several_platforms(client, drive):
    function = reading.read(ARTIFACTS / "platforms.jaxexport")
    with pytest.raises(NotRunnableError, match="exported for cuda, cpu, tpu") as refusal:
        program_file(function, pjrt_hub.CompileOptions())
    assert "--platform" in refusal.value.hint
    with pytest.raises(NotRunnableError, match="cannot be run on metal"):
        program_file(function, pjrt_hub.CompileOptions(), "metal")
    file = program_file(function, pjrt_hub.CompileOptions(), "cpu")
    chosen = function.for_platform(function.platforms.index("cpu")).program
    arrays = list(example(pjrt_hub.signature(chosen)))
    assert drive(file, *arrays) == hub(client, chosen, *arrays)


def test_what_cannot_be_in_a_file():
    options = pjrt_hub.CompileOptions(num_partitions=2)
    source = pjrt_hub.Program.of(PROGRAMS / "scalar.mlir")
    with pytest.raises(NotRunnableError, match="for one device"):
        program_file(source, options)
    split = reading.read(ARTIFACTS / "split.jaxexport")
    with pytest.raises(NotRunnableError, match="devices"):
        program_file(split, pjrt_hub.CompileOptions())


def test_the_command(tmp_path, capsys):
    out = tmp_path / "scalar.pjrt"
    assert command_line(["export", str(PROGRAMS / "scalar.mlir"), "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_bytes() == exported(PROGRAMS / "scalar.mlir")
    assert command_line(["export", str(PROGRAMS / "scalar.mlir"), "-o", str(out), "--json"]) == 0
    told = {"path": str(out), "nbytes": out.stat().st_size}
    assert json.loads(capsys.readouterr().out) == told
    assert command_line(["run", str(out)]) != 0
    assert "hint: loader/pjrt_program.h reads it" in capsys.readouterr().err


@pytest.fixture
def export(tmp_path, capsys):
    """`export(source, *words)` runs the command, and gives its status, its errors and the file."""

    def export(source, *words):
        out = tmp_path / "exported.pjrt"
        status = command_line(["export", str(source), "-o", str(out), *words])
        return status, capsys.readouterr().err, out.read_bytes() if status == 0 else None

    return export


@pytest.mark.slow  # It needs jaxlib.
@pytest.mark.parametrize("name", ["symbolic", "symbolic-0.6.2"])
def test_a_size_of_what_jax_exported(export, drive, name):
    status, err, file = export(ARTIFACTS / f"{name}.jaxexport", "--dimension", "b=2")
    assert (status, err) == (0, "")
    x = np.arange(6, dtype=np.float32)
    value, twice = (np.frombuffer(each, np.float32) for each in drive(file, x))
    assert (value.tolist(), twice.tolist()) == ((2 * x + 2).tolist(), [*x, *x])


#: What `pjrt_hub.torch.export` makes of a mean over a dynamic size.
TEMPLATE = """func.func @main(%x: tensor<«b»x3xf32>) -> tensor<3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %part = stablehlo.constant dense<«1.0/=b»> : tensor<3xf32>
  %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<«b»x3xf32>, tensor<f32>) -> tensor<3xf32>
  %mean = stablehlo.multiply %sum, %part : tensor<3xf32>
  return %mean : tensor<3xf32>
}"""


@pytest.fixture
def torch_model(tmp_path):
    """What torch_file writes for a module of one array, with these weights beside it."""

    def torch_model(*weights):
        function = ExportedFunction(
            origin="Mean",
            exporter="torch.export",
            function_name="Mean",
            program=TemplateProgram(TEMPLATE, "mlir"),
            in_tree=Tree(TUPLE, (Tree(TUPLE, (Tree(LEAF),)), Tree(DICT))),
            inputs=(Aval("f32", ("b", 3)),),
            out_tree=Tree(LEAF),
            outputs=(Aval("f32", (3,)),),
            arguments=(0, *weights),
            ranges={"b": (1, 16)},
        )
        torch_file.write(function, tmp_path / "model.pjrt")
        return tmp_path / "model.pjrt"

    return torch_model


@pytest.mark.parametrize("rows", [2, 16])
def test_a_size_of_what_torch_exported(export, drive, torch_model, rows):
    status, err, file = export(torch_model(), "--dimension", f"b={rows}")
    assert (status, err) == (0, "")
    x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
    [mean] = drive(file, x)
    assert np.frombuffer(mean, np.float32).tolist() == x.mean(0).tolist()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dimension", "b=17"], "b is 17; {path} was exported for 1 to 16"),
        ([], "nothing tells the size of b"),
    ],
)
def test_a_size_that_is_missing_or_out_of_range(export, torch_model, words, message):
    path = torch_model()
    status, err, _ = export(path, *words)
    assert status == 2
    assert message.format(path=path) in " ".join(err.split())


def test_weights_beside_a_program_are_refused(export, torch_model, tmp_path):
    weight = Weight(tmp_path / "model.safetensors", "layer.weight", Aval("f32", (3,)))
    status, err, _ = export(torch_model(weight), "--dimension", "b=2")
    assert status == 1
    assert "weights beside its program, which this file cannot hold" in " ".join(err.split())


def test_no_file_of_this_machine_is_named(client):
    function = reading.read(ARTIFACTS / "nested.jaxexport")
    code = function.program.code
    assert b"make_artifacts.py" in code
    stripped = without_locations(code)
    assert b"make_artifacts.py" not in stripped
    assert without_locations(stripped) == stripped
    arrays = list(example(pjrt_hub.signature(function.program)))
    program = pjrt_hub.Program(stripped, "mlir")
    assert hub(client, program, *arrays) == hub(client, function.program, *arrays)
    assert without_locations(b"ML\xefR damaged") == b"ML\xefR damaged"


def read(reader, *paths):
    done = subprocess.run([reader, *paths], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def changed(file, at, form, value):
    copy = bytearray(file)
    struct.pack_into(form, copy, at, value)
    return bytes(copy)


def section(file, kind):
    """Where a section's row is, and where the section is."""
    row = HEAD + (kind - 1) * ROW
    return row, struct.unpack_from("<Q", file, row + 8)[0]


def wrong_files():
    """Yield damaged files, each with the number of the rule that it breaks."""
    file = exported(PROGRAMS / "mlp.mlir")
    put = partial(changed, file)
    parameters, at = section(file, 4)
    yield from ((b"", 1), (b"PJRT", 1), (b"x" * 100, 1), (file[:20], 1), (file[:-8], 1))
    yield from ((file + b"\0" * 8, 1), (put(12, "<I", 4), 1), (put(12, "<I", 2**32 - 1), 1))
    yield put(16, "<Q", 2**64 - 1), 1
    yield changed(put(12, "<I", 64)[: HEAD + ROW], 16, "<Q", HEAD + ROW), 2
    yield put(parameters + 4, "<I", 1), 2
    yield put(parameters + 8, "<Q", 0), 3
    yield put(parameters + 8, "<Q", at + 1), 3
    yield put(parameters + 8, "<Q", 2**64 - 8), 3
    yield put(parameters + 16, "<Q", 2**64 - 1), 3
    yield put(parameters + 8, "<Q", section(file, 2)[1]), 3
    yield put(parameters, "<I", 1), 4
    yield put(parameters, "<I", 99), 4
    yield put(section(file, 1)[0] + 16, "<Q", 0), 5
    yield put(section(file, 2)[0] + 16, "<Q", 0), 6
    yield from ((put(at, "<I", 2**32 - 1), 8), (put(at, "<I", 4), 8), (put(at, "<I", 6), 8))
    yield from ((put(at + 8, "<I", 0), 9), (put(at + 8, "<I", 23), 9), (put(at + 8, "<I", 999), 9))
    yield from ((put(at + 12, "<I", 2**32 - 1), 9), (put(at + 16, "<I", 2**32 - 1), 9))
    yield put(at + 24, "<q", -1), 9
    yield put(at + 24, "<q", 2**62), 10


def test_wrong_files_are_refused(reader, tmp_path):
    files = list(wrong_files())
    paths = [tmp_path / str(number) for number in range(len(files))]
    for path, (content, _) in zip(paths, files, strict=True):
        path.write_bytes(content)
    lines = read(reader, *paths)
    found = [line.partition("(rule ")[2].partition(" ")[0] for line in lines]
    assert found == [str(rule) for _, rule in files]


def test_other_versions_folders_and_missing_files(reader, tmp_path):
    (tmp_path / "newer").write_bytes(changed(exported(PROGRAMS / "mlp.mlir"), 8, "<I", 2))
    newer, folder, missing = read(reader, tmp_path / "newer", tmp_path, tmp_path / "missing")
    assert newer == f"{tmp_path / 'newer'} cannot be read: it has version 2, not 1"
    assert folder == f"{tmp_path} cannot be read: Is a directory"
    assert missing == f"{tmp_path / 'missing'} cannot be read: No such file or directory"


def test_unknown_sections_are_passed_over(reader, tmp_path):
    file = exported(PROGRAMS / "scalar.mlir")
    table = HEAD + 5 * ROW
    moved = bytearray(file[:table])
    for kind in range(1, 6):
        row, at = section(file, kind)
        struct.pack_into("<Q", moved, row + 8, at + ROW)
    struct.pack_into("<IQ", moved, 12, 6, len(file) + ROW)
    more = struct.pack("<IIQQ", 77, 0, len(file) + ROW, 0)
    (tmp_path / "more").write_bytes(moved + more + file[table:])
    assert read(reader, tmp_path / "more") == ["reads: =11/0/4"]


def test_damaged_files_at_random(reader, tmp_path):
    (tmp_path / "file").write_bytes(exported(PROGRAMS / "mlp.mlir"))
    assert read(reader, "--fuzz", "100000", tmp_path / "file") == ["some of each"]


def test_a_signature_of_another_program(drive):
    file = exported(PROGRAMS / "donate.mlir")
    eight, four = np.ones(8, np.float32), np.ones(4, np.float32)
    results = section(file, 5)[1] + 8 + 16
    with pytest.raises(RuntimeError, match=r"1: result 0 \(\) of the compiled program is not"):
        drive(changed(file, results, "<q", 4), eight, eight)
    with pytest.raises(RuntimeError, match=r"1: result 0 \(\) of the compiled program is not"):
        drive(changed(file, results - 16, "<I", 4), eight, eight)
    parameters = section(file, 4)[1] + 8 + 16
    with pytest.raises(RuntimeError, match="1: the plugin cannot run the program"):
        drive(changed(file, parameters, "<q", 4), four, eight)


def test_a_program_that_does_not_compile(drive):
    file = exported(PROGRAMS / "scalar.mlir").replace(b"stablehlo.add", b"stablehlo.xdd")
    with pytest.raises(RuntimeError, match="1: the plugin cannot compile the program"):
        drive(file, np.float32(1))


EXAMPLES = LOADER / "examples"


@pytest.fixture(params=["run.c", "run.cpp", "run.rs", "run.f90", "run.py"])
def host_program(request, objects, tmp_path):
    """The command line of a host in one language, but for its arguments."""
    source, out = EXAMPLES / request.param, tmp_path / "host"
    match source.suffix:
        case ".c":
            line = [*C, *WARNINGS, f"-I{LOADER}", source, *objects, "-o", out, "-ldl"]
        case ".cpp":
            line = [*CPP, *WARNINGS, f"-I{LOADER}", source, *objects, "-o", out, "-ldl"]
        case ".rs":
            linked = [word for each in objects for word in ("-C", f"link-arg={each}")]
            line = ["rustc", "--edition=2021", source, *linked, "-o", out]
        case ".f90":
            line = ["gfortran", "-std=f2018", "-Wall", "-Werror", source, *objects, "-o", out]
        case _:
            line = ["cc", "-shared", "-pthread", *objects, "-o", out, "-ldl"]
    path = os.pathsep.join([os.environ.get("PATH", ""), str(Path.home() / ".cargo" / "bin")])
    compiler = shutil.which(line[0], path=path)
    if compiler is None:
        pytest.skip(f"there is no {line[0]}")
    subprocess.run([compiler, *line[1:]], check=True)
    return [sys.executable, source, out] if source.suffix == ".py" else [out]


def test_a_host_in_c_compiles_once(library, objects, tmp_path):
    """By the two lines on the page, whose second process may not compile."""
    page = (ROOT / "docs" / "tracing.md").read_text()
    [lines] = re.findall(r"```console\n(layers=.*?)```", page, re.DOTALL)
    line = [*C, f"-I{LOADER}", EXAMPLES / "run.c", *objects, "-o", tmp_path / "run", "-ldl"]
    subprocess.run([*line, "-pthread"], check=True)
    source = """func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %sum = stablehlo.add %a, %b : tensor<4xf32>
  return %sum : tensor<4xf32>
}"""
    (tmp_path / "add.pjrt").write_bytes(exported(source))
    for name in "ab":
        (tmp_path / name).write_bytes(np.arange(4, dtype=np.float32).tobytes())
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {"PATH": path, "PJRT_HUB_COMPILE_CACHE": str(tmp_path / "cache")}
    own["PJRT_HUB_WITHOUT"] = "PJRT_Client_Compile"

    def run(layers):
        script = lines.replace("LAYERS=cache", f"LAYERS={layers}").replace("cpu", str(library))
        return subprocess.run(
            ["sh", "-c", script],
            cwd=tmp_path,
            env=os.environ | QUIET | own,
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert "PJRT_Client_Compile is taken away" in run("cache,without").stderr
    for layers in ("cache", "cache,without"):
        done = run(layers)
        assert (done.returncode, done.stdout) == (0, "0\n2\n4\n6\n"), done.stderr


def test_calls_in_cpp_check_the_sizes_of_vectors(library, objects, tmp_path):
    line = [*CPP, *WARNINGS, *SANITIZERS, f"-I{LOADER}", HERE / "call_sizes.cpp", *objects]
    subprocess.run([*line, "-o", tmp_path / "sizes", "-ldl"], check=True)
    (tmp_path / "two").write_bytes(exported(PROGRAMS / "two_outputs.mlir"))
    done = subprocess.run(
        [tmp_path / "sizes", library, tmp_path / "two"],
        env=os.environ | SANITIZED | QUIET,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    takes, gives = 1, 2
    right = f"the program takes {takes} argument(s) and gives {gives} result(s); the call has "
    assert done.stdout.splitlines() == [
        *("done", f"{right}{takes - 1} and {gives}", f"{right}{takes} and 0"),
        *("done", f"{right}0 and {gives}", f"{right}{takes} and {gives + 1}"),
    ]


def mlp(client, folder):
    """A program, what it takes, and what pjrt-hub makes of that."""
    source = PROGRAMS / "mlp.mlir"
    arrays = list(example(pjrt_hub.signature(source)))
    [expected] = hub(client, source, *arrays)
    return source, arrays, np.frombuffer(expected, np.float32)


def minilm(client, folder):
    """MiniLM with its weights inside, some sentences' tokens, and their embeddings by pjrt-hub."""
    import jax

    sys.path.insert(0, str(ROOT / "examples" / "minilm"))
    import embed
    import encoder

    sys.path.remove(str(ROOT / "examples" / "minilm"))
    reference = json.loads((ROOT / "tests/cpu/data/minilm_reference.json").read_text("utf-8"))
    sentences = [row["sentence"] for row in reference]
    example = embed.Encoder(client)
    tokens = example.tokenizer.encode_batch(sentences)
    arrays = [
        np.array([each.ids for each in tokens], np.int32),
        np.array([each.attention_mask for each in tokens], np.int32),
    ]
    names = [each["name"] for each in embed.SIGNATURE["weights"]]
    weights = {
        name: jax.numpy.asarray(np.asarray(weight))
        for name, weight in zip(names, example.weights, strict=True)
    }
    encode = jax.jit(jax.vmap(partial(encoder.encode, weights=weights)))
    source = folder / "minilm.jaxexport"
    source.write_bytes(jax.export.export(encode)(*arrays).serialize())
    expected = example(sentences)
    assert (expected * [row["embedding"] for row in reference]).sum(1).min() > 0.9999
    return source, arrays, expected.ravel()


@pytest.fixture(scope="module")
def model(request, client, tmp_path_factory):
    """A file that `pjrt-hub export` wrote, what it takes in files, and what it shall give."""
    folder = tmp_path_factory.mktemp("model")
    source, arrays, expected = request.param(client, folder)
    assert command_line(["export", str(source), "-o", str(folder / "model.pjrt")]) == 0
    paths = [folder / "model.pjrt", *(folder / str(number) for number in range(len(arrays)))]
    for path, array in zip(paths[1:], arrays, strict=True):
        path.write_bytes(array.tobytes())
    return paths, expected


@pytest.mark.parametrize(
    "model", [mlp, pytest.param(minilm, marks=pytest.mark.slow)], indirect=True
)
def test_hosts_in_other_languages(library, host_program, model):
    paths, expected = model
    done = subprocess.run(
        [*host_program, library, *paths],
        env=os.environ | QUIET,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = np.array(done.stdout.split(), np.float32)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
