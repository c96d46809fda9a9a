"""What a record kept of a process's memory, read by the process's own addresses."""

from __future__ import annotations

from collections.abc import Iterable

#: Where a call's arguments are thought to lie: no memory of a process does.
ARGS = 256


class Memory:
    """Regions of memory; a later one hides an earlier one at the same place."""

    def __init__(self, regions: Iterable[tuple[int, bytes, int]] = ()) -> None:
        """Keeps the regions.

        Args:
            regions: the address, the bytes, and how many there were where they were cut.
        """
        self._regions = list(regions)

    def then(self, later: Memory) -> Memory:
        """This memory, as far as `later` does not hide it."""
        return Memory([*self._regions, *later._regions])

    def read(self, address: int, nbytes: int) -> bytes | None:
        """Gives memory, or None where it was not kept."""
        for start, data, _ in reversed(self._regions):
            at = address - start
            if at >= 0 and at + nbytes <= len(data):
                return data[at : at + nbytes]
        return None

    def kept(self, address: int, nbytes: int) -> bytes | None:
        """Gives the part of an array that was kept, from its beginning."""
        for start, data, _ in reversed(self._regions):
            if start == address:
                return data[:nbytes]
        return None
