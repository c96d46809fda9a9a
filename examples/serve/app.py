"""all-MiniLM-L6-v2 behind HTTP: POST /embed {"texts": [...]} gives {"embeddings": [[...], ...]}.

python examples/serve/app.py --port 8000
"""

import argparse
import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import prometheus_client as prometheus
import uvicorn
from batching import Batcher, BatchFailedError, QueueClosedError, QueueFullError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may take."""

    body_nbytes: int = 256 * 1024
    texts: int = 64
    batch_texts: int = 32
    waiting_texts: int = 1024
    seconds: float = 10.0
    connections: int = 1000


class RefusedError(Exception):
    """A request that is wrong in itself: an HTTP status and a sentence."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


#: Other ends of a request. Nobody receives the 499, which proxies log for a client that hung up.
ENDINGS = {
    BatchFailedError: (500, "the computation failed; the server's log says why"),
    ClientDisconnect: (499, "the client hung up"),
    QueueClosedError: (503, "the server is ending"),
    QueueFullError: (503, "too many texts wait already"),
    TimeoutError: (504, "there was no answer in time"),
}


class Metrics:
    """What /metrics tells, counted for one server."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        here = {"namespace": "embed", "registry": self.registry}
        sizes = [1, 2, 4, 8, 16, 32, 64, 128]
        self.requests = prometheus.Counter("requests", "Answers, by status.", ["status"], **here)
        self.seconds = prometheus.Histogram("request_seconds", "From head to answer.", **here)
        self.waiting = prometheus.Gauge("waiting_texts", "Texts in no batch yet.", **here)
        self.batch = prometheus.Histogram("batch_texts", "Texts of a batch.", buckets=sizes, **here)
        self.batch_seconds = prometheus.Histogram("batch_seconds", "Time of a batch.", **here)
        self.compiled = prometheus.Gauge("compiled_programs", "Not in the compile cache.", **here)


class Service:
    """One server: an encoder, the batcher before it, and the answers to HTTP.

    Args:
        load: makes what `encoder.Encoder` is, in a thread.
        limits: beyond them a request is refused.
    """

    def __init__(self, load: Callable[[], Any], limits: Limits | None = None) -> None:
        self.load = load
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self.batcher: Batcher[str, Any] | None = None
        self.state = "starting"
        routes = [
            Route("/embed", self.embed, methods=["POST"]),
            Route("/health", self.health),
            Route("/health/live", self.live),
            Route("/metrics", self.measured),
        ]
        self.app = Starlette(routes=routes, lifespan=self.lifespan)

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Load while the port is open already; in the end computes whatever was taken."""
        stop = asyncio.Event()
        serving = asyncio.create_task(self.serve(stop))
        yield
        stop.set()
        await serving

    async def serve(self, stop: asyncio.Event) -> None:
        """Hold an encoder and a batcher until it is told to stop."""
        try:
            encoder = await asyncio.to_thread(self.load)
        except Exception:
            logging.exception("the encoder cannot be loaded")
            self.state = "failed"
            return

        async def compute(texts: Sequence[str]) -> Sequence[Any]:
            self.metrics.batch.observe(len(texts))
            with self.metrics.batch_seconds.time():
                try:
                    return await encoder(texts)
                except Exception:
                    logging.exception("a batch of %d texts failed", len(texts))
                    raise

        self.metrics.compiled.set(encoder.cache.compiled)
        size, bound = self.limits.batch_texts, self.limits.waiting_texts
        async with Batcher(compute, max_batch=size, max_waiting=bound) as batcher:
            self.metrics.waiting.set_function(lambda: batcher.waiting)
            self.batcher = batcher
            self.state = "ready"
            await stop.wait()
            self.state = "stopping"
        encoder.close()

    async def embed(self, request: Request) -> Response:
        """Give an embedding for each text, or say what is wrong and whether to come again."""
        with self.metrics.seconds.time():
            try:
                async with asyncio.timeout(self.limits.seconds):
                    embeddings = await self.embeddings(request)
                answer = JSONResponse({"embeddings": [row.tolist() for row in embeddings]})
            except RefusedError as exc:
                answer = refusal(exc.status, str(exc))
            except tuple(ENDINGS) as exc:
                answer = refusal(*ENDINGS[type(exc)])
        self.metrics.requests.labels(answer.status_code).inc()
        return answer

    async def embeddings(self, request: Request) -> Sequence[Any]:
        """Read a request, and compute unless its client hangs up."""
        if self.batcher is None:
            raise RefusedError(503, f"the server is not ready: {self.state}")
        texts = parsed(await body(request, self.limits.body_nbytes))
        if len(texts) > self.limits.texts:
            raise RefusedError(413, f"{len(texts)} texts are more than {self.limits.texts}")
        return await unless_gone(request, self.batcher.submit(texts)) if texts else []

    async def health(self, _: Request) -> Response:
        """Whether requests should be sent here."""
        return JSONResponse({"state": self.state}, 200 if self.state == "ready" else 503)

    async def live(self, _: Request) -> Response:
        """Whether this process should be left alone: only a failed start is hopeless."""
        return JSONResponse({"state": self.state}, 503 if self.state == "failed" else 200)

    async def measured(self, _: Request) -> Response:
        """The metrics in Prometheus' text form."""
        text = prometheus.generate_latest(self.metrics.registry)
        return Response(text, media_type=prometheus.CONTENT_TYPE_LATEST)


def refusal(status: int, reason: str) -> JSONResponse:
    """An answer without embeddings; 503 means that the same request may be sent again."""
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"error": reason}, status, headers)


async def body(request: Request, limit: int) -> bytes:
    """Read a body of at most `limit` bytes, and of a longer one no more than that."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > limit:
            raise RefusedError(413, f"the body is longer than {limit} bytes")
    return bytes(content)


def parsed(content: bytes) -> list[str]:
    """The texts of a request's body."""
    try:
        texts = json.loads(content)["texts"]
        "".join(texts).encode()  # Half a surrogate pair would make the whole batch fail.
    except (ValueError, TypeError, KeyError, RecursionError):
        texts = None
    if not isinstance(texts, list):
        raise RefusedError(400, 'the body must be JSON: {"texts": ["one", "another"]}')
    return texts


async def unless_gone(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Await work, and cancels it when the client hangs up.

    Raises:
        ClientDisconnect: it did.
    """

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.create_task(work), asyncio.create_task(gone())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


def main() -> None:
    """Serve until SIGTERM or Ctrl-C, after which it answers what it has taken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--platform", help="where to compute (default: the best that is here)")
    parser.add_argument("--batch", type=int, default=Limits.batch_texts, metavar="TEXTS")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 3, 4, 6, 8])
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 32, 64, 128])
    parser.add_argument("--deadline", type=float, default=Limits.seconds, metavar="SECONDS")
    options = parser.parse_args()

    def load() -> Any:
        import encoder

        packer = encoder.Packer(options.rows, options.lengths)
        return encoder.Encoder(options.platform, packer)

    limits = Limits(seconds=options.deadline, batch_texts=options.batch)
    uvicorn.run(
        Service(load, limits).app,
        host=options.host,
        port=options.port,
        limit_concurrency=limits.connections,
        # This is longer than proxies and clients keep idle connections: if one side closes a
        # connection while the other sends on it, the request is lost.
        timeout_keep_alive=75,
    )


if __name__ == "__main__":
    main()
