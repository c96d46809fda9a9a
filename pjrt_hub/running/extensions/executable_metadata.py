"""Executable metadata: what a plugin keeps about compiled code (ExecutableMetadata)."""

from __future__ import annotations

from pjrt_hub.running.capi import irregular
from pjrt_hub.running.capi.handle import ExecutableHandle


def executable_metadata(executable: ExecutableHandle) -> bytes:
    """Return the plugin's own proto; that of libtpu has memory and compiler flags.

    The C function is `PJRT_ExecutableMetadata_GetExecutableMetadata`.

    Args:
        executable: compiled, loaded or not.

    Raises:
        UnsupportedByPluginError: the plugin has no such extension.
    """
    with executable.view() as view:
        return irregular.executable_metadata(executable.api.extension("ExecutableMetadata"), view)
