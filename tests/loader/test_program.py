"""Programs in files: what `pjrt-hub export` writes, and how loader/pjrt_program.c runs it."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub.cli.__main__ import run as command_line
from pjrt_hub.errors import NotRunnableError
from pjrt_hub.frameworks.exported import reading
from pjrt_hub.frameworks.exported.program_file import program_file
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


def api_folder():
    from pjrt_hub.kit import authoring

    return Path(authoring.__path__[0]) / "c"


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
    out = tmp_path / "scalar.program"
    assert command_line(["export", str(PROGRAMS / "scalar.mlir"), "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_bytes() == exported(PROGRAMS / "scalar.mlir")
    assert command_line(["export", str(PROGRAMS / "scalar.mlir"), "-o", str(out), "--json"]) == 0
    told = {"path": str(out), "nbytes": out.stat().st_size}
    assert json.loads(capsys.readouterr().out) == told
    assert command_line(["run", str(out)]) != 0
    assert "hint: loader/pjrt_program.h reads it" in capsys.readouterr().err


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


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """The two C files, compiled for hosts in other languages."""
    if not (LOADER / "pjrt_loader.c").exists():
        pytest.skip("loader/pjrt_loader.c is not there")
    folder = tmp_path_factory.mktemp("objects")
    for name in ("pjrt_loader", "pjrt_program"):
        line = ["cc", "-std=c11", "-O2", "-fPIC", "-pthread", f"-I{api_folder()}", "-c"]
        subprocess.run([*line, LOADER / f"{name}.c", "-o", folder / f"{name}.o"], check=True)
    return [folder / "pjrt_loader.o", folder / "pjrt_program.o"]


@pytest.fixture(params=["run.c", "run.cpp", "run.rs", "run.py"])
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
        case _:
            line = ["cc", "-shared", "-pthread", *objects, "-o", out, "-ldl"]
    path = os.pathsep.join([os.environ.get("PATH", ""), str(Path.home() / ".cargo" / "bin")])
    compiler = shutil.which(line[0], path=path)
    if compiler is None:
        pytest.skip(f"there is no {line[0]}")
    subprocess.run([compiler, *line[1:]], check=True)
    return [sys.executable, source, out] if source.suffix == ".py" else [out]


def test_hosts_in_other_languages(client, library, host_program, tmp_path):
    source = PROGRAMS / "mlp.mlir"
    arrays = list(example(pjrt_hub.signature(source)))
    (tmp_path / "program").write_bytes(exported(source))
    paths = [tmp_path / str(number) for number in range(len(arrays))]
    for path, array in zip(paths, arrays, strict=True):
        path.write_bytes(array.tobytes())
    line = [*host_program, library, tmp_path / "program", *paths]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    [expected] = hub(client, source, *arrays)
    found = np.array(done.stdout.split(), np.float32)
    assert found.tolist() == np.frombuffer(expected, np.float32).tolist()
