"""The cache of compilations: which one is meant, and what makes two compilations the same.

Owns the key; must not know where or how a cache keeps its bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pjrt_hub.base import log
from pjrt_hub.errors import PjrtError, UnsupportedByPluginError

if TYPE_CHECKING:
    from pjrt_hub.running.compilation.policy import CompileCache, CompilingClient
    from pjrt_hub.running.executable.loaded_executable import LoadedExecutable
    from pjrt_hub.running.program.compile_options import CompileOptions
    from pjrt_hub.running.program.program import Program


def choose(client: CompilingClient, wanted: bool | CompileCache | None) -> CompileCache | None:
    """Return the cache that `Client.compile(cache=wanted)` means; None to use no cache."""
    policy = client._policy
    if wanted is None:
        return policy.compile_cache if policy.caches_by_default else None
    if wanted is False:
        return None
    if wanted is not True:
        if not (hasattr(wanted, "get") and hasattr(wanted, "put")):
            raise TypeError(f"cache is {wanted!r}; it must be True, False, or have get and put")
        return wanted
    if policy.compile_cache is None:
        raise ValueError(
            "cache is True, and the client's plugin was loaded without a compile cache\n\n"
            "hint: pjrt_hub.client() and pjrt_hub.load() give it one, or pass an object with "
            "get(key) and put(key, bytes)"
        )
    return policy.compile_cache


def key(client: CompilingClient, program: Program, options: CompileOptions) -> str:
    """Name a compilation: sha256 of all that its result depends on, as far as the C API tells.

    That is the program's bytes, the options in one order, the plugin's bytes and versions, and the
    devices with their machine. The cache must account for variables that compilers read.
    """
    import hashlib

    from pjrt_hub.running.executable import serialized

    canonical = replace(options, flags=dict(sorted(options.flags.items())))
    devices = [(d.id, d.kind, d.process_index) for d in client.all_devices]
    digest = hashlib.sha256()
    for part in (
        program.format.encode(),
        program.code,
        canonical.serialize(),
        repr(tuple(serialized.Guards.of(client))).encode(),
        serialized.topology(client),
        repr(([d.id for d in client.devices], devices)).encode(),
    ):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def keep(cache: CompileCache, key: str, executable: LoadedExecutable, program: Program) -> None:
    """Put an executable into the cache, if the plugin can serialize it."""
    try:
        blob = executable.serialize()
    except (PjrtError, UnsupportedByPluginError) as exc:
        warn(f"the plugin cannot serialize {program.origin}, so it is not cached: {exc}")
    else:
        write(cache, key, blob)


def read(cache: CompileCache, key: str) -> bytes | None:
    """Return what a cache has; None also if it cannot be read, whatever object a user gave."""
    try:
        return cache.get(key)
    except Exception as exc:
        warn(f"the compile cache cannot be read: {type(exc).__name__}: {exc}")
        return None


def write(cache: CompileCache, key: str, blob: bytes) -> None:
    """Put bytes into a cache, unless that fails."""
    try:
        cache.put(key, blob)
    except Exception as exc:
        warn(f"the compile cache cannot be written: {type(exc).__name__}: {exc}")


def warn(text: str) -> None:
    """Log what the cache cannot do; it only ever saves time, so that is no error."""
    log.warn("pjrt_hub.compile_cache", text)
