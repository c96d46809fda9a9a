"""Ordinary use of a plugin that reports nothing about its compiled programs."""

import pickle
import runpy
from pathlib import Path

import finished
import numpy as np
import pytest
from children import ADD, PLATFORM

from pjrt_hub.frameworks import safetensors

EXAMPLES = Path(__file__).parents[2] / "examples" / "exported"
OUTPUTS = ("ElementTypes", "Dimensions", "MemoryKinds")
#: What the plugin cannot report -> the value of `PJRT_HUB_WITHOUT` that causes it.
UNTOLD = {
    "no optimized program": "PJRT_Executable_OptimizedProgram:null",
    "an optimized program that is refused": "PJRT_Executable_OptimizedProgram",
    "no optimized program and no outputs": ",".join(
        f"PJRT_Executable_{name}:null"
        for name in ("OptimizedProgram", *(f"Output{each}" for each in OUTPUTS))
    ),
}

X = np.arange(8, dtype=np.float32)


def use(client, folder):
    """Use a client of such a plugin, in a child process."""
    folder = Path(folder)
    added = client.compile(ADD)
    assert str(added.signature) == "(f32[8], f32[8]) -> (f32[8])", added.signature
    total = added(X, X)
    assert np.asarray(total).tolist() == (X + X).tolist()
    with pytest.raises(ValueError, match="argument 1"):
        added(X, X[:4])

    safetensors.save_file({"x": total}, folder / "x.safetensors")
    read = safetensors.load_file(folder / "x.safetensors", client)["x"]
    assert np.from_dlpack(read).tolist() == (X + X).tolist()
    assert np.asarray(added(read, client.from_dlpack(X))).tolist() == (3 * X).tolist()

    loaded = client.load(added.serialize())
    assert loaded.signature == added.signature
    (folder / "pickle").write_bytes(pickle.dumps((added, total)))

    runpy.run_path(str(EXAMPLES / "run.py"), run_name="__main__")


def use_pickle(_, folder):
    added, total = pickle.loads(Path(folder, "pickle").read_bytes())
    twice = added(total, total)
    assert np.asarray(twice).tolist() == (4 * X).tolist(), twice


@pytest.mark.parametrize("untold", UNTOLD)
@pytest.mark.slow
def test_all_that_users_do_with_programs(child, clean_env, program, tmp_path, untold):
    lacking = {"PJRT_HUB_LAYERS": "without", "PJRT_HUB_WITHOUT": UNTOLD[untold]}
    assert "kinds   [0, 0, 1, 0]" in child(use, str(tmp_path), **lacking)
    child(use_pickle, str(tmp_path), **lacking)
    words = ["run", program("add"), "--platform", PLATFORM, "--arg", "f32[8]:1"]
    words += ["--arg", "f32[8]:2"]
    done = finished.cli(*words, seconds=120, env=clean_env | lacking)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.startswith("[3. 3. 3. 3. 3. 3. 3. 3.]\n")
