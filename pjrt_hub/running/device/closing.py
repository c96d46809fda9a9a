"""Closing: what `with` does to an object that has `close`."""

from __future__ import annotations

from typing import Self


class Closing:
    """Makes a context manager of a class with `close`: leaving the block closes the object."""

    __slots__ = ()

    def close(self) -> None:
        """Gives back what the object holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
