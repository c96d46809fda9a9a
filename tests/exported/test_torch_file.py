"""Files of `pjrt_hub.torch.export`, written here without torch; tests/torch has torch's own."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub.errors import FileFormatError
from pjrt_hub.frameworks import safetensors
from pjrt_hub.frameworks.exported import torch_file
from pjrt_hub.frameworks.exported.aval import Aval
from pjrt_hub.frameworks.exported.function import (
    ExportedFunction,
    PortableProgram,
    TemplateProgram,
    Weight,
)
from pjrt_hub.frameworks.exported.tree import CONSTANT, DICT, LEAF, TUPLE, Tree

#: result["mean"] is the mean of each column of x, and result["both"] is x and weight added, twice.
TEXT = """
module { func.func @main(%x: tensor<«b»x3xf32>, %w: tensor<3xf32>)
  -> (tensor<3xf32>, tensor<«2*(b)»x3xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %part = stablehlo.constant dense<«1.0/=b»> : tensor<3xf32>
  %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<«b»x3xf32>, tensor<f32>) -> tensor<3xf32>
  %mean = stablehlo.multiply %sum, %part : tensor<3xf32>
  %rows = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<3xf32>) -> tensor<«b»x3xf32>
  %added = stablehlo.add %x, %rows : tensor<«b»x3xf32>
  %both = stablehlo.concatenate %added, %added, dim = 0
    : (tensor<«b»x3xf32>, tensor<«b»x3xf32>) -> tensor<«2*(b)»x3xf32>
  return %mean, %both : tensor<3xf32>, tensor<«2*(b)»x3xf32>
} }
"""
WEIGHT = np.array([1, 2, 3], np.float32)
PAIR = Tree(TUPLE, (Tree(LEAF), Tree(CONSTANT, data=b"true")))


@pytest.fixture
def file(tmp_path):
    """A file with a function of one array, its weight, and a constant beside each."""
    path = tmp_path / "model.pjrt"
    safetensors.save_file({"layer.weight": WEIGHT}, tmp_path / "model.safetensors")
    weight = Weight(tmp_path / "model.safetensors", "layer.weight", Aval("f32", (3,)))
    function = ExportedFunction(
        origin="Model",
        exporter="torch.export",
        function_name="Model",
        program=TemplateProgram(TEXT, "mlir"),
        in_tree=Tree(TUPLE, (PAIR, Tree(DICT))),
        inputs=(Aval("f32", ("b", 3)),),
        out_tree=Tree(DICT, (Tree(LEAF), Tree(LEAF)), ("mean", "both")),
        outputs=(Aval("f32", (3,)), Aval("f32", ("2*b", 3))),
        arguments=(0, weight),
        ranges={"b": (1, 16)},
    )
    torch_file.write(function, path)
    return path


@pytest.fixture
def model(file, client):
    with pjrt_hub.load_exported(file, client=client) as loaded:
        yield loaded


@pytest.mark.parametrize("rows", [1, 2, 16])
def test_one_file_runs_for_each_size(model, rows):
    x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
    result = model(x, True)
    np.testing.assert_allclose(np.asarray(result["mean"]), x.mean(0), rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(result["both"]), np.concatenate([x + WEIGHT] * 2))


def test_it_tells_what_it_is(model):
    assert (model.function_name, str(model.in_tree)) == ("Model", "((*, True), {})")
    assert list(map(str, model.inputs)) == ["f32[b,3]"]
    assert model.function.exporter == "torch.export"


def test_a_size_that_it_was_not_exported_for(model):
    with pytest.raises(ValueError, match=r"b is 17; .*model\.pjrt was exported for 1 to 16"):
        model(np.zeros((17, 3), np.float32), True)


@pytest.mark.parametrize("value", [False, None, 2])
def test_a_constant_cannot_be_another(model, value):
    with pytest.raises(TypeError, match=r"args\[1\]: expected True"):
        model(np.zeros((1, 3), np.float32), value)


def test_a_weight_of_another_type(model):
    weights = model.function.arguments[1].path
    safetensors.save_file({"layer.weight": WEIGHT.astype(np.float64)}, weights)
    with pytest.raises(FileFormatError, match=r"weight layer\.weight is f64\[3\] in .*takes f32"):
        model(np.zeros((1, 3), np.float32), True)


def test_weights_that_are_missing(model):
    model.function.arguments[1].path.unlink()
    with pytest.raises(FileFormatError, match=r"weight layer\.weight cannot be read from .*such"):
        model(np.zeros((1, 3), np.float32), True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"version": 2}, "its form is 2, pjrt-hub knows 1"),
        ({"weights": "../model.safetensors"}, "is not the name of a file beside it"),
        ({"inputs": []}, "what it takes has 1 leaves and 0 types"),
        ({"inputs": [["f32", ["b;", 3]]]}, "'b;' is not an expression of dimensions"),
        ({"inputs": [["f32", [-1, 3]]]}, "-1 is not a dimension"),
        ({"inputs": [["f99", [1, 3]]]}, "f99"),
        ({"in_tree": {"kind": "leaf"}}, "not .positional, by name."),
        ({"out_tree": {"kind": "heap"}}, "unknown kind 'heap'"),
        ({"ranges": {"b": ["1", 2]}}, "is no range of sizes"),
        ({"arguments": [1]}, "int"),
        ({"arguments": None}, "None"),
    ],
)
def test_descriptions_that_are_wrong(file, fields, message):
    tensors = safetensors.open_file(file)
    description = json.loads(safetensors.read_metadata(file)[torch_file.KEY])
    text = json.dumps({**description, **fields})
    safetensors.save_file(
        {"program": tensors["program"].copy()}, file, metadata={torch_file.KEY: text}
    )
    with pytest.raises(FileFormatError, match=f"is not what pjrt_hub.torch.export.*{message}"):
        pjrt_hub.load_exported(file, platform="cpu")


def test_tensors_without_a_function(tmp_path):
    safetensors.save_file({"a": WEIGHT}, tmp_path / "model.safetensors")
    with pytest.raises(FileFormatError, match="it holds tensors, and no exported function"):
        pjrt_hub.load_exported(tmp_path / "model.safetensors", platform="cpu")


def test_what_is_written_is_what_is_read(file, tmp_path):
    function = pjrt_hub.load_exported(file, platform="cpu").function
    torch_file.write(function, tmp_path / "again.pjrt")
    again = pjrt_hub.load_exported(tmp_path / "again.pjrt", platform="cpu").function
    named = replace(function.program, origin=again.origin)
    assert replace(function, origin=again.origin, program=named) == again


def test_a_function_without_weights(tmp_path, client):
    text = "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> { return %x : tensor<3xf32> }"
    function = ExportedFunction(
        origin="Model",
        exporter="torch.export",
        function_name="Model",
        program=PortableProgram(text, "mlir"),
        in_tree=Tree(TUPLE, (Tree(TUPLE, (Tree(LEAF),)), Tree(DICT))),
        inputs=(Aval("f32", (3,)),),
        out_tree=Tree(LEAF),
        outputs=(Aval("f32", (3,)),),
        arguments=(0,),
    )
    torch_file.write(function, tmp_path / "model.pjrt")
    with pjrt_hub.load_exported(tmp_path / "model.pjrt", client=client) as loaded:
        assert loaded(WEIGHT).tolist() == [1, 2, 3]
