"""A report as rows and paragraphs for a terminal; must not print them."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from pjrt_hub.kit.conformance.difference import Change
from pjrt_hub.kit.conformance.verdict import Report, Result, Verdict

_PARAGRAPH = 100  # The default width of a paragraph.
_INDENT = " " * 9
_NUM_HIDDEN = 6  # At most this many checks that a cause explains are named.
_NUM_WORDS = 2  # At most this many lines of a plugin's last words are shown.
_MAX_TEXT = 600  # A text is cut to this many characters; the JSON has all of it.

#: The columns of `areas`, and their total width.
COLUMNS = ("area", *Verdict)
WIDTH = 62
#: The columns of `narrow_areas`.
NARROW_COLUMNS = ("area", "checks")


def areas(report: Report) -> list[list[str]]:
    """Make a row for each area: how many results there are of each verdict."""
    rows = ((area, Counter(each.verdict for each in results)) for area, results in report.areas())
    return [[area, *(str(counted[each] or "") for each in Verdict)] for area, counted in rows]


def narrow_areas(report: Report) -> list[list[str]]:
    """Make the rows of a narrow terminal, with a line for each verdict: "1 fail"."""
    return [[area, "\n".join(_counts(results))] for area, results in report.areas()]


def defects(report: Report, width: int = _PARAGRAPH) -> Iterator[str]:
    """Yield a paragraph for each cause of defects."""
    for each in report.defects:
        yield defect(each, width=width, hidden=report.hidden(each.name))


def defect(
    result: Result,
    num_words: int = _NUM_WORDS,
    width: int = _PARAGRAPH,
    hidden: Sequence[Result] = (),
) -> str:
    """Make the paragraph of a result: the check, what was done, what was expected and found.

    It shows `num_words` lines of the plugin's last words, and which other results it explains.
    """
    words = result.words.splitlines()[:num_words]
    lines = [result.title, result.text, *words, *result.notes]
    if hidden:
        rest = len(hidden) - _NUM_HIDDEN
        listed = ", ".join(each.name for each in hidden[:_NUM_HIDDEN])
        lines.append(f"{count_hidden(hidden)}: {listed}" + f" and {rest} more" * (rest > 0))
    return _paragraph(result.verdict, result, lines, width)


def count_hidden(hidden: Sequence[Result]) -> str:
    """Say how many other results a cause explains, by their verdicts."""
    words = ", ".join(_counts(hidden))
    return f"explains {len(hidden)} other check{'s' * (len(hidden) != 1)} ({words})"


def _counts(results: Sequence[Result]) -> list[str]:
    counted = Counter(each.verdict for each in results)
    return [f"{counted[each]} {each}" for each in Verdict if counted[each]]


def outcome(report: Report) -> str:
    """Count the defects and their causes: "18 causes of 157 defects"."""
    causes = len(report.defects)
    defects = sum(each.verdict.is_defect for each in report.results)
    if not causes:
        return "no defects"
    return f"{causes} cause{'s' * (causes != 1)} of {defects} defect{'s' * (defects != 1)}"


def notes(report: Report, width: int = _PARAGRAPH) -> Iterator[str]:
    """Yield a paragraph for each result that is no defect and has something to tell."""
    for each in report.results:
        if each.notes and not each.verdict.is_defect:
            yield _paragraph("note", each, each.notes, width)


def skips(report: Report, width: int = _PARAGRAPH) -> Iterator[str]:
    """Yield a paragraph for each reason why checks were skipped."""
    reasons: dict[str, list[Result]] = {}
    for each in report.results:
        if each.verdict is Verdict.SKIP and not each.cause:
            reasons.setdefault(each.text, []).append(each)
    for reason, results in reasons.items():
        some = results[0].name if len(results) == 1 else f"{len(results)} checks"
        yield _fill(f"{'skip':<8} {some}", [reason], width)


def differences(changes: Sequence[Change], width: int = _PARAGRAPH) -> Iterator[str]:
    """Yield a paragraph for each difference between two reports."""
    for each in changes:
        yield _fill(f"{each.trend:<8} {each.name}", [each.text], width)


def headline(report: Report) -> str:
    """Say in one line what was checked, and with what outcome."""
    plugin, counts = report.plugin, report.counts
    skips = counts[Verdict.SKIP]
    words = [f"{plugin.name} through {plugin.layers}" if plugin.layers else plugin.name]
    words += [f"PJRT API {plugin.api_version}"] if plugin.api_version else ["cannot be loaded"]
    words += [f"platform {plugin.platform}"] if plugin.platform else []
    words += [
        f"{counts[Verdict.PASS]} of {len(report.results)} checks pass",
        *([f"{skips} skipped"] if skips else []),
        *([f"{report.left} not made: interrupted"] if report.left else []),
        outcome(report),
        f"{report.seconds:.0f} s",
    ]
    return ", ".join(words)


def _paragraph(label: str, result: Result, lines: Sequence[str], width: int) -> str:
    number = f"  (no. {result.number})" if result.number else ""
    return _fill(f"{label:<8} {result.name}{number}", lines, width)


def _fill(first: str, lines: Sequence[str], width: int) -> str:
    words = (" ".join(line.split()) for line in lines if line)
    texts = (each if len(each) <= _MAX_TEXT else each[: _MAX_TEXT - 4] + " ..." for each in words)
    form = textwrap.TextWrapper(
        width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join([first, *map(form.fill, texts)])
