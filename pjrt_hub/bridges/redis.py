"""A key-value store on a Redis server (layer 3), by the `redis` package, imported late."""

from __future__ import annotations

from typing import Any

from pjrt_hub.runtime.kv_store import look_until


class RedisStore:
    """A store for the processes of one job, which share a server and a prefix.

    Args:
        server: a URL, "redis://host:6379/0", or a `redis.Redis` that does not decode responses.
        prefix: of this job's keys; another job needs another.
        expire_seconds: how long the server keeps a value.

    Raises:
        ImportError: the `redis` package is not installed.
    """

    def __init__(
        self, server: Any, prefix: str = "pjrt-hub:", *, expire_seconds: int = 24 * 3600
    ) -> None:
        if isinstance(server, str):
            import redis

            server = redis.Redis.from_url(server)
        self._server = server
        self._prefix = prefix
        self._expire_seconds = expire_seconds

    def get(self, key: str, timeout: float) -> bytes:
        """Waits for a value, at most `timeout` seconds; then TimeoutError."""
        return look_until(lambda: self.try_get(key), key, timeout)

    def try_get(self, key: str) -> bytes | None:
        """The value, or None where there is none yet."""
        value: bytes | None = self._server.get(self._name(key))
        return value

    def put(self, key: str, value: bytes) -> None:
        """Makes a value visible to all processes."""
        self._server.set(self._name(key), value, ex=self._expire_seconds)

    def _name(self, key: str) -> bytes:
        return (self._prefix + key).encode("utf-8", "surrogateescape")
