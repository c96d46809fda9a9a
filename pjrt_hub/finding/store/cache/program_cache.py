"""Compiled programs on disk, for `Client.compile(cache=True)`; shared by processes.

Owns one file for each program, verified at every read. Losing one costs a compilation, so nothing
here raises for a disk that is full, read-only or gone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache as once
from pathlib import Path

from pjrt_hub.base import digest, log
from pjrt_hub.errors import CacheError, PjrtHubError
from pjrt_hub.finding.contract import variables
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.cache.layout import LAYOUT

#: The variables that the compilers of XLA, libtpu, cuDNN and Triton read.
COMPILER_VARIABLES = tuple(row.name for row in variables.COMPILERS)
#: The variables that may name a file of flags instead of holding flags.
_FLAGS = frozenset({"LIBTPU_INIT_ARGS", "TF_XLA_FLAGS", "XLA_FLAGS"})
#: The most bytes of all files together, unless PJRT_HUB_COMPILE_CACHE_NBYTES sets another bound.
MAX_NBYTES = 2 * 1024**3
_LOGGER = "pjrt_hub.store"
_MAGIC = b"\x93pjrt-hub compiled 1\n"
_HEADER_NBYTES = len(_MAGIC) + 32  # A sha256 follows the magic number.
#: A partial file of this age has no writer any more.
_ABANDONED_SECONDS = 3600
#: The part of the limit that an eviction leaves in use, so that not every put has to evict.
_AFTER_EVICTION = 0.9


class ProgramCache:
    """A directory of serialized executables; the least recently used are removed first.

    Anybody who can write to the directory can run code in the processes that use it, so it is made
    for its owner alone, and left out with a warning if somebody else could have written to it. Its
    path is absolute, and the layout's version is a folder below it; `context` is a text of all that
    a program depends on besides its key.
    """

    def __init__(self, root: Path, *, context: str = "", max_nbytes: int = MAX_NBYTES) -> None:
        self.root = root
        self.max_nbytes = max_nbytes
        self._folder = root / LAYOUT / "compiled"
        self._context = context

    @classmethod
    def from_env(cls, env: Mapping[str, str], cache_root: Path | None) -> ProgramCache | None:
        """Return the cache that `PJRT_HUB_COMPILE_CACHE` names, else one in the plugin cache.

        Without either, the result is None.
        """
        named = env.get("PJRT_HUB_COMPILE_CACHE", "")
        root = cache_root if named in ("", "0", "1") else Path(named).expanduser().absolute()
        if root is None:
            return None
        bound = env.get("PJRT_HUB_COMPILE_CACHE_NBYTES") or str(MAX_NBYTES)
        if not bound.isdecimal():
            raise PjrtHubError(
                f"PJRT_HUB_COMPILE_CACHE_NBYTES is {bound!r}, which is not a number of bytes",
                hint="set it to a number such as 1000000000, or unset it",
            )
        said = {name: env[name] for name in COMPILER_VARIABLES if env.get(name)}
        context = "\0".join(
            f"{name}={_with_flag_file(name, value)}" for name, value in said.items()
        )
        return cls(root, context=context, max_nbytes=int(bound))

    def __repr__(self) -> str:
        return f"ProgramCache({str(self.root)!r})"

    def get(self, key: str) -> bytes | None:
        """Return the bytes under a key, verified by sha256, or None; remove a damaged file."""
        path = self._path(key)
        try:
            content = disk.read(self.root, path, self.max_nbytes)
        except CacheError as exc:
            _leave_out(exc.message)
            return None
        except OSError:
            return None
        with suppress(OSError):  # The directory may be read-only.
            os.utime(path)  # Evictions use this time.
        value = content[_HEADER_NBYTES:]
        if content[:_HEADER_NBYTES] != _header(value):
            log.warn(_LOGGER, f"removed the damaged compiled program {path}")
            with suppress(OSError):
                path.unlink()
            return None
        return value

    def put(self, key: str, value: bytes) -> None:
        """Store bytes under a key, all or none, even through a crash or a power cut."""
        if _HEADER_NBYTES + len(value) > self.max_nbytes:
            return
        path = self._path(key)
        try:
            disk.make(self.root, self._folder.parent)  # Everybody may read the plugins here.
            disk.make(self._folder.parent, path.parent, mode=0o700)
            with disk.open_folder(self.root, path.parent) as folder:
                disk.replace(path, _header(value), value, folder=folder, mode=0o600)
            self.evict()
        except CacheError as exc:
            _leave_out(exc.message)
        except OSError as exc:
            log.warn(_LOGGER, f"the compiled program cannot be kept in {self.root}: {exc}")

    def evict(self) -> None:
        """Remove the least recently used files; two processes may do so at once."""
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        now = time.time()
        goal = total if total <= self.max_nbytes else int(self.max_nbytes * _AFTER_EVICTION)
        for used, size, path in files:
            partial = path.name.startswith(".")
            if partial and now - used < _ABANDONED_SECONDS:
                continue
            if partial or total > goal:
                with suppress(OSError):
                    path.unlink()
                total -= size

    def nbytes(self) -> int:
        """Return the size of all files, in bytes."""
        return sum(size for _, size, _ in self._files())

    def _path(self, key: str) -> Path:
        name = _sha256(f"{key}\0{self._context}".encode()).hex()
        return self._folder / name[:2] / name

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """Yield each file's last use, its size and its path."""
        for path in self._folder.glob("[0-9a-f][0-9a-f]/*"):
            with suppress(OSError):  # Another process may have removed it.
                found = path.stat()
                yield found.st_mtime, found.st_size, path


def _with_flag_file(name: str, value: str) -> str:
    """Return a variable's value, with the hash of the file of flags that it may name."""
    if name not in _FLAGS or value.lstrip().startswith("-"):
        return value
    try:
        return f"{value}={_sha256(digest.content(value)).hex()}"
    except (OSError, ValueError):  # The value names no file.
        return value


def _header(value: bytes) -> bytes:
    return _MAGIC + _sha256(value)


def _sha256(value: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(value).digest()


@once
def _leave_out(why: str) -> None:
    hint = "make it this user's alone, or set PJRT_HUB_COMPILE_CACHE to a directory that is"
    text = f"programs are compiled without the compile cache: {why}\n\nhint: {hint}"
    log.warn(_LOGGER, text)
