"""Seeing every call of any host to any plugin, and reading what was recorded.

`wrap` puts the layers round a plugin's table, `preload_path` is for a program's LD_PRELOAD;
`recording.read` gives what they recorded, for a call log, a summary and a timeline.
"""

from pjrt_hub.running.interpose.layers import preload_path, wrap

__all__ = ["preload_path", "wrap"]
