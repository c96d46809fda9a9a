"""Host memory that a plugin's devices reach fastest (extension HostMemoryAllocator)."""

from __future__ import annotations

import operator
import weakref
from typing import TYPE_CHECKING, Any

from pjrt_hub.running.capi import irregular

if TYPE_CHECKING:
    import numpy

    from pjrt_hub.running.capi.handle import ClientHandle


def allocate(client: ClientHandle, nbytes: int, numa_node: int = 0) -> numpy.ndarray[Any, Any]:
    """Allocate an uninitialized array of bytes (`PJRT_HostMemoryAllocator_Allocate`).

    It is freed with the last view of it. It must not outlive the client.

    Args:
        client: whose devices reach it.
        nbytes: at least 1.
        numa_node: of the machine's memory.

    Raises:
        UnsupportedByPluginError: the plugin has no such extension (all but libtpu).
        ValueError: there are no bytes, or no such node can be.
        PjrtError: there is no memory.
    """
    import numpy

    node = client.api.extension("HostMemoryAllocator")
    size, place = operator.index(nbytes), operator.index(numa_node)
    if size < 1 or not 0 <= place < 1 << 31:
        raise ValueError(f"{size} bytes of the node {place} cannot be")
    with client.in_call():
        memory, free = irregular.host_memory(node, client.address, size, place)
    owner = numpy.frombuffer(memory, numpy.uint8)
    weakref.finalize(owner, free)
    return owner[:]  # views of it keep the owner, whatever their base
