"""Why pjrt-hub does not call some functions of the PJRT C API; `coverage.py` prints it.

A key is a function, or an extension for those of its functions that are not called.
"""

from __future__ import annotations

_NEEDS_TPU = "needs a TPU client, and only libtpu offers it"
_NEEDS_CLIENT = "needs a client of a GPU or TPU"
_RAW = "called [by its C name](extensions.md#by-the-c-names)"

REASONS = {
    "PJRT_Event_Await": "it cannot be interrupted: `OnReady` sets a latch, which Ctrl-C ends",
    "PJRT_Buffer_ElementType": "told by the call or the program that made the buffer",
    "PJRT_Buffer_Dimensions": "told by the call or the program that made the buffer",
    "PJRT_Buffer_Device": "told by the call that made the buffer, or by its memory",
    "PJRT_LoadedExecutable_Fingerprint": (
        "unimplemented in every plugin that could be tried; `PJRT_Executable_Fingerprint` is not"
    ),
    "Megascale": f"{_NEEDS_TPU}, on several slices; {_RAW}",
    "AbiVersion": f"{_NEEDS_CLIENT}; {_RAW}",
    "Callback": f"{_NEEDS_TPU}; {_RAW}",
    "HostMemoryAllocator": f"{_NEEDS_TPU}; {_RAW}",
    "RawBuffer": f"{_NEEDS_TPU}; {_RAW}",
    "Stream": f"{_NEEDS_CLIENT}; {_RAW}",
    "TpuTopology": f"tables of machines, which no topology needs; {_RAW}",
    "Triton": f"no plugin that could be tried offers it; {_RAW}",
    "CrossHostTransfers": f"needs clients of two hosts with GPUs or TPUs; {_RAW}",
    "Collectives": f"{_NEEDS_TPU}, made by Megascale; {_RAW}",
}


def reason(function: str, extension: str = "") -> str:
    """Why a function is not called; "" where the table has none."""
    return REASONS.get(function) or REASONS.get(extension, "")
