"""Layouts: how arrays lie in a device's memory, tiles included (extension Layouts).

What a plugin chooses by itself is `device.layout`; the dimension order that calls are checked with
is the buffer's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pjrt_hub.errors import ClosedError
from pjrt_hub.running.device.layout import Layout, default_layout, read, take

if TYPE_CHECKING:
    from pjrt_hub.running.buffer.buffer import Buffer
    from pjrt_hub.running.capi.handle import ExecutableHandle

__all__ = ["Layout", "buffer_layout", "default_layout", "output_layouts", "parameter_layouts"]


def buffer_layout(buffer: Buffer) -> Layout:
    """Return a buffer's layout in its device's memory (`PJRT_Layouts_PJRT_Buffer_MemoryLayout`).

    Args:
        buffer: on any device.

    Raises:
        UnsupportedByPluginError: the plugin has no layouts.
        ClosedError: the buffer was deleted, donated or closed.
    """
    buffer._require_open()
    if buffer.is_deleted:
        raise ClosedError("the buffer was deleted or donated")
    api = buffer.client.api
    with buffer.client._in_call():
        call = api.extension("Layouts").call
        return take(api, call("PJRT_Layouts_PJRT_Buffer_MemoryLayout", buffer=buffer.address))


def output_layouts(executable: ExecutableHandle) -> tuple[Layout, ...]:
    """Return the layouts of the outputs (`PJRT_Layouts_PJRT_Executable_GetOutputLayouts`).

    Args:
        executable: compiled, loaded or not.

    Raises:
        UnsupportedByPluginError: the plugin's Layouts have less than 72 bytes (older than 0.81).
    """
    return _all(executable, "PJRT_Layouts_PJRT_Executable_GetOutputLayouts")


def parameter_layouts(executable: ExecutableHandle) -> tuple[Layout, ...]:
    """Return the layouts of the parameters (`PJRT_Layouts_PJRT_Executable_GetParameterLayouts`).

    Args:
        executable: compiled, loaded or not.

    Raises:
        UnsupportedByPluginError: the plugin's Layouts have less than 80 bytes (older than 0.93).
    """
    return _all(executable, "PJRT_Layouts_PJRT_Executable_GetParameterLayouts")


def _all(executable: ExecutableHandle, name: str) -> tuple[Layout, ...]:
    with executable.view() as view:
        api = executable.api
        layouts = api.extension("Layouts").call(name, executable=view)
        return tuple(read(api, each) for each in layouts)  # The executable owns the layouts.
