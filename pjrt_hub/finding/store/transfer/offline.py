"""The switch that forbids this process the network."""

from __future__ import annotations

from collections.abc import Mapping

VARIABLE = "PJRT_HUB_OFFLINE"


def is_offline(env: Mapping[str, str]) -> bool:
    """Check whether `PJRT_HUB_OFFLINE` forbids the network."""
    return env.get(VARIABLE, "") not in ("", "0")
