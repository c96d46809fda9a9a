"""What a user does on a plugin that tells nothing of the programs that it compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "exported"
OUTPUTS = ("ElementTypes", "Dimensions", "MemoryKinds")
#: What the plugin lacks -> how it lacks it.
UNTOLD = {
    "no optimized program": "PJRT_Executable_OptimizedProgram:null",
    "an optimized program that is refused": "PJRT_Executable_OptimizedProgram",
    "no optimized program and no outputs": ",".join(
        f"PJRT_Executable_{name}:null"
        for name in ("OptimizedProgram", *(f"Output{each}" for each in OUTPUTS))
    ),
}

#: In a process whose clients are of such a plugin. A pickle is loaded in a third process.
USE = """
import pickle
from pathlib import Path
from pjrt_hub.frameworks import safetensors
folder = Path(os.environ["FOLDER"])
sys.path.insert(0, os.environ["EXAMPLES"])
x = np.arange(8, dtype=np.float32)

added = client.compile(ADD)
assert str(added.signature) == "(8xf32, 8xf32) -> (8xf32)", added.signature
total = added(x, x)
assert np.asarray(total).tolist() == (x + x).tolist()
try:
    added(x, x[:4])
except ValueError as exc:
    assert "argument 1" in str(exc), exc
else:
    raise SystemExit("half an argument was taken")

safetensors.save_file({"x": total}, folder / "x.safetensors")
read = safetensors.load(client, folder / "x.safetensors")["x"]
assert np.from_dlpack(read).tolist() == (x + x).tolist()
assert np.asarray(added(read, client.from_dlpack(x))).tolist() == (3 * x).tolist()

loaded = client.load(added.serialize())
assert loaded.signature == added.signature
(folder / "pickle").write_bytes(pickle.dumps((added, total)))

import run
run.main()
"""

UNPICKLE = """
import pickle
from pathlib import Path
added, total = pickle.loads(Path(os.environ["FOLDER"], "pickle").read_bytes())
twice = added(total, total)
assert np.asarray(twice).tolist() == (4 * np.arange(8)).tolist(), twice
"""


@pytest.mark.parametrize("untold", UNTOLD)
def test_all_that_users_do_with_programs(child, clean_env, program, tmp_path, untold):
    lacking = {"PJRT_HUB_LAYERS": "without", "PJRT_HUB_WITHOUT": UNTOLD[untold]}
    here = {"FOLDER": str(tmp_path), "EXAMPLES": str(EXAMPLES)}
    assert "kinds   [0, 0, 1, 0]" in child(USE, **lacking, **here)
    child(UNPICKLE, **lacking, **here)
    command = [sys.executable, "-m", "pjrt_hub.cli", "run", program("add")]
    done = subprocess.run(
        [*command, "--platform", "cpu", "--arg", "f32[8]:1", "--arg", "f32[8]:2"],
        env=clean_env | lacking,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.startswith("[3., 3., 3., 3., 3., 3., 3., 3.]\n")
