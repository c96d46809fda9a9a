"""Whether a program fits machines that need not be here.

Each machine's compiler runs in a process of its own, so that one that crashes, or that changes its
process for good, affects nothing else.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.base.frames import hide_below
from pjrt_hub.base.listing import Listing, size_text
from pjrt_hub.door import client, process
from pjrt_hub.errors import PjrtHubError, TargetNotFoundError
from pjrt_hub.running.sandbox import watch
from pjrt_hub.running.sandbox.child import Child, listen, signal_name

if TYPE_CHECKING:
    from pjrt_hub.finding.store.transfer.partial import Progress
    from pjrt_hub.running.program.compile_options import CompileOptions
    from pjrt_hub.running.program.program import Program

#: The number of compilers that run at once; each may take a few GB.
_AT_ONCE = min(4, os.cpu_count() or 1)


class Fit(NamedTuple):
    """Whether a program fits one machine, and how much memory it needs there.

    Attributes:
        target: the machine, "tpu:v5e:2x2".
        device: its kind of device, "TPU v5 lite"; empty if the machine could not be described.
        num_devices: how many devices it has.
        peak_nbytes: the bytes of a device's memory that the program needs at once, with arguments
            and results; None if the plugin does not count them, or nothing was compiled.
        limit_nbytes: the bytes of memory that a device has; None if the plugin does not tell.
        reason: why the program does not fit; empty if it does, as far as the plugin counts.
    """

    target: str
    device: str = ""
    num_devices: int = 0
    peak_nbytes: int | None = None
    limit_nbytes: int | None = None
    reason: str = ""

    @property
    def fits(self) -> bool:
        """Whether the program compiles, and needs no more memory than a device has, if known."""
        return not self.reason

    @property
    def headroom_nbytes(self) -> int | None:
        """The bytes of a device's memory that are left at the peak; None if that is unknown."""
        if self.peak_nbytes is None or self.limit_nbytes is None:
            return None
        return self.limit_nbytes - self.peak_nbytes

    def _row(self) -> dict[str, str]:
        return {
            "target": self.target,
            "devices": f"{self.num_devices} x {self.device}" if self.device else "",
            "memory": _text(self.limit_nbytes),
            "needs": _text(self.peak_nbytes),
            "headroom": _text(self.headroom_nbytes),
            "fits": self._verdict(),
        }

    def _verdict(self) -> str:
        if self.reason:
            return f"no: {self.reason}"
        counted = self.headroom_nbytes is not None
        return "yes" if counted else "it compiles; how much memory it needs is not told"


Fit.__module__ = "pjrt_hub"  # The body of a NamedTuple cannot set this.


@hide_below
def fits(
    program: Any,
    targets: str | Iterable[str],
    *,
    compile_options: CompileOptions | None = None,
    seconds: float = 600,
    offline: bool = False,
    progress: Progress | None = None,
) -> Listing[Fit]:
    """Compile a program ahead of time for several machines, and compare its memory with theirs.

    Rests on `PJRT_Compile`, `PJRT_Executable_GetCompiledMemoryStats` and the attribute
    `device_memory_bytes_limit` of device descriptions.

    Args:
        program: as for `Topology.compile`; or a function that makes a program for a topology, and
            that another process can import.
        targets: machines, "cuda:H100", as a list or joined by commas; a platform alone, "tpu",
            stands for all machines that it lists.
        compile_options: as for `Topology.compile`.
        seconds: how long each compiler may take.
        offline: use no network; a missing plugin is then an error.
        progress: as for `client`.

    Returns:
        A row for each machine, the one with the least memory first, so that the first row that
        fits is the smallest machine's.

    Raises:
        TargetNotFoundError: a platform lists no machines.
        ValueError: no machine is named.
        FileFormatError: the program is missing, or nothing that a plugin compiles.
        PluginNotFoundError: no plugin is known by that name.
        StoreError: the plugin cannot be fetched.
    """
    if not callable(program):
        from pjrt_hub.running.program.program import Program

        program = Program.of(program)
    named = targets.split(",") if isinstance(targets, str) else targets
    machines = [machine for each in filter(None, named) for machine in _machines(each)]
    if not machines:
        raise ValueError("no machine is named")
    for platform in dict.fromkeys(platform for platform, _ in machines):
        client.fetch(platform, offline=offline, progress=progress)
    with tempfile.TemporaryDirectory() as folder:
        request = Path(folder, "request")
        request.write_bytes(pickle.dumps((program, compile_options)))
        found = list(_ask(str(request), dict.fromkeys(machines), seconds))
    return Listing(sorted(found, key=_size))


def _machines(target: str) -> list[tuple[str, str]]:
    """Return the platform and the name of each machine that a target stands for."""
    platform, _, name = target.partition(":")
    if name:
        return [(platform, name)]
    if not (known := client.targets(platform)):
        raise TargetNotFoundError(
            f"{platform!r} lists no machines",
            hint="`pjrt-hub targets` lists those of every platform",
        )
    return list(dict.fromkeys((platform, each.name) for each in known))


def _size(fit: Fit) -> tuple[bool, int]:
    """Return the key that sorts machines by their memory, those of unknown memory last."""
    return fit.limit_nbytes is None, fit.num_devices * (fit.limit_nbytes or 0)


def _text(nbytes: int | None) -> str:
    return "" if nbytes is None else size_text(nbytes, of_memory=True)


def _ask(request: str, machines: Iterable[tuple[str, str]], seconds: float) -> Iterator[Fit]:
    """Run a compiler for each machine, a few at once, and yield what each said."""
    waiting = deque(machines)
    asked: dict[Child, tuple[str, float, dict[str, Any]]] = {}
    with ExitStack() as stack:
        while waiting or asked:
            while waiting and len(asked) < _AT_ONCE:
                platform, name = waiting.popleft()
                words = [request, platform, name]
                child = Child(__name__, words, env=dict(process.environment()))
                stack.enter_context(child)
                asked[child] = f"{platform}:{name}", time.monotonic() + seconds, {}
            first = min(until for _, until, _ in asked.values())
            for child, line in listen(list(asked), first):
                asked[child][2].update(line)
            for child, (target, until, said) in list(asked.items()):
                if "status" in said or child.silent or time.monotonic() >= until:
                    del asked[child]
                    child.close()
                    yield _fit(target, said, seconds)


def _fit(target: str, said: Mapping[str, Any], seconds: float) -> Fit:
    """Turn what a compiler said of a machine into its row."""
    status = said.get("status")
    fit = Fit(target, **{name: value for name, value in said.items() if name != "status"})
    if fit.reason:
        return fit
    if status is None:
        return fit._replace(reason=f"it was not compiled within {seconds:g} s")
    if status:
        how = f"died of {signal_name(-status)}" if status < 0 else f"exited with {status}"
        return fit._replace(reason=f"the compiler {how}")
    if fit.headroom_nbytes is not None and fit.headroom_nbytes < 0:
        has = f"a device has {_text(fit.limit_nbytes)}"
        return fit._replace(reason=f"it needs {_text(fit.peak_nbytes)}, {has}")
    return fit


def work(tell: watch.Tell, request: str, platform: str, name: str) -> int:
    program, options = pickle.loads(Path(request).read_bytes())
    try:
        topology = client.topology(platform, name, offline=True)
        device = topology.device_descriptions[0]
        limit = device.attributes.get("device_memory_bytes_limit")
        tell(device=device.kind, num_devices=len(topology.device_descriptions), limit_nbytes=limit)
        source: Program = program(topology) if callable(program) else program
        stats = topology.compile(source, options).memory_stats() or {}
        whole = stats.get("total_allocation_bytes")
        tell(peak_nbytes=stats.get("peak_memory_in_bytes") or whole)
    except PjrtHubError as exc:
        tell(reason=exc.message.partition("\n")[0])
    except (TypeError, ValueError) as exc:
        # A size may be missing, or an option may have another type.
        tell(reason=str(exc).partition("\n")[0])
    return 0
