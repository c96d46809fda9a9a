"""A search for leaks, which repeats each kind of use many times; also runs as a script.

`python -m leaks KIND=COUNT ...` prints a line of JSON for each kind. It has the bytes by which the
process grew in COUNT uses after COUNT to warm up, their seconds, and the native objects left.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from children import PLATFORM, PROGRAMS

import pjrt_hub
from pjrt_hub import ExecuteOptions, HostBufferSemantics
from pjrt_hub.errors import PjrtHubError, PluginInternalError
from pjrt_hub.extensions import execute_context


class Used:
    """A client and the objects that the uses need."""

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

    def put(self, **how):
        return self.client.buffer_from_host(self.source, **how)

    def alias(self):
        return pjrt_hub.Alias(self.client, (8,))

    def execute(self, **options):
        row = [self.buffer] * 2
        return self.add.execute([row], ExecuteOptions(**options), return_events=True)

    def donate_again(self):
        self.looped = self.donating(self.looped, self.buffer)

    def execute_in_a_context(self):
        with execute_context.ExecuteContext(self.client) as context:
            self.execute(context=context)

    def transfer(self):
        with pjrt_hub.Transfer(self.client, [((8,), "f32")]) as transfer:
            transfer.transfer_data(0, self.source, is_last=True)
            return transfer.retrieve_buffer(0)

    def topology(self):
        vars(self.client).pop("topology", None)
        return self.client.topology.device_descriptions

    def one_client(self):
        with self.client.plugin.client() as client:
            client.buffer_from_host(self.source).ready.wait()


def refused(use, *arguments, error=TypeError):
    with contextlib.suppress(error):
        use(*arguments)


FAILURE = PluginInternalError("on purpose")
ZERO_COPY = HostBufferSemantics.IMMUTABLE_ZERO_COPY
#: Name of a kind of use -> the function that does it once.
KINDS = {
    "call": lambda u: u.add(u.buffer, u.buffer),
    "arrays": lambda u: u.add(u.source, u.source),
    "other_arrays": lambda u: u.add(u.source[::-1], u.source),
    "bound": lambda u: u.bound_add(),
    "bind": lambda u: u.add.bind(u.source, u.buffer),
    "donation_loop": Used.donate_again,
    "donated_array": lambda u: u.donating(u.source, u.buffer),
    "refused_array": lambda u: refused(u.add, u.source, u.halves),
    "rows": lambda u: u.execute(launch_id=1),
    "context": Used.execute_in_a_context,
    "put": Used.put,
    "put_shared": lambda u: u.put(semantics=ZERO_COPY),
    "get": lambda u: u.buffer.to_numpy(),
    "view": lambda u: memoryview(u.buffer),
    "event": lambda u: u.add(u.buffer, u.buffer).ready.wait(),
    "callback": lambda u: u.buffer.ready.add_done_callback(repr),
    "donate": lambda u: u.donating(u.put(), u.buffer),
    "copy": lambda u: u.buffer.copy_to_device(u.client.devices[0]),
    "delete": lambda u: u.put().delete(),
    "raw_copy": lambda u: u.buffer.copy_raw_to_host(u.destination).wait(),
    "reference": lambda u: pjrt_hub.ExternalReference(u.buffer),
    "alias": lambda u: u.alias().fulfill(u.put()),
    "broken_alias": lambda u: u.alias().fail(FAILURE),
    "forgotten_alias": Used.alias,
    "foreign_memory": lambda u: u.client.create_view_of_device_buffer(u.source, (8,)),
    "uninitialized": lambda u: u.client.create_uninitialized_buffer((8,)),
    "transfer": Used.transfer,
    "dlpack": lambda u: u.client.from_dlpack(np.from_dlpack(u.buffer)),
    "capsule": lambda u: u.buffer.__dlpack__(max_version=(1, 0)),
    "pickled_buffer": lambda u: pickle.loads(pickle.dumps(u.buffer)),
    "pickled_executable": lambda u: pickle.loads(pickle.dumps(u.add)),
    "load": lambda u: u.client.load(u.saved),
    "compile": lambda u: u.client.compile(PROGRAMS / "add.mlir"),
    "topology": Used.topology,
    "one_client": Used.one_client,
    "refused": lambda u: refused(u.add, u.buffer, u.wrong),
    "failed": lambda u: refused(u.client.lookup_device, 99, error=PjrtHubError),
    "failed_compile": lambda u: refused(
        u.client.compile, b"func.func @main() -> () { nonsense }", error=PjrtHubError
    ),
}


def resident():
    """The bytes of memory that the process holds once no work is pending."""
    gc.collect()
    time.sleep(0.02)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settled(client, children):
    """The number of the client's native objects once pending work has ended: at most `children`."""
    deadline = time.monotonic() + 10
    while client._num_children > children and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    return client._num_children


def grown(used, kind, count):
    """The bytes and native objects that `count` uses leave after a warm-up, and their seconds.

    It is the least of three rounds: a leak shows in each, while malloc's arenas grow in only one.
    """
    use, first = partial(KINDS[kind], used), used.client._num_children
    for _ in range(count):
        use()
    children = settled(used.client, first)
    rounds = []
    while len(rounds) < 3 and (not rounds or min(rounds)[0] > 0):
        before, start = resident(), time.perf_counter()
        for _ in range(count):
            use()
        seconds = time.perf_counter() - start
        left = settled(used.client, children) - children
        rounds.append((resident() - before, seconds, left))
        children += left
    nbytes, seconds, _ = min(rounds)
    return nbytes, seconds, max(left for *_, left in rounds)


if __name__ == "__main__":
    used = Used()
    for each in sys.argv[1:]:
        kind, _, count = each.partition("=")
        print(json.dumps([kind, int(count), *grown(used, kind, int(count))]), flush=True)
