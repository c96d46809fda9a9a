"""Whose a client of JAX is, for the children of these tests, which find it on their path."""

from __future__ import annotations

from typing import Any


def is_plugin(client: Any) -> bool:
    """Whether a plugin of the C API is behind it: JAX says so since 0.11, and before in a text."""
    return bool(getattr(client, "is_c_api", "PJRT C API" in client.platform_version))
