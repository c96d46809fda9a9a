"""The function of the extension MultiSlice that the tables cannot express.

It answers with two arrays of one length behind a deleter.
"""

from __future__ import annotations

from pjrt_hub.running.capi import irregular
from pjrt_hub.running.capi.library import Api


def num_devices_per_slice(api: Api, config: int) -> dict[int, int]:
    """`PJRT_MultiSlice_Config_NumDevicesPerSlice`: slice id to its number of devices, by id."""
    function = api.extension("MultiSlice").function("PJRT_MultiSlice_Config_NumDevicesPerSlice")
    args = function.raw(config=config)
    count = args.num_devices_per_slice_map
    try:
        return dict(sorted((args.slice_ids[i], args.num_devices[i]) for i in range(count)))
    finally:
        irregular.let_go(args.devices_per_slice_map_deleter, args.devices_per_slice_map)
