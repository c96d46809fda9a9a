"""A flatbuffer of unknown origin, read with every offset checked.

The `flatbuffers` package has no verifier in Python: its reader follows offsets before the buffer's
beginning, cuts strings short, and may visit one table without end. Must not know any schema.
"""

from __future__ import annotations

import struct
from mmap import mmap

#: No tree of arguments is nested this deeply, and Python's own limit is far above this.
_MAX_DEPTH = 200


class FlatTable:
    """One table of a flatbuffer.

    Fields are named by their number in the schema, from 0; one that is absent is 0 or empty.
    Whatever breaks the format raises ValueError. As no writer shares tables or strings, a buffer
    has at most as many as it has words: reading more, as in a loop, breaks the format.
    """

    __slots__ = ("_budget", "_data", "_depth", "_fields", "_position", "_vtable")

    def __init__(self, data: bytes | mmap, position: int, depth: int, budget: list[int]) -> None:
        self._data = data
        self._position = position
        self._depth = depth
        self._budget = budget
        self._spend(1)
        if depth > _MAX_DEPTH:
            raise ValueError(f"tables are nested deeper than {_MAX_DEPTH}")
        self._vtable = position - int(self._at("<i", position))
        nbytes = int(self._at("<H", self._vtable))
        if nbytes < 4 or nbytes % 2 or self._vtable + nbytes > len(data):
            raise ValueError(f"the table at byte {position} has a malformed list of fields")
        self._fields = (nbytes - 4) // 2

    @classmethod
    def root(cls, data: bytes | mmap) -> FlatTable:
        """Return the table that a buffer begins with, or raise ValueError if there is none."""
        if len(data) < 8:
            raise ValueError(f"{len(data)} bytes are too few")
        [position] = struct.unpack_from("<I", data)
        return cls(data, position, 0, [len(data) // 4])

    def has(self, field: int) -> bool:
        """Return whether a field is there."""
        return self._offset(field) != 0

    def number(self, field: int, format: str) -> int:
        """Return a number that has a format of the module `struct`."""
        offset = self._offset(field)
        return int(self._at("<" + format, self._position + offset)) if offset else 0

    def numbers(self, field: int, format: str) -> tuple[int, ...]:
        """Return a list of numbers."""
        start, count = self._vector(field, struct.calcsize("<" + format))
        return struct.unpack_from(f"<{count}{format}", self._data, start) if count else ()

    def bytes(self, field: int) -> bytes:
        """Return a list of bytes."""
        return bytes(self.view(field))

    def view(self, field: int) -> memoryview:
        """Return a list of bytes where it lies, which `place` tells."""
        start, count = self._vector(field, 1)
        return memoryview(self._data)[start : start + count]

    def place(self, field: int) -> int:
        """Return the place of a list's first element in the buffer."""
        return self._vector(field, 1)[0]

    def text(self, field: int) -> str:
        """Return a string."""
        offset = self._offset(field)
        return self._text(self._position + offset) if offset else ""

    def texts(self, field: int) -> tuple[str, ...]:
        """Return a list of strings."""
        start, count = self._vector(field, 4)
        return tuple(self._text(start + 4 * index) for index in range(count))

    def table(self, field: int) -> FlatTable | None:
        """Return a table inside this one."""
        offset = self._offset(field)
        return self._table(self._position + offset) if offset else None

    def tables(self, field: int) -> tuple[FlatTable, ...]:
        """Return a list of tables."""
        start, count = self._vector(field, 4)
        return tuple(self._table(start + 4 * index) for index in range(count))

    def _offset(self, field: int) -> int:
        if field >= self._fields:
            return 0
        return int(self._at("<H", self._vtable + 4 + 2 * field))

    def _vector(self, field: int, nbytes: int) -> tuple[int, int]:
        """Return where a list begins, and how many elements of `nbytes` bytes it has."""
        offset = self._offset(field)
        if not offset:
            return 0, 0
        start = self._target(self._position + offset)
        count = int(self._at("<I", start))
        if start + 4 + count * nbytes > len(self._data):
            raise ValueError(f"the list at byte {start} is longer than the buffer")
        return start + 4, count

    def _text(self, where: int) -> str:
        self._spend(1)
        start = self._target(where)
        count = int(self._at("<I", start))
        end = start + 4 + count
        if end > len(self._data):
            raise ValueError(f"the text at byte {start} is longer than the buffer")
        self._spend(count // 4)
        return self._data[start + 4 : end].decode()

    def _table(self, where: int) -> FlatTable:
        return FlatTable(self._data, self._target(where), self._depth + 1, self._budget)

    def _target(self, where: int) -> int:
        return where + int(self._at("<I", where))

    def _at(self, format: str, position: int) -> int | float:
        if position < 0 or position + struct.calcsize(format) > len(self._data):
            raise ValueError(f"an offset points to byte {position}, outside of the buffer")
        [value] = struct.unpack_from(format, self._data, position)
        return value  # type: ignore[no-any-return]

    def _spend(self, words: int) -> None:
        self._budget[0] -= words
        if self._budget[0] < 0:
            raise ValueError("its tables refer to each other without end")
