"""GPU descriptions that a library embeds as text, read without loading it.

XLA's GPU plugins carry a GpuTargetConfigProto in protobuf's text form for each GPU that they were
measured on. Must not interpret one: the plugin parses it.
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path

from pjrt_hub.errors import PluginLoadError

_BEGIN = re.compile(rb"gpu_device_info \{")
_DEVICE = re.compile(r'^device_description_str: "([^"\\]+)"', re.MULTILINE)
_PLATFORM = re.compile(r'^platform_name: "(\w+)"', re.MULTILINE)
#: Real ones have up to 6 kB, a licence's comment before them.
_MAX_NBYTES = 1 << 16


def gpu_target_configs(library: Path, platform: str) -> dict[str, str]:
    """Read the descriptions that a library embeds.

    Args:
        library: the plugin's library; 400 MB take some 0.2 seconds.
        platform: the `platform_name` of those that are meant, "CUDA".

    Returns:
        The device's name, "NVIDIA H100 80GB HBM3", to the text; the first of equal names.

    Raises:
        PluginLoadError: the file cannot be read.
    """
    configs: dict[str, str] = {}
    try:
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            for match in _BEGIN.finditer(data):
                text = _text_around(data, match.start())
                device, of = _DEVICE.search(text), _PLATFORM.search(text)
                if device and of and of[1] == platform:
                    configs.setdefault(device[1], text)
    except (OSError, ValueError) as exc:  # ValueError: the file is empty
        raise PluginLoadError(f"{library} cannot be read: {exc}", path=library) from exc
    return configs


def _text_around(data: mmap.mmap, place: int) -> str:
    """Return the NUL-terminated string around `place`."""
    low, high = max(0, place - _MAX_NBYTES), min(len(data), place + _MAX_NBYTES)
    begin, end = data.rfind(b"\0", low, place), data.find(b"\0", place, high)
    return data[low if begin < 0 else begin + 1 : high if end < 0 else end].decode(
        "utf-8", "replace"
    )
