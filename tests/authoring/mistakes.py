"""Reads mistakes.txt: mistakes that authors of plugins make, to plant in the worked example."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Mistake(NamedTuple):
    """A change of one place.

    Attributes:
        name: what is wrong.
        file: below the project's `native`.
        areas: of the conformance suite that must find it.
        find: what stands there once.
        replace: what is written instead.
    """

    name: str
    file: str
    areas: tuple[str, ...]
    find: str
    replace: str

    def change(self, text: str) -> str:
        assert text.count(self.find) == 1, f"{self.name}: what it changes is not there once"
        return text.replace(self.find, self.replace)

    def make(self, source: Path) -> None:
        """Make the mistake in a project, whose source is given."""
        path = source.parent / ("." if self.file == source.name else "pjrt_plugin") / self.file
        path.write_text(self.change(path.read_text("utf-8")), "utf-8")


def read() -> Iterator[Mistake]:
    """Yield the mistakes; a block of the file each, behind the one that explains them."""
    text = Path(__file__).with_suffix(".txt").read_text("utf-8")
    for block in text.split("\n\n")[1:]:
        first, *lines = block.strip("\n").split("\n")
        name, file, *areas = first.split(" ")
        old, new = (
            "\n".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +")
        )
        yield Mistake(name, file, tuple(areas), old, new)


MISTAKES = tuple(read())
