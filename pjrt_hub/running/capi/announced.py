"""What the extension Callback hands to a callback, valid only while it runs."""

from __future__ import annotations

from pjrt_hub.running.capi import bounds
from pjrt_hub.running.capi._pjrt import ffi


def prefatal(address: int) -> tuple[int, str]:
    """`PJRT_Callback_PrefatalArgs`: the code and text of the error that will end the process."""
    args = ffi.cast("PJRT_Callback_PrefatalArgs*", address)
    size = args.error_message_size
    text = bounds.text("PJRT_Callback_PrefatalArgs", "error_message", args.error_message, size)
    return int(args.error_code), text.decode("utf-8", "replace")


def slice_failure(address: int) -> int:
    """`PJRT_Callback_Tpu_SliceBuilderArgs`: the number of what failed."""
    return int(ffi.cast("PJRT_Callback_Tpu_SliceBuilderArgs*", address).failure_type)
