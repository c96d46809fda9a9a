"""The fastest installed inflate: isal, or zlib if isal has no wheel.

Owns the choice and the bounded stream of chunks; must not know of archives.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from types import ModuleType

CHUNK = 1 << 20
#: What zlib calls them: a bare deflate stream, as in a zip; and one in a gzip member.
RAW, GZIP = -15, 31


@cache
def library() -> ModuleType:
    """Return the module that inflates: `isal.isal_zlib`, else `zlib`."""
    try:
        from isal import isal_zlib  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return zlib
    return isal_zlib  # type: ignore[no-any-return, unused-ignore]


def inflated(packed: Iterable[bytes], wrapper: int) -> Iterator[bytes]:
    """Inflate one stream that `packed` holds exactly, in chunks of at most 1 MiB.

    Args:
        packed: the stream, in parts.
        wrapper: `RAW` or `GZIP`.

    Raises:
        ValueError: the stream is damaged, ends early, or is followed by other bytes.
    """
    tool = library()
    stream = tool.decompressobj(wrapper)
    try:
        for part in packed:
            if stream.eof:
                raise ValueError("is followed by other bytes")
            while part and not stream.eof:
                if chunk := stream.decompress(part, CHUNK):
                    yield chunk
                part = stream.unconsumed_tail
            if stream.unused_data:
                raise ValueError("is followed by other bytes")
        # What one call could not give because of the limit is still inside.
        while not stream.eof and (chunk := stream.decompress(b"", CHUNK)):
            yield chunk
    except (tool.error, zlib.error) as exc:
        raise ValueError(f"cannot be inflated: {exc}") from exc
    if not stream.eof:
        raise ValueError("ends early")
