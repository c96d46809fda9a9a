"""What jax.export serializes: any bytes give a function that can be described, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pjrt_hub.errors import FileFormatError, NotRunnableError
from pjrt_hub.frameworks.exported import description, jax_blob

ARTIFACTS = Path(__file__).parents[1] / "exported" / "artifacts"
FINDINGS: tuple[bytes, ...] = ()


def seeds() -> Iterator[bytes]:
    """Those of every kind, of the old and the new form."""
    for path in sorted(ARTIFACTS.glob("*.jaxexport")):
        yield path.read_bytes()


def one(data: bytes) -> None:
    """Read one input."""
    try:
        function = jax_blob.read(data, "some file")
    except (FileFormatError, NotRunnableError):
        return
    described = description.describe(function)
    assert len(described["inputs"]) == len(function.inputs) == function.in_tree.count
    leaves = list(range(len(function.outputs)))
    again: list[object] = []
    function.out_tree.flatten(function.out_tree.maker({})(iter(leaves)), again)
    assert again == leaves
