"""Eight devices of one process, for tests whose body runs in a process of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from children import PLATFORM, PROGRAMS, SLOW, device_count

import pjrt_hub
from pjrt_hub import CompileOptions, ExecuteOptions

EIGHT = CompileOptions(num_replicas=8)


class Together:
    """A client of eight devices, and programs that run on all of them."""

    def __init__(self):
        self.client = pjrt_hub.client(PLATFORM, offline=True, options=device_count(8))
        self.reduce = self.client.compile(PROGRAMS / "all_reduce.mlir", EIGHT)
        self.donate = self.client.compile(PROGRAMS / "donate.mlir", EIGHT)

    def put(self, value, size=4):
        array = np.full(size, value, np.float32)
        return [[self.client.buffer_from_host(array, device=each)] for each in self.client.devices]

    def pairs(self):
        return [a + b for a, b in zip(self.put(1, 8), self.put(1, 8), strict=True)]

    def check(self, results, value):
        assert [r.tolist() for [r] in results] == [[8.0 * value] * 4] * 8

    def check_reduce(self, value):
        self.check(self.reduce.execute(self.put(value)), value)

    def slow(self, device, rounds):
        """A program that takes as long as `rounds` says, and its arguments."""
        put = partial(self.client.buffer_from_host, device=device)
        options = CompileOptions(device_ids=[[device.id]])
        return self.client.compile(SLOW, options), put(np.eye(256, dtype="f4")), put(rounds)

    def in_parts(self, threads, rows, **options):
        """Launches the sum in parts, a thread for each, and gives their outputs."""
        options = ExecuteOptions(**options)
        parts = zip(rows, self.reduce.devices, strict=True)
        started = [threads.submit(self.reduce.execute_on, *each, options) for each in parts]
        return [each.result()[0] for each in started]

    def rounds(self, count, callers):
        """Launches the sum whole and in parts, so many times each, from several threads at once.

        Whole launches come with an id that all share, or none; parts with one for each thread.
        """

        def call(number):
            rows = self.put(number)
            with ThreadPoolExecutor(8) as threads:
                for turn in range(number, count, callers):
                    whole = self.reduce.execute(rows, ExecuteOptions(launch_id=turn % 3))
                    self.check(self.in_parts(threads, rows, launch_id=number), number)
                    self.check(whole, number)

        with ThreadPoolExecutor(callers) as threads:
            list(threads.map(call, range(callers)))
