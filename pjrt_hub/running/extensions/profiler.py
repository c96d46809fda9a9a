"""The profiler of a plugin: what a device and its compiler do, as an XSpace.

From the extension Profiler. An XSpace is the message that TensorBoard's profile plugin opens, and
that `pjrt_hub.kit.tracing.xspace` reads; nothing here looks inside.
"""

from __future__ import annotations

import os
from pathlib import Path

from pjrt_hub.errors import UnsupportedByPluginError
from pjrt_hub.running.capi import wire
from pjrt_hub.running.capi.library import Api
from pjrt_hub.running.capi.profiler import ProfilerApi

# The numbers of the fields of ProfileOptions.
_HOST_LEVEL, _DEVICE_LEVEL, _VERSION, _HLO = 2, 3, 5, 7
_LEVELS = range(4)


class Profiler:
    """A `PLUGIN_Profiler`: started, stopped, and then collected.

    As a context manager it profiles its body and writes the file that it was given:

        with plugin.profiler("profile.xplane.pb"):
            exe(a, b).ready.wait()

    Attributes:
        path: where the context manager writes, or None.
        xspace: what was collected, serialized, as `pjrt_hub.kit.tracing.xspace.read` takes it;
            None before that.
    """

    def __init__(
        self,
        api: Api,
        path: str | os.PathLike[str] | None = None,
        *,
        host_level: int = 2,
        device_level: int = 1,
        hlo: bool = True,
    ) -> None:
        """Make a profiler of a plugin (`PLUGIN_Profiler_Create`), as `Plugin.profiler` says.

        Raises:
            ValueError: no such level.
            UnsupportedByPluginError: the plugin has no profiler.
            PjrtError: it cannot be made.
        """
        for name, level in (("host_level", host_level), ("device_level", device_level)):
            if level not in _LEVELS:
                raise ValueError(f"{name} is {level!r}, it can be 0, 1, 2 or 3")
        self.path = None if path is None else Path(path)
        self.xspace: bytes | None = None
        self._state = "new"
        try:
            self._functions = ProfilerApi(api)
        except UnsupportedByPluginError as exc:
            exc.hint = (
                "not every plugin has one, and XLA's CPU plugin has none; `pjrt-hub trace "
                "--device` shows what its devices do"
            )
            raise
        options = (
            wire.varint(_HOST_LEVEL, host_level)
            + wire.varint(_DEVICE_LEVEL, device_level)
            + wire.varint(_VERSION, 1)
            + wire.varint(_HLO, hlo)
        )
        self.address = self._functions.call("PLUGIN_Profiler_Create", options=options)

    def start(self) -> None:
        """Start recording (`PLUGIN_Profiler_Start`).

        Raises:
            RuntimeError: it was started before: a profiler records once.
            PjrtError: the plugin cannot record, for example because another profiler does.
        """
        self._go("new", "started")
        self._functions.call("PLUGIN_Profiler_Start", profiler=self.address)

    def stop(self) -> None:
        """Stop recording (`PLUGIN_Profiler_Stop`).

        Raises:
            RuntimeError: it was not started, or stopped before.
            PjrtError: the plugin reports an error.
        """
        self._go("started", "stopped")
        self._functions.call("PLUGIN_Profiler_Stop", profiler=self.address)

    def collect(self) -> bytes:
        """Return the serialized XSpace (`PLUGIN_Profiler_CollectData`).

        Raises:
            RuntimeError: it was not stopped, or collected before.
            PjrtError: the plugin reports an error.
        """
        self._go("stopped", "collected")
        self.xspace = self._functions.collect(self.address)
        return self.xspace

    def close(self) -> None:
        """Free the profiler (`PLUGIN_Profiler_Destroy`); may be called again."""
        if self._state == "started":
            self.stop()
        if self._state != "closed":
            self._state = "closed"
            self._functions.call("PLUGIN_Profiler_Destroy", profiler=self.address)

    def _go(self, before: str, after: str) -> None:
        if self._state != before:
            hint = "\n\nhint: plugin.profiler() makes a new one" if before == "new" else ""
            raise RuntimeError(
                f"the profiler is {self._state}: it must be {before} to be {after}{hint}"
            )
        self._state = after

    def __enter__(self) -> Profiler:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.stop()
            xspace = self.collect()
            if self.path is not None:
                self.path.write_bytes(xspace)
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<Profiler {self._state}>"
