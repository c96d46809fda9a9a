"""Why a test failed, by the rules of causes.toml; and which failures are known, by known.json."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from process import Result

HERE = Path(__file__).parent
KNOWN = HERE / "known.json"
UNEXPLAINED = "unexplained"
BAD = ("failed", "error", "crash", "timeout")


@dataclass(frozen=True)
class Rule:
    """A cause, why it is one, and how its failures read."""

    name: str
    why: str
    pattern: str


def rules() -> tuple[Rule, ...]:
    """The causes in the order in which they are tried."""
    rows = tomllib.loads((HERE / "causes.toml").read_text("utf-8"))["cause"]
    return tuple(Rule(**row) for row in rows)


def of(result: Result, known: Iterable[Rule]) -> str:
    """The cause of a failure: the first rule that its text has, or "unexplained"."""
    return next((rule.name for rule in known if re.search(rule.pattern, result.text)), UNEXPLAINED)


def causes(results: Iterable[Result]) -> dict[str, str]:
    """Map what did not pass to "outcome: cause", by name."""
    known = rules()
    bad = [result for result in results if result.outcome in BAD]
    return {r.name: f"{r.outcome}: {of(r, known)}" for r in sorted(bad, key=lambda r: r.name)}


def known(path: Path, platform: str) -> dict[str, str]:
    """The failures that are known on a platform, in the form of `causes`."""
    return dict(_read(path).get(platform, {}))


def keep(path: Path, platform: str, ran: Iterable[Result], failures: dict[str, str]) -> None:
    """Make these the known failures of a platform among what ran; leave what did not run."""
    names = {result.name for result in ran}
    others = {name: what for name, what in known(path, platform).items() if name not in names}
    table = _read(path) | {platform: others | failures}
    text = json.dumps(table, indent=1, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", "utf-8")


def _read(path: Path) -> dict[str, dict[str, str]]:
    return json.loads(path.read_text("utf-8")) if path.exists() else {}
