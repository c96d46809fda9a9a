"""Memory: viewed, copied, filled, lent and promised wrongly, or gone."""

from __future__ import annotations

import numpy as np

import pjrt_hub
from misuse.case import FAILED, NUMBERS, capsule, taken_twice, write_into
from pjrt_hub.errors import ClosedError, PluginInternalError

CASES = {
    # Views of memory
    "memory nowhere": (lambda c: c.view(0), ValueError, "0 is not the address"),
    "memory below": (lambda c: c.view(-64), ValueError, "-64 is not the address"),
    "memory beyond 64 bits": (lambda c: c.view(1 << 64), ValueError, "18446744073709551616 is not"),
    "memory far beyond": (lambda c: c.view((1 << 70) + 64), ValueError, "is not the address of 32"),
    "memory past the last": (
        lambda c: c.view((1 << 64) - 16),
        ValueError,
        "is not the address of 32",
    ),
    "a number of numpy's": (lambda c: c.view(np.uint64(68)), ValueError, "0x44 does not begin at"),
    "memory askew": (lambda c: c.view(68), ValueError, "0x44 does not begin at a multiple of 64"),
    "too little memory": (
        lambda c: c.view(pjrt_hub.empty_aligned((4,))),
        ValueError,
        "needs 32 bytes, the memory has 16",
    ),
    "memory with gaps": (
        lambda c: c.view(pjrt_hub.empty_aligned((16,))[::2]),
        ValueError,
        "not contiguous",
    ),
    "memory of objects": (lambda c: c.view(np.array([None] * 8)), TypeError, "Python objects"),
    "a list as memory": (lambda c: c.view([1.0] * 8), TypeError, "list is neither an array"),
    "a deleter that cannot be called": (
        lambda c: c.view(pjrt_hub.empty_aligned((8,)), on_delete=5),
        TypeError,
        "on_delete is 5",
    ),
    # Raw copies
    "into what is read-only": (lambda c: c.f.copy_raw_to_host(b"12"), ValueError, "read-only"),
    "into gaps": (
        lambda c: c.f.copy_raw_to_host(np.empty(8, np.float32)[::2]),
        ValueError,
        "not contiguous",
    ),
    "into a list": (lambda c: c.f.copy_raw_to_host([0.0]), TypeError, "list is neither"),
    "more than there are": (
        lambda c: c.f.copy_raw_to_host(np.empty(9, np.float32)),
        ValueError,
        "36 bytes at offset 0 lie outside of the buffer's 32",
    ),
    "before the first": (
        lambda c: c.f.copy_raw_to_host(np.empty(1, np.float32), -4),
        ValueError,
        "4 bytes at offset -4 lie outside",
    ),
    "past the last": (
        lambda c: c.f.copy_raw_to_host(np.empty(1, np.float32), 2**70),
        ValueError,
        "lie outside",
    ),
    "of what is deleted": (
        lambda c: c.deleted.copy_raw_to_host(np.empty(8, np.float32)),
        ClosedError,
        "deleted",
    ),
    "of what failed": (
        lambda c: c.failed().copy_raw_to_host(np.empty(8, np.float32)),
        PluginInternalError,
        "on purpose",
    ),
    "of what depends on what failed": (
        lambda c: c.add(c.failed(), c.f).copy_raw_to_host(np.empty(8, np.float32)),
        PluginInternalError,
        "on purpose",
    ),
    "the address of what failed": (
        lambda c: c.failed().unsafe_pointer(),
        PluginInternalError,
        "on purpose",
    ),
    "the memory of what failed": (
        lambda c: c.failed().external_reference(),
        PluginInternalError,
        "on purpose",
    ),
    "a reference that was released": (
        lambda c: (lambda lent: (lent.release(), lent.release(), lent.pointer))(
            c.f.external_reference()
        ),
        ClosedError,
        "was released",
    ),
    # Transfers
    "a transfer of nothing": (lambda c: c.transfer(*[[]]), TypeError, "not a pair"),
    "a transfer without specs": (
        lambda c: c.client.create_buffers_for_async_host_to_device([]),
        ValueError,
        "one shape spec",
    ),
    "another buffer of a transfer": (
        lambda c: c.transfer().retrieve_buffer(1),
        IndexError,
        "1, of 1",
    ),
    "a buffer twice": (
        lambda c: (lambda t: (t.retrieve_buffer(0), t.retrieve_buffer(0)))(c.transfer()),
        ValueError,
        "retrieved before",
    ),
    "a part outside": (
        lambda c: c.transfer().transfer_data(0, NUMBERS, offset=4),
        ValueError,
        "32 bytes at offset 4 do not fit into the 32 bytes",
    ),
    "a part before": (
        lambda c: c.transfer().transfer_data(0, NUMBERS[:1], offset=-4),
        ValueError,
        "offset -4",
    ),
    "a part again": (
        lambda c: (lambda t: [t.transfer_data(0, NUMBERS[:2]) for _ in range(2)])(c.transfer()),
        ValueError,
        "came before",
    ),
    "a last part of many": (
        lambda c: c.transfer().transfer_data(0, NUMBERS[:2], is_last=True),
        ValueError,
        "leaves 24 bytes missing",
    ),
    "a part of what is complete": (
        lambda c: c.complete().transfer_data(0, NUMBERS),
        ClosedError,
        "buffer 0 is complete",
    ),
    "an error of what is complete": (
        lambda c: c.complete().set_buffer_error(0, FAILED),
        ClosedError,
        "is complete",
    ),
    "a part of another dtype": (
        lambda c: c.transfer().transfer_data(0, np.arange(8, dtype=np.int32)),
        TypeError,
        r"buffer 0 is f32\[8\], the array has the dtype int32",
    ),
    "a failure that is none": (
        lambda c: c.transfer().set_buffer_error(0, ValueError("x")),
        TypeError,
        "is not a PjrtError",
    ),
    "metadata that are no text": (
        lambda c: c.transfer().add_metadata({"a": 1}),
        TypeError,
        "'a': 1",
    ),
    "metadata that are no mapping": (
        lambda c: c.transfer().add_metadata(["a"]),
        TypeError,
        "metadata",
    ),
    # Aliases
    "an alias of itself": (
        lambda c: (lambda a: a.fulfill(a.buffer))(c.alias()),
        ValueError,
        "cannot stand for itself",
    ),
    "an alias of an array": (lambda c: c.alias().fulfill(NUMBERS), TypeError, "not ndarray"),
    "an alias of another dtype": (
        lambda c: c.alias().fulfill(c.typed("i32")),
        TypeError,
        r"alias is f32\[8\], the buffer has the dtype int32",
    ),
    "an alias of another shape": (
        lambda c: c.alias().fulfill(c.shaped(9)),
        ValueError,
        r"alias is f32\[8\], the buffer has the shape \(9,\)",
    ),
    "an alias of another client": (
        lambda c: c.alias().fulfill(c.foreign),
        ValueError,
        "another client",
    ),
    "an alias elsewhere": (lambda c: c.alias().fulfill(c.far), ValueError, "alias lives in"),
    "an alias of what is deleted": (lambda c: c.alias().fulfill(c.deleted), ClosedError, "deleted"),
    "an alias of what is lent": (
        lambda c: (lambda b, _: c.alias().fulfill(b))(
            *(lambda b: (b, b.to_numpy()))(c.put(NUMBERS))
        ),
        BufferError,
        "memory is lent out",
    ),
    "an alias of what is referred to": (
        lambda c: (lambda b, _: c.alias().fulfill(b))(
            *(lambda b: (b, b.external_reference()))(c.put(NUMBERS))
        ),
        BufferError,
        "memory is lent out",
    ),
    "an alias twice": (
        lambda c: c.fulfilled().fulfill(c.put(NUMBERS)),
        ClosedError,
        "kept or broken",
    ),
    "an alias failed late": (lambda c: c.fulfilled().fail(FAILED), ClosedError, "kept or broken"),
    "an alias failed with nothing": (lambda c: c.alias().fail(None), TypeError, "is not a Pjrt"),
    # DLPack
    "a capsule twice": (lambda c: taken_twice(c.client), ValueError, "taken before"),
    "no capsule": (lambda c: c.client.from_dlpack(5), TypeError, "not a DLPack capsule"),
    "fewer than no dimensions": (
        lambda c: c.client.from_dlpack(capsule(8, ndim=-1)),
        BufferError,
        "-1 dimensions",
    ),
    "a hundred dimensions": (
        lambda c: c.client.from_dlpack(capsule(8, ndim=100)),
        BufferError,
        "100 dimensions",
    ),
    "a tensor of a negative size": (
        lambda c: c.client.from_dlpack(capsule(-8)),
        ValueError,
        r"shape is \(-8,\)",
    ),
    "a tensor of 2^64 bytes": (
        lambda c: c.client.from_dlpack(capsule(2**62)),
        ValueError,
        "larger than any memory",
    ),
    "a tensor that overflows": (
        lambda c: c.client.from_dlpack(capsule(2**40, 2**40)),
        ValueError,
        "larger than any memory",
    ),
    "a tensor without memory": (
        lambda c: c.client.from_dlpack(capsule(8, null=True)),
        ValueError,
        "no memory",
    ),
    "a tensor of vectors": (
        lambda c: c.client.from_dlpack(capsule(8, lanes=4)),
        TypeError,
        "4 lanes",
    ),
    "a tensor of code 99": (lambda c: c.client.from_dlpack(capsule(8, code=99)), TypeError, "99"),
    "a tensor of a GPU": (
        lambda c: c.client.from_dlpack(capsule(8, device=2)),
        BufferError,
        r"device \(2, 0\)",
    ),
    "a deleted buffer's memory": (lambda c: c.deleted.__dlpack__(), ClosedError, "deleted"),
    "another's deleted buffer": (lambda c: c.client.from_dlpack(c.deleted), ClosedError, "deleted"),
    "to another device": (
        lambda c: c.f.__dlpack__(dl_device=(2, 0)),
        BufferError,
        r"\(2, 0\)",
    ),
    # Memory of what is gone
    "a view of what is deleted": (lambda c: memoryview(c.deleted), ClosedError, "deleted"),
    "a view of what is donated": (lambda c: memoryview(c.donated), ClosedError, "donated"),
    "a view of what failed": (lambda c: memoryview(c.failed()), PluginInternalError, "on purpose"),
    "a view of what Python cannot name": (
        lambda c: memoryview(c.typed("bf16")),
        BufferError,
        "to_numpy",
    ),
    "writing": (lambda c: write_into(c.f.to_numpy()), ValueError, "read-only"),
    "writing through a view": (lambda c: write_into(memoryview(c.f)), TypeError, "read-only"),
    "reading what is deleted": (lambda c: c.deleted.to_numpy(), ClosedError, "deleted"),
    "reading what is donated": (lambda c: np.asarray(c.donated), ClosedError, "deleted or donated"),
    "reading of a closed client": (lambda c: c.stale.tolist(), ClosedError, "client is closed"),
    "the length of a scalar": (lambda c: len(c.shaped()), TypeError, "no length"),
    "one number of eight": (lambda c: float(c.f), ValueError, "size 1"),
}
