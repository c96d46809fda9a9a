"""Launches in parts: threads bring arguments for one device each, and all are launched as a whole.

native/gate.c says why a plugin must not get the parts one by one.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pjrt_hub.running.buffer.buffer import Buffer
    from pjrt_hub.running.device.device import Device
    from pjrt_hub.running.device.event import Event
    from pjrt_hub.running.executable.argument import Called
    from pjrt_hub.running.executable.execute_options import ExecuteOptions

#: The seconds after which a launch gives up unless another part comes.
PATIENCE = 30.0
#: How often, in seconds, a waiting part checks whether the executable was closed.
_SLICE = 0.1


class _Launch:
    """One launch; `rows` are those of the parts that came, `latest` the time of the last one."""

    def __init__(self, options: ExecuteOptions) -> None:
        self.options = options
        self.rows: dict[Device, tuple[Buffer, ...]] = {}
        self.latest = 0.0
        self.results: dict[Device, tuple[tuple[Buffer, ...], Event]] | None = None
        self.error: Exception | None = None

    @property
    def is_over(self) -> bool:
        """Whether it was launched or refused."""
        return self.results is not None or self.error is not None


class Parts:
    """The launches of one executable that are not whole yet."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Launch] = []

    def bring(
        self, executable: Called, row: tuple[Buffer, ...], device: Device, options: ExecuteOptions
    ) -> tuple[tuple[Buffer, ...], Event]:
        """Wait for the other parts, and return the results of the launch on this part's device.

        The thread that brings the last part launches them all. If one part is refused, all are.
        """
        launch, leads = None, False
        try:
            with self._changed:
                launch = self._join(row, device, options)
                leads = len(launch.rows) == len(executable.devices)
                if leads:
                    self._waiting.remove(launch)
                else:
                    self._await(executable, launch)
            if leads:
                self._start(executable, launch)
        except BaseException:
            if launch is not None:
                self._withdraw(launch, device, leads)
            raise
        if launch.error is not None:
            raise launch.error
        assert launch.results is not None
        return launch.results[device]

    def _join(self, row: tuple[Buffer, ...], device: Device, options: ExecuteOptions) -> _Launch:
        number = options.launch_id
        for launch in self._waiting:
            if launch.options.launch_id == number and device not in launch.rows:
                break
        else:
            launch = _Launch(options)
            self._waiting.append(launch)
        if launch.options != options:
            raise ValueError(
                f"the options of this part of launch {number} are {options}, those of the parts "
                f"that wait for it {launch.options}\n\nhint: give all parts of a launch the same"
            )
        launch.rows[device] = row
        launch.latest = time.monotonic()
        return launch

    def _await(self, executable: Called, launch: _Launch) -> None:
        while not launch.is_over:
            self._changed.wait(_SLICE)
            if launch in self._waiting:
                executable._require_open()
                if time.monotonic() > launch.latest + PATIENCE:
                    self._give_up(executable, launch)

    def _give_up(self, executable: Called, launch: _Launch) -> None:
        self._waiting.remove(launch)
        missing = [str(each) for each in executable.devices if each not in launch.rows]
        launch.error = TimeoutError(
            f"launch {launch.options.launch_id} was not started: {len(launch.rows)} of its "
            f"{len(executable.devices)} parts came, and within {PATIENCE:g} s none of "
            f"{', '.join(missing)}\n\nhint: call execute_on for each of exe.devices, each in "
            "a thread of its own, or exe.execute(rows)"
        )
        self._changed.notify_all()

    def _start(self, executable: Called, launch: _Launch) -> None:
        devices = executable.devices
        rows = tuple(launch.rows[each] for each in devices)
        try:
            outputs, events = executable._launch(rows, devices, 0, launch.options, True)
            launch.results = dict(zip(devices, zip(outputs, events, strict=True), strict=True))
        except Exception as exc:
            launch.error = exc
        with self._changed:
            self._changed.notify_all()

    def _withdraw(self, launch: _Launch, device: Device, leads: bool) -> None:
        """Take back a part whose waiting was interrupted: the others go on waiting for it."""
        with self._changed:
            if leads and not launch.is_over:
                self._waiting.insert(0, launch)
            if launch in self._waiting:
                del launch.rows[device]
                if not launch.rows:
                    self._waiting.remove(launch)
