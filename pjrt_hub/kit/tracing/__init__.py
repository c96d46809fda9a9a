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
#: With these, pjrt-hub gives its plugins to frameworks, and pads what an older one sends. In a
#: process that has layers already it cannot, so that `pad` must be one of them.
_GIVE_PLUGINS = {"PJRT_HUB_JAX", "PJRT_HUB_TORCH", "PJRT_HUB_TORCH_XLA"}


def environment(
    env: Mapping[str, str], names: str, folder: Path, without: str = ""
) -> dict[str, str]:
    """Return `env` for a program whose calls pass through layers, which record in `folder`.

    The `names` of the layers, and what the layer `without` takes away, are joined by commas. What
    `env` has of both is kept.
    """
    preloaded = [str(preload_path()), env.get("LD_PRELOAD", "")]
    asked = _words(env.get("PJRT_HUB_LAYERS", ""))
    pads = ["pad"] if _GIVE_PLUGINS & env.keys() else []
    if without:
        also = env.get("PJRT_HUB_WITHOUT", "") if "without" in asked else ""
        without = ",".join(layers.removals(f"{without},{also}"))
    return {
        **env,
        **({"PJRT_HUB_WITHOUT": without} if without else {}),
        "LD_PRELOAD": ":".join(filter(None, preloaded)),
        "PJRT_HUB_LAYERS": ",".join(dict.fromkeys([*_words(names), *asked, *pads])),
        "PJRT_HUB_TRACE": os.fspath(folder.resolve()),
    }


def _words(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
