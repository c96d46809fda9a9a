"""Makes batches of what comes singly: items that wait while a batch is computed form the next one.

Pure asyncio; it knows nothing of HTTP, models or devices.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class QueueFullError(Exception):
    """As many items wait as may: whoever sends more should come again later."""


class QueueClosedError(Exception):
    """The batcher is ending and takes nothing new."""


class BatchFailedError(Exception):
    """The batch that an item was in has failed; `__cause__` says why."""


class Batcher(Generic[Item, Result]):
    """Computes items in batches, first come, first served, and gives each caller its own results.

    As a context manager it computes between entering and leaving. Leaving refuses what is new and
    waits until everything that was taken has its result.

    Args:
        compute: gives a result for each item of a batch, in their order.
        max_batch: the items of a batch.
        max_waiting: the items that may wait for one.
        in_flight: batches at a time. With two, one is prepared while the device computes another.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        max_batch: int,
        max_waiting: int,
        in_flight: int = 2,
    ) -> None:
        self.compute = compute
        self.max_batch = max_batch
        self.max_waiting = max_waiting
        self.in_flight = in_flight
        # A dict keeps the order, and forgets an item from its middle at once.
        self._waiting: dict[asyncio.Future[Result], Item] = {}
        self._changed = asyncio.Event()
        self._closing = False

    @property
    def waiting(self) -> int:
        """How many items wait for a batch."""
        return len(self._waiting)

    async def submit(self, items: Sequence[Item]) -> list[Result]:
        """Give the items' results; all of them are taken or none.

        Whoever cancels this call takes back the items that are in no batch yet.

        Raises:
            QueueFullError: they would be more than may wait.
            QueueClosedError: the batcher is ending.
            BatchFailedError: the computation raised.
        """
        if self._closing:
            raise QueueClosedError
        if len(self._waiting) + len(items) > self.max_waiting:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        results = {loop.create_future(): item for item in items}
        self._waiting |= results
        self._changed.set()
        try:
            return await asyncio.gather(*results)
        finally:
            for result in results:
                self._waiting.pop(result, None)

    async def __aenter__(self) -> "Batcher[Item, Result]":
        self._tasks = [asyncio.create_task(self._serve()) for _ in range(self.in_flight)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._changed.set()
        await asyncio.gather(*self._tasks)

    async def _serve(self) -> None:
        """Compute batch after batch, until the batcher ends and nothing waits."""
        while self._waiting or not self._closing:
            if self._waiting:
                await self._compute(self._next())
            else:
                self._changed.clear()
                await self._changed.wait()

    def _next(self) -> dict[asyncio.Future[Result], Item]:
        batch = dict(islice(self._waiting.items(), self.max_batch))
        for result in batch:
            del self._waiting[result]
        return batch

    async def _compute(self, batch: dict[asyncio.Future[Result], Item]) -> None:
        """Give each item its result, or the reason why there is none; no other batch minds."""
        try:
            computed = await self.compute(list(batch.values()))
            answers = list(zip(batch, computed, strict=True))
        except Exception as exc:
            for result in batch:
                if not result.done():
                    failed = BatchFailedError(f"{type(exc).__name__}: {exc}")
                    failed.__cause__ = exc
                    result.set_exception(failed)
            return
        for result, value in answers:
            if not result.done():  # The caller may be gone.
                result.set_result(value)
