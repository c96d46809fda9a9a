"""a + b of two f32[4] in the binary forms of a program (layer 5): portable artifacts, an HLO proto.

The artifacts are the text of `programs.ADD` as StableHLO's own serializer wrote it.
"""

from __future__ import annotations

import base64

from pjrt_hub.runtime import hlo
from pjrt_hub.runtime.signature import Slot

Version = tuple[int, int, int]

#: Up to 0.13 in the first version of MLIR's bytecode, and from 1.0 on in the sixth.
_OLDEST, _STABLE = (0, 9, 0), (1, 0, 0)
_OLD = (
    "TUzvUgFTdGFibGVITE9fdjAuOS4wAAEXBQEDAQMFAwcHCQsDOSMHARsLEzMLCwsLCxMTExMTAwkLCwsLAwcTGwcC"
    "hwUNFwEBAQMLBxsJHQsbDR8PIQUPBREFEwUVBRcXAQUDFwEFIxcBBUkXAQcVFwEJBwMBIwMdGR0bKQMRBREFAQED"
    "AQkERQUBEAMHAwEFAxERBQcDBwsFARMBFQUGFwMBBQEDBwQZAwUGAwEFAQD9HQMLHxMVHRUFFQ8RDwsRYnVpbHRp"
    "bgB2aGxvAG1vZHVsZQBmdW5jX3YxAGFkZF92MQByZXR1cm5fdjEALQBhcmdfYXR0cnMAZnVuY3Rpb25fdHlwZQBy"
    "ZXNfYXR0cnMAc3ltX25hbWUAc3ltX3Zpc2liaWxpdHkAbWFpbgAA"
)
_NEW = (
    "TUzvUg1TdGFibGVITE9fdjEuMC4wAAEZBQEFCQEDCwMHDxMXAy0XBwEPCxMTExMTEwMJCwsLCwMHExsHAlsFDRcB"
    "AQEXAQUDFwEFIxcBBUkXAQcVFwEJBwMBIwMdDx0RKQMRBREFAQEDAQkEUQUBUAMBBwRBAwEFA1AFAwcELQMHCwUD"
    "BwMJAAUGCwMBBQEDBwQNAwUGAwEFAQB/EwMLBRUPEQ8LEWJ1aWx0aW4AdmhsbwBtb2R1bGUAZnVuY192MQBhZGRf"
    "djEAcmV0dXJuX3YxAC0AbWFpbgAACBUFBQEBCw8RDxMV"
)


def add_artifact(version: Version) -> bytes:
    """The portable artifact of a version of StableHLO: its ops are the same in all of them."""
    base, text = (_STABLE, _NEW) if version >= _STABLE else (_OLDEST, _OLD)
    return base64.b64decode(text).replace(_producer(base), _producer(version), 1)


def add_hlo() -> bytes:
    """An HloModuleProto."""
    shape = Slot.of("f32", (4,)).serialize()
    return hlo.module(
        "add",
        [
            hlo.Instruction("a", "parameter", shape),
            hlo.Instruction("b", "parameter", shape),
            hlo.Instruction("sum", "add", shape, operands=(0, 1)),
        ],
    )


def _producer(version: Version) -> bytes:
    return b"StableHLO_v%d.%d.%d\0" % version
