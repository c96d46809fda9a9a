"""The samples that torch has of its own operations, on the device and on the CPU.

`python tests/torch/operations.py` writes the table of docs/torch_operations.md again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

PAGE = Path(__file__).parents[2] / "docs" / "torch_operations.md"
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "i64": torch.int64, "bool": torch.bool}
#: Of an operation with more samples, so many are taken, evenly.
MOST = 12
#: Operations of which only shapes and dtypes are compared: memory as it is, and random numbers.
ONLY_SHAPES = {"empty", "empty_strided", "randn"}
#: Operations with results that are not compared: places among equals, and statistics that torch
#: leaves out and TorchTPU gives.
COMPARED = {"topk": 1, "_native_batch_norm_legit": 1}


class Row(NamedTuple):
    """An operation on the page: right samples by dtype, and refused ones by message."""

    right: dict[str, int]
    refused: dict[str, int]

    def __str__(self) -> str:
        right = " ".join(f"{dtype}:{count}" for dtype, count in self.right.items() if count)
        refused = "; ".join(f"{count}: {message}" for message, count in self.refused.items())
        return f"{right} | {refused}"


def rows() -> dict[str, str]:
    """The page's rows."""
    found = re.findall(r"^\| `(\S+)` \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {name: row.rstrip() for name, row in found}


def measure(name: str, device: str) -> Row:
    """Compare every sample; a wrong one is an AssertionError."""
    right, refused = Counter(), Counter()
    for operation in op_db:
        if operation.name == name and "triton" not in operation.variant_test_name:
            for dtype in DTYPES:
                if DTYPES[dtype] in operation.dtypes:
                    for message in _measure(operation, dtype, device):
                        right[dtype] += not message
                        refused[message] += bool(message)
    return Row({each: right[each] for each in DTYPES}, {k: n for k, n in refused.items() if n})


def _measure(operation: Any, dtype: str, device: str) -> Iterator[str]:
    torch.manual_seed(0)
    samples = list(operation.sample_inputs("cpu", DTYPES[dtype]))
    for sample in samples[:: -(-len(samples) // MOST)]:
        given = ((sample.input, *sample.args), dict(sample.kwargs))
        moved = pytree.tree_map(partial(_on, device), given)
        args, kwargs = pytree.tree_map(_widened, given)
        try:
            wanted = pytree.tree_leaves(operation(*args, **kwargs))
        except RuntimeError:
            continue  # Moved, a view has a storage of its own, which `as_strided` goes beyond.
        try:
            found = pytree.tree_leaves(operation(*moved[0], **moved[1]))
            found = [_on("cpu", each) for each in found]
        except (RuntimeError, NotImplementedError) as exc:
            yield re.split(r" with arguments|\.(?: |$)|\n", str(exc), maxsplit=1)[0].replace(
                "|", "/"
            )
            continue
        assert len(found) == len(wanted)
        count = COMPARED.get(operation.name, len(found))
        for mine, torchs in list(zip(found, wanted, strict=True))[:count]:
            _compare(mine, torchs, dtype, operation.name not in ONLY_SHAPES)
        yield ""


def _on(device: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return device if value in ("cpu", torch.device("cpu")) else value


def _widened(value: Any) -> Any:
    """Make 16 bits 32: rounded once, such results are the truth."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == torch.bfloat16 else value.clone()
    return torch.float32 if value is torch.bfloat16 else value


def _compare(found: Any, wanted: Any, dtype: str, has_values: bool) -> None:
    if not isinstance(wanted, torch.Tensor):
        assert found == wanted or (found != found and wanted != wanted)
        return
    assert found.shape == wanted.shape
    if not has_values:
        return
    tolerance = {}
    if dtype == "bf16" and wanted.is_floating_point():
        assert found.is_floating_point()
        found, wanted = found.float(), wanted.float()
        largest = wanted[wanted.isfinite()].abs().max().item() if wanted.isfinite().any() else 0
        tolerance = {"rtol": 1.6e-2, "atol": max(1e-5, largest * 2**-6)}
    torch.testing.assert_close(found, wanted, equal_nan=True, check_stride=False, **tolerance)


def main() -> None:
    """Write the page's table again."""
    import pjrt_hub.torch

    device, text = pjrt_hub.torch.register("cpu"), PAGE.read_text("utf-8")
    for name in rows():
        row = re.compile(rf"^\| `{re.escape(name)}` \| .* \|$", re.MULTILINE)
        line = f"| `{name}` | {measure(name, device)} |"
        text = row.sub(lambda found, line=line: line, text)
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
