"""Writes the artifacts of PyTorch: `python make_torch_artifacts.py`, with torch_xla or torchax.

What is not installed is left out; torchax 0.0.13 needs jax and flatbuffers.
"""

import importlib.util
import os
import shutil
from pathlib import Path

HERE = Path(__file__).parent / "artifacts"


def program():
    """A linear layer with a buffer and a constant, an input that is not used, and one in a dict."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 2)
            with torch.no_grad():
                self.linear.weight.copy_(torch.arange(8.0).reshape(2, 4) / 8)
                self.linear.bias.copy_(torch.tensor([0.5, -0.5]))
            self.register_buffer("offset", torch.tensor([1.0, 2.0]))

        def forward(self, x, unused, more):
            return {"y": torch.tanh(self.linear(x)) + self.offset, "z": (x * 3.5 + more["q"],)}

    arguments = (torch.ones(3, 4), torch.zeros(1, dtype=torch.int32), {"q": torch.ones(4)})
    return torch.export.export(Model().eval(), arguments)


def torch_xla_folder():
    """A folder, without the text that nobody reads."""
    os.environ["PJRT_DEVICE"] = "CPU"
    from torch_xla.stablehlo import exported_program_to_stablehlo

    folder = HERE / "torch_xla"
    shutil.rmtree(folder, ignore_errors=True)
    exported_program_to_stablehlo(program()).save(str(folder))
    (folder / "functions" / "forward.mlir").unlink()


def torchax_blob():
    """Torchax writes no files: it gives the weights, and what jax.export serializes."""
    import jax
    from torchax.export import exported_program_to_stablehlo

    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    _, exported = exported_program_to_stablehlo(program())
    (HERE / "torchax.jaxexport").write_bytes(exported.serialize())


if __name__ == "__main__":
    if importlib.util.find_spec("torch_xla"):
        torch_xla_folder()
    if importlib.util.find_spec("torchax") and importlib.util.find_spec("jax"):
        torchax_blob()
