"""Leaks, looked for: each kind of use many times over; also the script that does it.

`python -m leaks KIND=COUNT ...` prints a line of JSON for each: the bytes by which the process grew
while it did COUNT uses after as many to warm up, the seconds they took, the native objects left.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import sys
import time
from pathlib import Path

import numpy as np
from children import PLATFORM

import pjrt_hub
from pjrt_hub import ExecuteContext, ExecuteOptions, HostBufferSemantics
from pjrt_hub.errors import PjrtHubError, PluginInternalError

PROGRAMS = Path(__file__).absolute().parents[1] / "programs"


class Uses:
    """A client, and each kind of use as a method."""

    def __init__(self):
        self.client = pjrt_hub.client(PLATFORM, offline=True)
        self.source = pjrt_hub.empty_aligned((8,))
        self.source[:] = 1
        self.add = self.client.compile(PROGRAMS / "add.mlir")
        self.donating = self.client.compile(PROGRAMS / "donate.mlir")
        self.saved = self.add.serialize()
        self.buffer = self.put()
        self.wrong = self.client.buffer_from_host(np.arange(8))
        self.halves = self.source.astype(np.float16)
        self.bound_add = self.add.bind(self.buffer, self.buffer)
        self.looped = self.put()
        self.destination = np.empty(8, np.float32)

    def call(self):
        return self.add(self.buffer, self.buffer)

    def arrays(self):
        return self.add(self.source, self.source)

    def other_arrays(self):
        return self.add(self.source[::-1], self.source)

    def bound(self):
        return self.bound_add()

    def bind(self):
        return self.add.bind(self.source, self.buffer)

    def donation_loop(self):
        self.looped = self.donating(self.looped, self.buffer)

    def donated_array(self):
        return self.donating(self.source, self.buffer)

    def refused_array(self):
        with contextlib.suppress(TypeError):
            self.add(self.source, self.halves)

    def rows(self):
        options = ExecuteOptions(launch_id=1)
        return self.add.execute([[self.buffer] * 2], options, return_events=True)

    def context(self):
        with ExecuteContext(self.client) as context:
            self.add.execute([[self.buffer] * 2], ExecuteOptions(context=context))

    def put(self):
        return self.client.buffer_from_host(self.source)

    def put_shared(self):
        return self.client.buffer_from_host(
            self.source, semantics=HostBufferSemantics.IMMUTABLE_ZERO_COPY
        )

    def get(self):
        return self.buffer.to_numpy()

    def view(self):
        return memoryview(self.buffer)

    def event(self):
        self.call().ready.wait()

    def callback(self):
        self.buffer.ready.add_done_callback(repr)

    def donate(self):
        return self.donating(self.put(), self.buffer)

    def copy(self):
        return self.buffer.copy_to_device(self.client.devices[0])

    def delete(self):
        self.put().delete()

    def raw_copy(self):
        self.buffer.copy_raw_to_host(self.destination).wait()

    def reference(self):
        return self.buffer.external_reference()

    def alias(self):
        self.client.create_alias_buffer((8,)).fulfill(self.put())

    def broken_alias(self):
        self.client.create_alias_buffer((8,)).fail(PluginInternalError("on purpose"))

    def forgotten_alias(self):
        return self.client.create_alias_buffer((8,))

    def foreign_memory(self):
        return self.client.create_view_of_device_buffer(self.source, (8,))

    def uninitialized(self):
        return self.client.create_uninitialized_buffer((8,))

    def transfer(self):
        with self.client.create_buffers_for_async_host_to_device([((8,), "f32")]) as transfer:
            transfer.transfer_data(0, self.source, is_last=True)
            return transfer.retrieve_buffer(0)

    def dlpack(self):
        return self.client.from_dlpack(np.from_dlpack(self.buffer))

    def capsule(self):
        return self.buffer.__dlpack__(max_version=(1, 0))

    def pickled_buffer(self):
        return pickle.loads(pickle.dumps(self.buffer))

    def pickled_executable(self):
        return pickle.loads(pickle.dumps(self.add))

    def load(self):
        return self.client.load(self.saved)

    def compile(self):
        return self.client.compile(PROGRAMS / "add.mlir")

    def topology(self):
        vars(self.client).pop("topology", None)
        return self.client.topology.device_descriptions

    def one_client(self):
        with self.client.plugin.client() as client:
            client.buffer_from_host(self.source).ready.wait()

    def refused(self):
        with contextlib.suppress(TypeError):
            self.add(self.buffer, self.wrong)

    def failed(self):
        with contextlib.suppress(PjrtHubError):
            self.client.lookup_device(99)

    def failed_compile(self):
        with contextlib.suppress(PjrtHubError):
            self.client.compile(b"func.func @main() -> () { nonsense }")


KINDS = tuple(name for name in vars(Uses) if not name.startswith("_"))


def resident():
    """What the process holds in memory, in bytes, once nothing is on the way."""
    gc.collect()
    time.sleep(0.02)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settled(client, children):
    """The client's native objects, once what is on the way has ended: no more than `children`."""
    deadline = time.monotonic() + 10
    while client._num_children > children and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    return client._num_children


def grown(uses, kind, count):
    """Bytes, seconds and native objects that `count` uses leave, after as many before.

    The least of three rounds: what leaks does so in each, and malloc's arenas grow in one of them.
    """
    use, first = getattr(uses, kind), uses.client._num_children
    for _ in range(count):
        use()
    children = settled(uses.client, first)
    rounds = []
    while len(rounds) < 3 and (not rounds or min(rounds)[0] > 0):
        before, start = resident(), time.perf_counter()
        for _ in range(count):
            use()
        seconds = time.perf_counter() - start
        left = settled(uses.client, children) - children
        rounds.append((resident() - before, seconds, left))
        children += left
    nbytes, seconds, _ = min(rounds)
    return nbytes, seconds, max(left for *_, left in rounds)


if __name__ == "__main__":
    uses = Uses()
    for each in sys.argv[1:]:
        kind, _, count = each.partition("=")
        print(json.dumps([kind, int(count), *grown(uses, kind, int(count))]), flush=True)
