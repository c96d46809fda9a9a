"""The callbacks in PJRT_ExecuteOptions, whose lists the tables cannot express.

They are lists of pointers, one for each device; the counts are those of the other arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from pjrt_hub.running.capi._pjrt import ffi
from pjrt_hub.running.capi.call import Struct

#: (channel, user_arg, address of the C function)
Callback = tuple[int, int, int]

_NAMES = {"send": "PJRT_SendCallback", "recv": "PJRT_RecvCallback"}


def put_rows(struct: Struct, way: str, rows: Sequence[Sequence[Callback]]) -> None:
    """Puts what each device sends or receives into execute options.

    Args:
        struct: the options.
        way: "send" or "recv".
        rows: for each device, in the order of its argument lists; all of one length.
    """
    options = ffi.cast("PJRT_ExecuteOptions*", struct.address)
    kind = _NAMES[way]
    lists = []
    for row in rows:
        infos = ffi.new(f"{kind}Info[]", len(row))
        for info, (channel, user_arg, function) in zip(infos, row, strict=True):
            info.channel_id = channel
            info.user_arg = ffi.cast("void*", user_arg)
            setattr(info, f"{way}_callback", ffi.cast(kind, function))
        lists.append(infos)
    array = ffi.new(f"{kind}Info*[]", lists)
    struct.keep(array, *lists)
    setattr(options, f"{way}_callbacks", array)
    setattr(options, f"num_{way}_ops", len(rows[0]) if rows else 0)
