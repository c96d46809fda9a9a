"""`pjrt-hub trace`: every PJRT call of a program, and what is wrong with them."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command
from pjrt_hub.cli.status import FAILED
from pjrt_hub.errors import PjrtHubError

if TYPE_CHECKING:
    from pjrt_hub.kit.tracing.call import Call
    from pjrt_hub.kit.tracing.devices import Device
    from pjrt_hub.kit.tracing.recording import Recording
    from pjrt_hub.kit.tracing.xspace import Profile

#: The most operations of a device that are shown, the most letters of each name, and the least
#: share of the device's time that is shown as a wait.
MOST_OPERATIONS, MOST_LETTERS, LEAST_SHARE = 20, 80, 0.001


class Wanted(NamedTuple):
    """What to show of a recording."""

    log: bool
    summary: bool
    validate: bool
    device: bool
    timeline: Path | None
    filters: tuple[str, ...]
    as_json: bool


@click.command(
    "trace",
    cls=Command,
    examples=(
        "pjrt-hub trace -- python train.py",
        "pjrt-hub trace --device --output calls -- python train.py",
    ),
    context_settings={"allow_interspersed_args": False},
)
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[--] PROGRAM [ARGS]...")
@click.option("--log", is_flag=True, help="Show every call; the default where nothing else is.")
@click.option("--summary", is_flag=True, help="Show each function's count and times.")
@click.option(
    "--device", is_flag=True, help="Show each device's operations, and what it waited for."
)
@click.option(
    "--timeline",
    type=output.OutputFile(),
    metavar="FILE",
    help="Write a timeline for Perfetto or chrome://tracing.",
)
@click.option(
    "--validate",
    is_flag=True,
    help="Report misuse of the C API, by the program or the plugin; 1 where there is any.",
)
@click.option("--pad", is_flag=True, help="Let an old framework drive a newer plugin.")
@click.option(
    "--without",
    multiple=True,
    metavar="NAME",
    help="Take away a function, as PJRT_X or PJRT_X:null, or an extension; may be repeated.",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="PATTERN",
    help="Show only functions like '*Execute*'; may be repeated.",
)
@output.option(
    "out",
    "Keep the recording in this folder, which must be empty or absent.",
    kind=output.FOLDER,
    metavar="DIR",
)
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="Run no program: read a recording that was kept, or with --device a profile.",
)
def command(
    command_line: tuple[str, ...],
    pad: bool,
    without: tuple[str, ...],
    out: Path | None,
    source: Path | None,
    **shown: Any,
) -> int:
    """Run a program and show every PJRT call that it makes.

    The program may be anything that finds its plugin by dlsym: JAX, torch_xla, pjrt-hub, C. The
    recording is shown on stderr after the program has ended; with --from, on stdout. Exits with the
    program's status.
    """
    wanted = Wanted(**shown)
    if not (wanted.summary or wanted.timeline or wanted.validate or wanted.device):
        wanted = wanted._replace(log=True)
    if (source is None) == (not command_line):
        raise click.UsageError("Give a program to run, or --from PATH.")
    if source is not None:
        refuse_empty(source, wanted.device)
        return report(source, wanted)
    names = ["validate"] * wanted.validate + ["trace"] + ["device"] * wanted.device + ["pad"] * pad
    names += ["without"] * bool(without)
    with recording_folder(out) as folder:
        status = run(command_line, names, folder, without)
        with redirect_stdout(sys.stderr):
            found = report(folder, wanted)
    return status or found


@contextmanager
def recording_folder(out: Path | None) -> Iterator[Path]:
    """Yield the folder to record to: the user's, which must be empty, or a temporary one."""
    if out is None:
        # Processes that the program left running may still write there.
        with TemporaryDirectory(prefix="pjrt-hub-trace-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise click.UsageError(f"{out} is not empty.")
    yield out


def refuse_empty(source: Path, device: bool) -> None:
    """Refuse to read what holds no recording, nor a profile where `device` asks for one."""
    from pjrt_hub.kit.tracing import recording

    if not recording.files_of(source) and not (device and recording.profiles_of(source)):
        raise PjrtHubError(
            f"{source} holds no recording",
            hint="give the folder that `pjrt-hub trace --output` wrote, or a profile and --device; "
            "the folder stays empty where the program asks no library for GetPjrtApi by dlsym",
        )


def run(
    command_line: tuple[str, ...], names: list[str], folder: Path, without: tuple[str, ...]
) -> int:
    """Run the program under layers; return its status, or 128 + N if signal N ended it.

    A SIGTERM to this process is passed on to the program.
    """
    import signal
    import subprocess

    from pjrt_hub.kit import tracing

    env = tracing.environment(os.environ, ",".join(names), folder, ",".join(without))
    early: list[int] = []  # These signals came before the program was started.
    earlier = signal.signal(signal.SIGTERM, lambda number, _: early.append(number))
    try:
        program = subprocess.Popen(command_line, env=env)
        signal.signal(signal.SIGTERM, lambda number, _: program.send_signal(number))
        for number in early:
            program.send_signal(number)
        while True:
            try:
                status = program.wait()
            except KeyboardInterrupt:  # The program got the signal, too, and decides what to do.
                continue
            return 128 - status if status < 0 else status
    except OSError as exc:
        what = f"{command_line[0]}: {exc.strerror}."
        # A name without a folder is looked for in PATH, and not where the file lies.
        if os.path.isfile(command_line[0]):
            runner = "python" if command_line[0].endswith(".py") else "pjrt-hub run"
            what = f"{command_line[0]} is a file, and not a program that can be started."
            what += f" Did you mean `pjrt-hub trace -- {runner} {shlex.join(command_line)}`?"
        raise click.UsageError(what) from exc
    finally:
        signal.signal(signal.SIGTERM, earlier)


def report(source: Path, wanted: Wanted) -> int:
    """Show what is wanted of a recording; return 1 if the validation layer found something."""
    from pjrt_hub.kit.tracing import call_log, recording, summary, timeline

    found = recording.read(source) if source.is_dir() else recording.Recording()
    profiles: list[tuple[int, Profile]] = []
    used: list[Device] = []
    if wanted.device:
        from pjrt_hub.kit.tracing import devices

        profiles = devices.profiles(source, found)
        used = [each for profile in profiles for each in devices.devices(*profile, found)]
    patterns = wanted.filters or ("*",)
    shown = [each for each in found.calls if any(fnmatchcase(each.function, p) for p in patterns)]
    rows = summary.summary(shown) if wanted.summary else []
    if wanted.timeline is not None:
        events = timeline.events(found, shown, profiles)
        wanted.timeline.write_text(json.dumps(events, allow_nan=False), encoding="utf-8")
    if wanted.as_json:
        told = as_dict(found, shown if wanted.log else [], [asdict(row) for row in rows])
        told["devices"] = [
            {
                key: [each._asdict() for each in value] if isinstance(value, tuple) else value
                for key, value in device._asdict().items()
            }
            for device in used
        ]
        output.show_json(told)
        return FAILED if found.findings else 0
    if wanted.log:
        for line in call_log.lines(found, shown):
            print(line)
    if wanted.summary:
        columns = ("function", "calls", "errors", "total", "mean", "p50", "p99", "max")
        output.show_table(columns, [as_row(row) for row in rows])
    for device in used:
        show_device(device)
    for _, profile in profiles:
        for message in profile.messages:
            print(f"the profiler says: {message}")
    if wanted.device and not used:
        print("no device ran an operation that was recorded")
    for by_plugin in (False, True):
        findings = [each for each in found.findings if each.is_plugins == by_plugin]
        if findings and by_plugin:
            print("what the plugin did wrong:")
        for finding in findings:
            print(f"{finding.code} thread {finding.thread.number}: {finding.text}")
    if wanted.validate and found.plugins and not found.findings:
        print(f"no misuse found in {len(found.calls)} calls")
    if lost := sum(thread.lost for thread in found.threads):
        print(f"{lost} records are missing: the disk or PJRT_HUB_TRACE_NBYTES had no room for them")
    if not (found.plugins or profiles):
        print("the program asked no library for GetPjrtApi by dlsym, so nothing was recorded")
    return FAILED if found.findings else 0


def as_row(row: Any) -> tuple[str, ...]:
    """Return the cells of one row of the summary."""
    from pjrt_hub.kit.tracing.call_log import duration

    times = (row.total, row.mean, row.p50, row.p99, row.max)
    return (row.function, str(row.count), str(row.errors), *map(duration, times))


def show_device(device: Device) -> None:
    """Print what a device did; all shares are of its whole time."""
    from pjrt_hub.kit.tracing.call_log import duration

    def cells(time: float) -> tuple[str, str]:
        return duration(time), f"{100 * time / (device.span or 1):.1f} %"

    where = f"{device.name} of process {device.process}" if device.process else device.name
    print(f"{where}: busy for {cells(device.busy)[1]} of {duration(device.span)}")
    waits = [each for each in device.waits if each.total >= LEAST_SHARE * device.span]
    if waits:
        columns = ("waited for", "time", "share")
        output.show_table(columns, [(each.function, *cells(each.total)) for each in waits])
    rows = []
    for name, runs, total in device.operations[:MOST_OPERATIONS]:
        rows.append((name[:MOST_LETTERS], str(runs), duration(total / runs), *cells(total)))
    output.show_table(("operation", "runs", "mean", "total", "share"), rows)


def as_dict(found: Recording, calls: list[Call], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the documented JSON of a recording; times are nanoseconds."""
    from pjrt_hub.kit.tracing.arguments import as_json, inputs, results

    return {
        "plugins": [
            {"path": plugin.path, "api_version": f"0.{plugin.minor}", "process": plugin.pid}
            for plugin in found.plugins.values()
        ],
        "calls": [
            {
                "number": call.number,
                "function": call.function,
                "process": call.thread.pid,
                "thread": call.thread.number,
                "start": call.start_ns,
                "duration": call.duration_ns,
                "arguments": as_json(inputs(call)),
                "results": as_json(results(call, found.minor(call))),
                "error": call.status or None,
            }
            for call in calls
        ],
        "summary": rows,
        "findings": [
            {
                "code": finding.code,
                "by": "plugin" if finding.is_plugins else "host",
                "call": finding.call,
                "function": finding.function,
                "process": finding.thread.pid,
                "thread": finding.thread.number,
                "handle": hex(finding.handle),
                "text": finding.text,
            }
            for finding in found.findings
        ],
    }
