"""`pjrt-hub check`: the conformance suite on one plugin."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command, named_values, offline_option, usage_errors
from pjrt_hub.cli.status import FAILED, INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from pjrt_hub.kit.conformance.check import Check
    from pjrt_hub.kit.conformance.verdict import Report, Result


@click.command(
    "check",
    cls=Command,
    examples=("pjrt-hub check cpu", "pjrt-hub check libacme.so --area buffers --html report.html"),
)
@click.argument("plugin", required=False)
@click.option("--area", "areas", multiple=True, metavar="AREA", help="Only this area; repeatable.")
@click.option(
    "--check", "names", multiple=True, metavar="NAME", help="Only this check; * is anything."
)
@named_values("--option", "options", "A create option of the plugin's clients; repeatable.")
@click.option("--target", help="A machine that it describes without hardware; else some.")
@output.option("json_path", "Write the report to this file, as JSON.")
@click.option("--junit", "junit_path", type=output.OutputFile(), help="Write it as JUnit's XML.")
@click.option("--html", "html_path", type=output.OutputFile(), help="Write it as a page.")
@click.option("--diff", metavar="OTHER", help="Compare with a report in JSON, or another plugin.")
@click.option("--jobs", type=click.IntRange(1), help="Workers at once; by default at most two.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="The time limit of every check; by default each has its own.",
)
@click.option("--resume", is_flag=True, help="Go on from where the same check was interrupted.")
@click.option("--list", "only_list", is_flag=True, help="List the checks; check nothing.")
@offline_option
def command(
    plugin: str | None,
    areas: tuple[str, ...],
    names: tuple[str, ...],
    options: dict[str, Any],
    target: str | None,
    as_json: bool,
    json_path: Path | None,
    junit_path: Path | None,
    html_path: Path | None,
    diff: str | None,
    resume: bool,
    only_list: bool,
    **how: Any,
) -> int:
    """Test a plugin against the PJRT C API.

    PLUGIN is a name or a library's path; only other processes load it. Exits with 1 if a defect
    was found.
    """
    from pjrt_hub.kit.conformance.check import select

    with usage_errors():
        wanted = select(areas, names)
    if only_list:
        show_checks(wanted, as_json)
        return 0
    if plugin is None:
        raise click.UsageError("Name a plugin, or the path of a library.")
    other = None if diff is None else earlier(diff, wanted, how)
    status = 0
    try:
        report = run_checks(
            plugin, wanted, {**how, "options": options, "target": target}, resume=resume
        )
    except Interrupted as exc:
        report, status = exc.report, exc.status
    from pjrt_hub.kit.conformance import junit, page

    if json_path:
        json_path.write_text(report.to_json(), encoding="utf-8")
    if junit_path:
        junit_path.write_text(junit.to_xml(report), encoding="utf-8")
    if html_path:
        html_path.write_text(page.to_html(report, other), encoding="utf-8")
    if as_json:
        print(report.to_json(), end="")
    else:
        show(report, other)
    if status:
        print("\nhint: the same command with --resume goes on from here", file=sys.stderr)
    return status or (FAILED if report.defects else 0)


def show_checks(checks: tuple[Check, ...], as_json: bool) -> None:
    """Print the checks that would run."""
    if as_json:
        output.show_json([check_as_dict(check) for check in checks])
        return
    rows = [[check.name, str(check.number or ""), check.needs, check.title] for check in checks]
    output.show_table(("check", "no.", "needs", "what is done -> what must follow"), rows)


def check_as_dict(check: Check) -> dict[str, Any]:
    """Return the documented JSON of one check; null stands for no number."""
    return {
        "name": check.name,
        "number": check.number or None,
        "needs": check.needs,
        "title": check.title,
    }


def earlier(other: str, wanted: tuple[Check, ...], how: dict[str, Any]) -> Report:
    """Return the report to compare with: read from a file, or made by checking another plugin."""
    from pjrt_hub.kit.conformance.verdict import Report

    if not other.endswith(".json"):
        return run_checks(other, wanted, how)
    try:
        return Report.from_json(Path(other).read_bytes(), other)
    except OSError as exc:
        raise click.UsageError(f"{other}: {exc.strerror}.") from exc


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, with the report so far and the status to exit with."""

    def __init__(self, report: Report, status: int) -> None:
        super().__init__()
        self.report = report
        self.status = status


def run_checks(
    plugin: str, wanted: tuple[Check, ...], how: dict[str, Any], *, resume: bool = False
) -> Report:
    """Check a plugin and show the progress.

    Ctrl-C or SIGTERM raises Interrupted; the cache keeps the results so far, for `resume`.
    """
    from pjrt_hub.kit.conformance.suite import Suite

    with usage_errors():
        suite = Suite(plugin, **how)
    found: list[Result] = []
    signals: list[int] = []
    try:
        with (
            progress(suite.identity.name, len(wanted)) as advance,
            interrupt_on_end(signals),
            closing(suite.results(wanted, resume)) as results,
        ):
            for result in results:
                found.append(result)
                advance(result)
    except KeyboardInterrupt as exc:
        report = suite.report(found, left=len(wanted) - len(found))
        raise Interrupted(report, 128 + signals[0] if signals else INTERRUPTED) from exc
    return suite.report(found)


@contextmanager
def interrupt_on_end(signals: list[int]) -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C in a `with` block, and append its number to `signals`."""

    def interrupt(number: int, _: object) -> NoReturn:
        signals.append(number)
        raise KeyboardInterrupt

    earlier = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


@contextmanager
def progress(name: str, total: int) -> Iterator[Callable[[Result], None]]:
    """Show on a terminal how many checks are done, and each defect as it is found."""
    if not sys.stderr.isatty():
        yield lambda result: None
        return
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[last]}"),
    )
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=total, last="")

        def advance(result: Result) -> None:
            bar.update(task, advance=1, last=result.name)
            if result.verdict.is_defect:
                console.print(f"{result.verdict:<8} {result.name}", markup=False, highlight=False)

        yield advance


def show(report: Report, other: Report | None) -> None:
    """Print the report: the areas, skips and notes, each defect, and the outcome last."""
    from pjrt_hub.kit.conformance import difference, table

    width = output.width()
    if width < table.WIDTH:
        output.show_table(table.NARROW_COLUMNS, table.narrow_areas(report))
    else:
        output.show_table(table.COLUMNS, table.areas(report))
    paragraphs = [
        *table.skips(report, width),
        *table.notes(report, width),
        *table.defects(report, width),
    ]
    print("", *paragraphs, sep="\n")
    if other:
        changes = difference.changes(other, report)
        number = f"{len(changes) or 'no'} difference{'s' * (len(changes) != 1)}"
        print(f"\nagainst {table.headline(other)}: {number}")
        print(*table.differences(changes, width), sep="\n")
    print(f"\n{table.headline(report)}")
