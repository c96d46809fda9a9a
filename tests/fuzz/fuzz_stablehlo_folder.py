"""The description in a folder of torch_xla: any bytes give a function, or a FileFormatError."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from files import emptied

from pjrt_hub.errors import FileFormatError
from pjrt_hub.frameworks.exported import description, stablehlo_folder
from pjrt_hub.frameworks.exported.function import Weight
from pjrt_hub.running.program.bytecode import MAGIC

META = Path(__file__).parents[1] / "exported" / "artifacts" / "torch_xla" / "functions"
FINDINGS: tuple[bytes, ...] = ()


def seeds() -> Iterator[bytes]:
    """The one of the tests, and the shortest that is JSON."""
    yield (META / "forward.meta").read_bytes()
    yield b"{}"


def one(data: bytes) -> None:
    """Read one input."""
    folder = emptied("model")
    (folder / "functions").mkdir()
    (folder / "functions" / "forward.meta").write_bytes(data)
    (folder / "functions" / "forward.bytecode").write_bytes(MAGIC)
    try:
        function = stablehlo_folder.read(folder)
    except FileFormatError:
        return
    description.describe(function)
    for each in function.arguments:
        if isinstance(each, Weight):
            assert each.path.parent.parent == folder
