"""Wrong views, copies, transfers, loans and promises of memory, and deleted memory."""

from __future__ import annotations

import numpy as np

import pjrt_hub
from misuse.case import FAILED, NUMBERS, SPACE, capsule, taken_twice, write_into
from pjrt_hub.errors import ClosedError, PluginInternalError

CASES = [
    # Wrong views of memory
    (lambda c: c.view(0), ValueError, "0 is not the address"),
    (lambda c: c.view(-64), ValueError, "-64 is not the address"),
    (lambda c: c.view(1 << 64), ValueError, "18446744073709551616 is not"),
    (lambda c: c.view((1 << 70) + 64), ValueError, "is not the address of 32"),
    (lambda c: c.view((1 << 64) - 16), ValueError, "is not the address of 32"),
    (
        lambda c: c.view(pjrt_hub.empty_aligned((4,))),
        ValueError,
        "needs 32 bytes, the memory has 16",
    ),
    (lambda c: c.view(pjrt_hub.empty_aligned((16,))[::2]), ValueError, "not contiguous"),
    (lambda c: c.view(np.array([None] * 8)), TypeError, "Python objects"),
    (lambda c: c.view([1.0] * 8), TypeError, "list is neither an array"),
    (lambda c: c.view(pjrt_hub.empty_aligned((8,)), on_delete=5), TypeError, "on_delete is 5"),
    # Wrong raw copies
    (lambda c: c.f.copy_raw_to_host(b"12"), ValueError, "read-only"),
    (lambda c: c.f.copy_raw_to_host(SPACE[::2]), ValueError, "not contiguous"),
    (lambda c: c.f.copy_raw_to_host([0.0]), TypeError, "list is neither"),
    (
        lambda c: c.f.copy_raw_to_host(bytearray(36)),
        ValueError,
        "36 bytes at offset 0 lie outside of .* 32",
    ),
    (lambda c: c.f.copy_raw_to_host(SPACE[:1], -4), ValueError, "4 bytes at offset -4 lie outside"),
    (lambda c: c.f.copy_raw_to_host(SPACE[:1], 2**70), ValueError, "lie outside"),
    (lambda c: c.deleted.copy_raw_to_host(SPACE), ClosedError, "deleted"),
    (lambda c: c.failed().copy_raw_to_host(SPACE), PluginInternalError, "on purpose"),
    (lambda c: c.add(c.failed(), c.f).copy_raw_to_host(SPACE), PluginInternalError, "on purpose"),
    (lambda c: c.failed().unsafe_pointer(), PluginInternalError, "on purpose"),
    (lambda c: pjrt_hub.ExternalReference(c.failed()), PluginInternalError, "on purpose"),
    # Wrong transfers
    (lambda c: c.transfers([[]]), TypeError, "not a pair"),
    (lambda c: c.transfers([]), ValueError, "one shape spec"),
    (lambda c: c.transfer().retrieve_buffer(1), IndexError, "1, of 1"),
    (
        lambda c: (lambda t: (t.retrieve_buffer(0), t.retrieve_buffer(0)))(c.transfer()),
        ValueError,
        "retrieved before",
    ),
    (
        lambda c: c.transfer().transfer_data(0, NUMBERS, offset=4),
        ValueError,
        "32 bytes at offset 4 do not fit into the 32",
    ),
    (lambda c: c.transfer().transfer_data(0, NUMBERS[:1], offset=-4), ValueError, "offset -4"),
    (
        lambda c: (lambda t: [t.transfer_data(0, NUMBERS[:2]) for _ in range(2)])(c.transfer()),
        ValueError,
        "came before",
    ),
    (
        lambda c: c.transfer().transfer_data(0, NUMBERS[:2], is_last=True),
        ValueError,
        "leaves 24 bytes miss",
    ),
    (lambda c: c.complete().transfer_data(0, NUMBERS), ClosedError, "buffer 0 is complete"),
    (lambda c: c.complete().set_buffer_error(0, FAILED), ClosedError, "is complete"),
    (
        lambda c: c.transfer().transfer_data(0, np.arange(8, dtype=np.int32)),
        TypeError,
        r"0 is f32\[8\], the array has .* int32",
    ),
    (lambda c: c.transfer().set_buffer_error(0, ValueError("x")), TypeError, "is not a PjrtError"),
    (lambda c: c.transfer().add_metadata({"a": 1}), TypeError, "'a': 1"),
    (lambda c: c.transfer().add_metadata(["a"]), TypeError, "metadata"),
    (lambda c: c.transfer().transfer_data(7, NUMBERS), IndexError, "no buffer 7"),
    (lambda c: c.transfer().transfer_data(0, NUMBERS[::2]), ValueError, "contiguous"),
    (lambda c: c.transfer().transfer_data(0, [1.0]), TypeError, "list"),
    (lambda c: c.transfer().transfer_data(0, np.array([None])), TypeError, "objects"),
    (lambda c: c.transfer().buffer_size(-1), IndexError, "no buffer -1"),
    (lambda c: c.transfer().buffer_size("0"), TypeError, "str"),
    (lambda c: c.transfer().transfer_literal(0, NUMBERS[:2]), ValueError, r"\(2,\)"),
    (lambda c: c.transfers([((2,),)]), TypeError, "is not a pair"),
    (lambda c: c.transfers([((-1,), "f32")]), ValueError, "negative"),
    (lambda c: c.transfers([((1 << 40, 1 << 40), "f32")]), ValueError, "larger than any memory"),
    (lambda c: c.transfers([((2.5,), "f32")]), TypeError, "2.5"),
    (lambda c: c.transfers([((2,), "O")]), TypeError, "no element type"),
    (lambda c: c.transfers(3), TypeError, "not iterable"),
    # Wrong aliases
    (lambda c: (lambda a: a.fulfill(a.buffer))(c.alias()), ValueError, "cannot stand for itself"),
    (lambda c: c.alias().fulfill(NUMBERS), TypeError, "not ndarray"),
    (
        lambda c: c.alias().fulfill(c.typed("i32")),
        TypeError,
        r"is f32\[8\], the buffer has .* int32",
    ),
    (
        lambda c: c.alias().fulfill(c.shaped(9)),
        ValueError,
        r"is f32\[8\], the buffer has .* \(9,\)",
    ),
    (lambda c: c.alias().fulfill(c.foreign), ValueError, "another client"),
    (lambda c: c.alias().fulfill(c.far), ValueError, "alias lives in"),
    (
        lambda c: c.alias().fulfill(c.f.copy_to_memory(c.f.device.memories[1])),
        ValueError,
        "pinned_host",
    ),
    (lambda c: c.alias().fulfill(c.deleted), ClosedError, "deleted"),
    (
        lambda c: c.while_lent(pjrt_hub.ExternalReference),
        BufferError,
        "memory is lent out",
    ),
    (lambda c: c.fulfilled().fulfill(c.put(NUMBERS)), ClosedError, "kept or broken"),
    (lambda c: c.fulfilled().fail(FAILED), ClosedError, "kept or broken"),
    (lambda c: c.alias().fail(None), TypeError, "is not a Pjrt"),
    # Wrong DLPack capsules
    (lambda c: taken_twice(c.client, capsule(8)), ValueError, "taken before"),
    (lambda c: c.client.from_dlpack(capsule(8, ndim=-1)), BufferError, "-1 dimensions"),
    (lambda c: c.client.from_dlpack(capsule(8, ndim=100)), BufferError, "100 dimensions"),
    (lambda c: c.client.from_dlpack(capsule(-8)), ValueError, r"shape is \(-8,\)"),
    (lambda c: c.client.from_dlpack(capsule(2**62)), ValueError, "larger than any memory"),
    (lambda c: c.client.from_dlpack(capsule(2**40, 2**40)), ValueError, "larger than any memory"),
    (lambda c: c.client.from_dlpack(capsule(8, null=True)), ValueError, "no memory"),
    (lambda c: c.client.from_dlpack(capsule(8, lanes=4)), TypeError, "4 lanes"),
    (lambda c: c.client.from_dlpack(capsule(8, code=99)), TypeError, "99"),
    (lambda c: c.client.from_dlpack(capsule(8, device=2)), BufferError, r"device \(2, 0\)"),
    # Memory of deleted and donated buffers
    (lambda c: memoryview(c.deleted), ClosedError, "deleted"),
    (lambda c: memoryview(c.donated), ClosedError, "donated"),
    (lambda c: memoryview(c.typed("bf16")), BufferError, "to_numpy"),
    (lambda c: write_into(c.f.to_numpy()), ValueError, "read-only"),
    (lambda c: c.f.to_numpy().setflags(write=True), ValueError, "WRITEABLE"),
    (lambda c: c.put(c.donated), ClosedError, "deleted"),
    (lambda c: c.deleted.item(), ClosedError, "deleted"),
    (lambda c: c.donated.ready, ClosedError, "deleted"),
    (lambda c: c.deleted.to_numpy(), ClosedError, "deleted"),
    (lambda c: np.asarray(c.donated), ClosedError, "deleted or donated"),
    (lambda c: c.stale.tolist(), ClosedError, "client is closed"),
    (lambda c: len(c.shaped()), TypeError, "no length"),
    (lambda c: float(c.f), ValueError, "size 1"),
]
#: Cases that lend or borrow memory, which only works if a device's memory is the host's.
OF_HOSTS = [
    (lambda c: c.view(np.uint64(68)), ValueError, "0x44 does not begin at"),
    (lambda c: c.view(68), ValueError, "0x44 does not begin at a multiple of 64"),
    (lambda c: c.while_lent(lambda b: b.to_numpy()), BufferError, "memory is lent out"),
    (lambda c: c.deleted.__dlpack__(), ClosedError, "deleted"),
    (
        lambda c: taken_twice(c.client, c.f.__dlpack__(max_version=(1, 0))),
        ValueError,
        "taken before",
    ),
    (lambda c: c.client.from_dlpack(c.deleted), ClosedError, "deleted"),
    (lambda c: np.from_dlpack(c.donated), ClosedError, "deleted or donated"),
    (lambda c: c.stale.__dlpack__(), ClosedError, "closed"),
    (lambda c: c.late.from_dlpack(np.zeros(3)), ClosedError, "closed"),
    (lambda c: memoryview(c.failed()), PluginInternalError, "on purpose"),
    (lambda c: write_into(memoryview(c.f)), TypeError, "read-only"),
]
