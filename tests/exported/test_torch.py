"""What torch_xla saves and torchax exports, without torch."""

import json
import shutil

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub.errors import FileFormatError

from .conftest import ARTIFACTS

FOLDER = ARTIFACTS / "torch_xla"
WEIGHT = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
BIAS = np.array([0.5, -0.5], np.float32)
OFFSET = np.array([1, 2], np.float32)
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
MORE = {"q": np.array([1, 2, 3, 4], np.float32)}


def check(result):
    np.testing.assert_allclose(result["y"], np.tanh(X @ WEIGHT.T + BIAS) + OFFSET, rtol=1e-5)
    [found] = result["z"]
    np.testing.assert_allclose(found, X * 3.5 + MORE["q"], rtol=1e-5)


@pytest.fixture
def forward(client):
    return pjrt_hub.load_exported(FOLDER, client=client)


def test_a_folder_of_torch_xla(forward):
    assert forward.function_name == "forward"
    assert forward.platforms == ()
    assert list(map(str, forward.inputs)) == ["f32[3,4]", "i32[1]", "f32[4]"]
    assert str(forward.in_tree) == "((*, *, {'q': *}), {})"
    for _ in range(2):
        check(forward(X, [0], MORE))
    with pytest.raises(ValueError, match=r"args\[2\]\['q'\]: expected f32\[4\], found f32\[3\]"):
        forward(X, [0], {"q": MORE["q"][:3]})


def test_its_weights_are_moved_once(forward, client, monkeypatch):
    forward(X, [0], MORE)
    moved, put = [], type(client).buffer_from_host

    def note(self, array, **options):
        moved.append(array.shape)
        return put(self, array, **options)

    monkeypatch.setattr(type(client), "buffer_from_host", note)
    forward(X, [0], MORE)
    assert moved == [(3, 4), (4,)]  # arguments that are used, but no weights


def test_a_blob_of_torchax_with_its_weights(load):
    forward = load("torchax").bind([WEIGHT, BIAS, OFFSET])
    y, z = forward(([X, np.zeros(1, np.int32), MORE["q"]],))  # in the order of torch.export
    check({"y": y, "z": (z,)})


@pytest.fixture
def broken(client, tmp_path):
    """`broken(change)` loads a copy of the folder after `change` was applied to it."""

    def broken(change):
        folder = tmp_path / "model"
        shutil.copytree(FOLDER, folder)
        meta = folder / "functions" / "forward.meta"
        told = json.loads(meta.read_text())
        change(folder, told)
        if meta.exists():
            meta.write_text(json.dumps(told))
        return pjrt_hub.load_exported(folder, client=client)

    return broken


def renamed(name):
    def change(folder, told):
        [first] = [each for each in told["input_locations"] if each["name"] == "offset"]
        first["name"] = name

    return change


NAMES = ("../offset", "/etc/passwd", "", ".", "..", "a/b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *((renamed(name), "is not a name of a file in data/") for name in NAMES),
        (lambda f, t: t.pop("input_pytree_spec"), "KeyError: 'input_pytree_spec'"),
        (lambda f, t: t.update(input_pytree_spec="[2, {}]"), "pytrees are of the form 2, not 1"),
        (lambda f, t: t["input_signature"].pop(), "shorter than"),
        (lambda f, t: t["unused_inputs"].clear(), r"takes 3 values, and describes \[0, 2\]"),
        (lambda f, t: t["output_signature"].pop(), "gives 2 values, and describes 1"),
        (lambda f, t: t["input_signature"][0].update(dtype="text"), "text"),
        (lambda f, t: t["input_signature"][0].update(shape=["a"]), "is not a shape"),
        (lambda f, t: (f / "functions" / "forward.bytecode").write_bytes(b"x"), "not bytecode"),
        (lambda f, t: (f / "functions" / "forward.bytecode").unlink(), "No such file"),
        (lambda f, t: (f / "functions" / "forward.meta").unlink(), "it holds no functions"),
    ],
)
def test_malformed_folders(broken, change, message):
    with pytest.raises(FileFormatError, match=message):
        broken(change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: (data / "offset").unlink(), "offset cannot be read from .*No such"),
        (lambda data: (data / "offset").write_bytes(b"x"), "offset cannot be read"),
        (
            lambda data: shutil.copy(data / "linear.weight", data / "offset"),
            r"offset is f32\[2,4\] in .*, the program takes f32\[2\]",
        ),
    ],
)
def test_malformed_weights(broken, change, message):
    forward = broken(lambda folder, told: change(folder / "data"))
    with pytest.raises(FileFormatError, match=message):
        forward(X, [0], MORE)


def test_a_folder_of_something_else(client, tmp_path):
    with pytest.raises(FileFormatError, match="is not a StableHLO folder"):
        pjrt_hub.load_exported(tmp_path, client=client)
