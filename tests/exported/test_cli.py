"""`pjrt-hub inspect` and `pjrt-hub run` with exported functions."""

import json

import numpy as np
import pytest
from children import NAME

from pjrt_hub.cli.__main__ import run
from pjrt_hub.cli.inspect import tree_text
from pjrt_hub.errors import FileFormatError
from pjrt_hub.frameworks.exported import reading, specialisation

from .conftest import ARTIFACTS

CPU = ("--platform", "cpu", "--offline")
NESTED = f"{ARTIFACTS}/nested.jaxexport"


@pytest.fixture
def told(capsys, client):
    """Run a command, and return its status, its output and its errors."""

    def told(*args):
        status = run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return status, out, err

    return told


@pytest.fixture
def data(told):
    """Run a command that must not fail, and return its JSON."""

    def data(*args):
        status, out, err = told(*args, *CPU, "--json")
        assert (status, err) == (0, "")
        return json.loads(out)

    return data


def test_inspect(data, row):
    found = data("inspect", NESTED)
    told = {
        "exporter": "jax.export",
        "function_name": "nested",
        "calling_convention_version": 10,
        "platforms": ["cpu"],
        "stablehlo_version": "1.15.0",
        "custom_calls": [],
        "dialects": ["builtin", "vhlo"],
        "in_tree": "(({'a': *, 'unused': *}, *), {'scale': *})",
    }
    assert {name: found[name] for name in told} == told
    unused = {"path": "args[0]['unused']", "dtype": "int32", "element_type": "i32", "shape": [1]}
    assert found["inputs"][1] == {**unused, "used": False}
    assert found["outputs"][0]["path"] == "result['y']"
    plugin = [found["plugin"][name] for name in ("can_run", "platform", "compiled")]
    assert plugin == [True, NAME, None]
    assert data("inspect", NESTED, "--compile")["plugin"]["compiled"] is True
    doubts = found["plugin"]["doubts"]
    assert len(doubts) == (str(row.api_version) == "0.81")  # only that build has an older StableHLO
    assert all(f"1.15.0 and the plugin knows {row.stablehlo}" in each for each in doubts)


def test_inspect_doubts_what_is_newer_than_the_plugin(data, row, tmp_path):
    newer = tmp_path / "newer.jaxexport"
    code = (ARTIFACTS / "add.jaxexport").read_bytes()
    assert b"StableHLO_v1.15.0" in code
    newer.write_bytes(code.replace(b"StableHLO_v1.15.0", b"StableHLO_v1.99.0"))
    plugin = data("inspect", newer)["plugin"]
    assert plugin["can_run"] is True
    [doubt] = plugin["doubts"]
    assert f"stamped StableHLO 1.99.0 and the plugin knows {row.stablehlo}" in doubt


def test_a_tree_of_more_than_a_line_is_left_to_the_table():
    assert tree_text("((*, *), {})", [{}] * 2) == "((*, *), {})"
    assert tree_text(f"({'*, ' * 40})", [{}] * 40) == "40 arrays, in the places below"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cuda_only", "it was exported for cuda, and not for cpu"),
        ("ordered_effect", "it has ordered effects"),
    ],
)
def test_inspect_says_why_not(data, name, reason):
    plugin = data("inspect", f"{ARTIFACTS}/{name}.jaxexport")["plugin"]
    assert plugin["can_run"] is False
    assert reason in plugin["reasons"][0]


def test_inspect_tells_custom_calls_and_what_is_only_suspected(told, tmp_path):
    code = (ARTIFACTS / "cpu_cholesky.jaxexport").read_bytes()
    other = tmp_path / "other.jaxexport"
    other.write_bytes(code.replace(b"lapack_s", b"another_"))
    status, out, _ = told("inspect", other, "--compile", *CPU, "--json")
    assert status == 1
    found = json.loads(out)
    assert found["custom_calls"] == ["another_potrf_ffi"]
    assert "another_potrf_ffi, which nobody registered here" in found["plugin"]["doubts"][0]
    assert (found["plugin"]["compiled"], found["plugin"]["can_run"]) == (False, False)
    assert "No FFI handler registered for another_potrf_ffi" in found["plugin"]["reasons"][0]


@pytest.mark.skipif(not specialisation.has_jaxlib(), reason="jaxlib is not installed")
def test_inspect_counts_on_the_lapack_of_jaxlib(data):
    plugin = data("inspect", f"{ARTIFACTS}/cpu_cholesky.jaxexport", "--compile")["plugin"]
    assert (plugin["compiled"], plugin["can_run"]) == (True, True)
    assert not any("lapack" in each for each in plugin["doubts"])


def test_inspect_for_people(told):
    status, out, _ = told("inspect", f"{ARTIFACTS}/symbolic.jaxexport", "--no-plugin")
    assert status == 0
    assert {
        "function     grow, exported by jax.export, calling convention 10",
        "custom calls shape_assertion",
        "args[0]    f32[b,3]",
        "result[1]  f32[2*b,3]",
    } <= set(out.splitlines())


def test_inspect_and_run_a_folder(data):
    found = data("inspect", ARTIFACTS / "torch_xla")
    assert found["exporter"] == "torch_xla.stablehlo"
    assert [each["name"] for each in found["weights"]] == ["offset", "linear.bias", "linear.weight"]
    plugin = {"name": "cpu", "platform": NAME, "can_run": True, "compiled": None}
    assert found["plugin"] == {**plugin, "reasons": [], "doubts": []}
    given = ("--arg", "f32[3,4]:1", "--arg", "s32[1]:0", "--arg", "args[2][q]=f32[4]:1")
    found = results(data("run", ARTIFACTS / "torch_xla", *given))
    assert found["result['z'][0]"] == [[4.5] * 4] * 3


def test_inspect_something_else(told, tmp_path):
    (tmp_path / "x.jaxexport").write_bytes(b"something else")
    status, _, err = told("inspect", tmp_path / "x.jaxexport", *CPU)
    assert (status, "is not what jax.export serializes" in err) == (1, True), err


@pytest.mark.parametrize("name", ["f.bin", "f.mlir", "f"])
def test_an_artifact_by_any_name(told, data, tmp_path, name):
    """It is recognized by its content; a damaged one is refused, and not taken for a program."""
    artifact = (ARTIFACTS / "add.jaxexport").read_bytes()
    (tmp_path / name).write_bytes(artifact)
    given = ("--arg", "f32[8]:1", "--arg", "f32[8]:2")
    assert results(data("run", tmp_path / name, *given))["result"] == [3] * 8
    assert data("inspect", tmp_path / name)["function_name"] == "add"
    out = tmp_path / "out"
    status, _, err = told("compile", tmp_path / name, "--target", "tpu:v5e:2x2", "-o", out)
    assert (status, out.exists()) == (1, False)
    assert "cannot be run on tpu: it was exported for cpu, and not for tpu" in err
    assert "fetching" not in err
    (tmp_path / name).write_bytes(artifact[:900])
    for command in ("run", "inspect"):
        status, _, err = told(command, tmp_path / name)
        assert status == 1
        assert "is not what jax.export serializes: an offset points to" in err


@pytest.mark.parametrize("command", ["run", "inspect", "compile"])
@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x7fELF", "a library"),
        (b"\x93NUMPY", "an array"),
        (b"\x93pjrt-hub executable 2", "a compiled program"),
        (b"PJRTPROG", "what `pjrt-hub export` wrote"),
        (b"PK\x03\x04", "an archive"),
    ],
)
def test_what_is_no_program_is_told_by_name(told, tmp_path, command, head, kind):
    path = tmp_path / "file"
    path.write_bytes(head + bytes(40))
    more = ["--target", "cuda:H100", "-o", str(tmp_path / "out")] if command == "compile" else []
    status, _, err = told(command, path, *more)
    assert (status, f"{path} is {kind}, not a program" in err) == (1, True), err
    assert "hint: " in err
    with pytest.raises(FileFormatError, match=f"{path} is {kind}, not a program"):
        reading.read(path)


def test_a_program_by_itself_is_told_apart(told, data, tmp_path):
    path = tmp_path / "id.mlir"
    path.write_text("module {\n  func.func @main(%a: tensor<2x3xi32>) { return }\n}")
    told_by = {"format": "mlir", "stablehlo_version": None, "inputs": ["i32[2,3]"], "outputs": []}
    found = data("inspect", path)
    plugin = found.pop("plugin")
    assert found == told_by
    assert (plugin["platform"], plugin["can_run"], plugin["compiled"]) == ("cpu", True, None)
    status, out, _ = told("inspect", path)
    assert (status, out.splitlines()[2:]) == (0, ["arguments    i32[2,3]", "results      none"])
    path.write_text("module {\n  func.func @main(%a: tensor<2x3xi32>) { return }\n")
    assert told("inspect", path)[0] == 0  # only its head is read
    path.write_text("module")
    assert told("inspect", path)[1].endswith("arguments    cannot be read; compiling it says why\n")


def results(found):
    return {each["place"]: each["data"] for each in found["results"]}


def test_run_by_place_and_by_name(data, tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    given = ["args[0][a]=f32[2,3]:1", "scale=2", "args[0]['unused']=s32[1]:0"]
    given += [f"args[1]=@{tmp_path}/x.npy"]
    found = results(data("run", NESTED, *(word for each in given for word in ("--arg", each))))
    assert found["result['y']"] == pytest.approx([2 * np.tanh(3)] * 2, rel=1e-5)
    assert found["result['z'][0]"] == 3


@pytest.mark.parametrize("form", ["{}", "args[0]/{}", "args[0]['{}']", "args.0.{}"])
def test_run_with_a_dict_of_a_file(data, tmp_path, form):
    arrays = {"a": np.ones((2, 3), np.float32), "unused": np.zeros(1, np.int32), "more": np.ones(9)}
    np.savez(tmp_path / "w.npz", **{form.format(name): array for name, array in arrays.items()})
    given = ("--arg", f"{tmp_path}/w.npz", "--arg", "f32[3]:1", "--arg", "scale=2.0")
    found = results(data("run", NESTED, *given))
    assert found["result['z'][2][0]"] == [1, 1, 1]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("f32[8]:1",), "args[1]: no value was given"),
        (("f32[8]:1",) * 3, "add takes 2 argument(s) by place"),
        (("f32[8]:1", "b=f32[8]:1"), "add has no argument b; there are args[0], args[1]"),
        (("f32[8]:1", "args[1]=f32[8]:1", "args[1]=f32[8]:2"), "args[1] was given twice"),
        (("f32[8]:1", "f32[9]:1"), "args[1]: expected f32[8], found f32[9]"),
        (("f32[8]:1", "s32[8]:1"), "args[1]: expected f32[8], found i32[8]"),
    ],
)
def test_run_with_other_arguments(told, args, message):
    given = [part for arg in args for part in ("--arg", arg)]
    status, out, err = told("run", ARTIFACTS / "add.jaxexport", *given, *CPU)
    assert (status, out) == (1, "")
    assert message in err


def test_programs_by_themselves_have_no_names(told, tmp_path):
    path, kind = tmp_path / "id.mlir", "tensor<2xf32>"
    path.write_text(f"func.func @main(%a: {kind}) -> {kind} {{ return %a : {kind} }}")
    status, _, err = told("run", path, "--arg", "a=f32[2]:1", *CPU)
    assert (status, "takes arguments by their order, not 'a' by name" in err) == (1, True), err
    status, out, _ = told("run", path, "--arg", "f32[2]:1", *CPU)
    assert (status, out) == (0, f"[1. 1.]\nf32[2] on {NAME}:0\n")
