"""What a process wrote before it died, as far as it tells why.

A plugin says that in a line or two; a log, a progress bar or a backtrace surrounds them. Holds some
kilobytes, however much is written. Must not know who wrote it.
"""

from __future__ import annotations

import re
from collections import deque

_MAX_LINE = 400  # The most characters of a line that are kept.
_MAX_OPEN_NBYTES = 1 << 16  # A line without an end is split at this length.
_NUM_AFTER = 2  # Lines kept after one that tells the cause, which may go on there.
_GAP = "..."

#: Control sequences that only a terminal interprets: colours, titles, bells.
_CONTROLS = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)|[\x00-\x08\x0b-\x1f\x7f]"
)
#: The lines of backtraces by glibc, absl, LLVM, gdb, sanitizers, Boost, Rust and Go.
_FRAME = re.compile(
    r"""\s*(?:
        .*\[0x[0-9a-fA-F]+\]$                                # path(function+0x12) [0x7f...]
        | (?:PC:\ )?@\ +0x[0-9a-fA-F]+                       # @ 0x7f... function
        | \#?\d+[:#]?\ +0x[0-9a-fA-F]{4}                     # #0 0x7f... in function
        | \#\d+\ +[\w:~<>*&,\ ]+\(.*\)(?:\ (?:at|in|from)\ \S+)?$   # #1  function (x=3) at file.c:4
        | \d+\#\                                             # 2# function at file.cc:5
        | \d+:\ +<?\w+(?:::\S.*)?$                           # 3: crate::function
        | (?:at\ )?\S+\.\w+:\d+(?::\d+)?(?:\ \+0x[0-9a-fA-F]+)?$    # at file.rs:6:7
        | (?i:(?:stack\ ?|back)trace:?)$                     # what stands above them
    )""",
    re.VERBOSE,
)
#: The beginning of a warning that absl writes once in every process.
_PREAMBLE = "WARNING: All log messages before absl::InitializeLog"
#: `_FATAL` matches lines that tell why the process died, `_ERROR` lines that may tell it.
_FATAL = re.compile(
    r"(?<![a-z])(?:fatal|critical|panic|panicked|assertion|sanitizer)(?![a-z])"
    r"|\bcheck fail|llvm error|what\(\):|^f\d{4} |stack smashing|corruption|invalid pointer",
    re.IGNORECASE,
)
_ERROR = re.compile(r"error|^e\d{4} |exception|\b(?:failed|cannot|abort)", re.IGNORECASE)


class LastWords:
    """The kept part of a process's output: the lines that may tell why it died."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget what was written so far."""
        self._open = bytearray()  # The beginning of a line that has not ended yet.
        self._count = 0
        self._fatal, self._error, self._any = _Ends(10), _Ends(10), _Ends(100)
        self._follows: tuple[_Ends, int] = (self._any, 0)

    def add(self, chunk: bytes) -> None:
        """Add the next bytes of the output."""
        *lines, self._open = (self._open + chunk).replace(b"\r", b"\n").split(b"\n")
        if len(self._open) > _MAX_OPEN_NBYTES:
            lines.append(self._open)
            self._open = bytearray()
        for line in lines:
            self._keep(line)

    def text(self, limit: int = 2000) -> str:
        """Return the words, without backtraces, and "..." where lines are left out.

        If not all fit into `limit` characters, lines that tell why it died are chosen first, the
        last ones next.
        """
        self._keep(self._open)
        self._open = bytearray()
        taken: dict[int, str] = {}
        for number, line in (*self._fatal.lines(), *self._error.lines(), *self._any.lines()):
            if number not in taken:
                limit -= len(line) + len(_GAP) + 2
                if limit < 0:
                    break
                taken[number] = line
        told, expected = [], 0
        for number in sorted(taken):
            told += [_GAP] * (number != expected)
            told.append(taken[number])
            expected = number + 1
        return "\n".join(told)

    def _keep(self, line: bytes | bytearray) -> None:
        text = _CONTROLS.sub("", line.decode("utf-8", "replace")).rstrip()
        if not text or text.startswith(_PREAMBLE) or _FRAME.match(text):
            return
        why = _FATAL.search(text) or _ERROR.search(text)
        if len(text) > _MAX_LINE:
            middle = why.start() - _MAX_LINE // 4 if why else 0
            begin = max(0, min(middle, len(text) - _MAX_LINE))
            text = text[begin : begin + _MAX_LINE]
        kept = self._count, text
        self._count += 1
        self._any.add(kept)
        if why:
            self._follows = (self._fatal if why.re is _FATAL else self._error), _NUM_AFTER + 1
        ends, left = self._follows
        if left:
            ends.add(kept)
            self._follows = ends, left - 1


def condense(written: bytes) -> str:
    """Return the last words in the whole output of a process."""
    words = LastWords()
    words.add(written)
    return words.text()


class _Ends:
    """The first and the last of many lines, each with its number."""

    def __init__(self, count: int) -> None:
        self._first: list[tuple[int, str]] = []
        self._last: deque[tuple[int, str]] = deque(maxlen=count)

    def add(self, line: tuple[int, str]) -> None:
        (self._first if len(self._first) < 10 else self._last).append(line)

    def lines(self) -> list[tuple[int, str]]:
        """Return the lines; those that must be kept come first."""
        return [*self._first[:3], *reversed(self._last), *self._first[3:]]
