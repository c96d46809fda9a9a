"""A key-value store on a Redis server, through the `redis` package, which is imported late."""

from __future__ import annotations

from typing import Any

from pjrt_hub.running.distributed.kv_store import look_until

#: Seconds for an answer of the server, and tries to reach it, which take one second together.
_ANSWER_SECONDS, _TRIES = 5, 6


class RedisStore:
    """A store for the processes of one job, which share a server and a prefix.

    A server that is gone for longer than a second, or that does not answer for five, is an error of
    the `redis` package; the server may be asked again later.

    Args:
        server: a URL, "redis://host:6379/0", whose query may say "?socket_timeout=10", or a
            `redis.Redis` that does not decode responses.
        prefix: the beginning of this job's keys; another job needs another one.
        expire_seconds: how long the server keeps a value.

    Raises:
        ImportError: the `redis` package is not installed.
        TypeError: the given client decodes responses, and values are bytes.
        ValueError: the URL is not valid.
    """

    def __init__(
        self, server: Any, prefix: str = "pjrt-hub:", *, expire_seconds: int = 24 * 3600
    ) -> None:
        if isinstance(server, str):
            server = _connect(server)
        if server.get_connection_kwargs().get("decode_responses"):
            raise TypeError(f"{server!r} decodes responses: make it without decode_responses=True")
        self._server = server
        self._prefix = prefix
        self._expire_seconds = expire_seconds

    def get(self, key: str, timeout: float) -> bytes:
        """See `KeyValueStore`."""
        return look_until(lambda: self.try_get(key), key, timeout)

    def try_get(self, key: str) -> bytes | None:
        """See `KeyValueStore`."""
        value: bytes | None = self._server.get(self._name(key))
        return value

    def put(self, key: str, value: bytes) -> None:
        """See `KeyValueStore`."""
        self._server.set(self._name(key), value, ex=self._expire_seconds)

    def _name(self, key: str) -> bytes:
        return (self._prefix + key).encode("utf-8", "surrogateescape")


def _connect(url: str) -> Any:
    import redis
    from redis.backoff import ExponentialBackoff
    from redis.retry import Retry

    # A plugin's threads ask a store, and Python cannot end while one of them waits for an answer.
    return redis.Redis.from_url(
        url,
        socket_timeout=_ANSWER_SECONDS,
        socket_connect_timeout=_ANSWER_SECONDS,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), _TRIES, (redis.ConnectionError,)),
    )
