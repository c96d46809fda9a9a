"""Seeing every call of any host to any plugin, and reading what was recorded.

`wrap` puts the layers round a plugin's table, `preload_path` is for a program's LD_PRELOAD;
`recording.read` gives what they recorded, for a call log, a summary and a timeline.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pjrt_hub.running.interpose import layers
from pjrt_hub.running.interpose.layers import preload_path, wrap

__all__ = ["preload_path", "wrap"]


def environment(
    env: Mapping[str, str], names: str, folder: Path, without: str = ""
) -> dict[str, str]:
    """Return `env` for a program whose calls pass through layers, which record in `folder`.

    The `names` of the layers, and what the layer `without` takes away, are joined by commas.
    """
    preloaded = [str(preload_path()), env.get("LD_PRELOAD", "")]
    taken = {"PJRT_HUB_WITHOUT": ",".join(layers.removals(without))} if without else {}
    return {
        **env,
        **taken,
        "LD_PRELOAD": ":".join(filter(None, preloaded)),
        "PJRT_HUB_LAYERS": names,
        "PJRT_HUB_TRACE": os.fspath(folder.resolve()),
    }
