"""The outcome of checks: verdicts, results, and the report that holds them all.

Owns the report's form as JSON; must not show the report to anybody.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pjrt_hub.base.fork import cached_property
from pjrt_hub.errors import FileFormatError

#: The version of the JSON form; readers refuse a higher one.
FORM = 2


class Verdict(StrEnum):
    """What a check found out about the plugin.

    FAIL, CRASH and TIMEOUT are defects of the plugin; UNSUPPORTED is what it need not have; SKIP
    is what cannot be checked here.
    """

    PASS = "pass"
    FAIL = "fail"
    UNSUPPORTED = "unsupported"
    SKIP = "skip"
    CRASH = "crash"
    TIMEOUT = "timeout"

    @property
    def is_defect(self) -> bool:
        """Whether the verdict is a defect of the plugin."""
        return self in (Verdict.FAIL, Verdict.CRASH, Verdict.TIMEOUT)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check.

    Attributes:
        name: the name of the check.
        title: what was done, and what had to follow.
        verdict: what the check found.
        text: what was expected and found, why it was skipped, or how the process died.
        notes: facts that are no verdict.
        seconds: how long the check took.
        number: the number of the promise that is checked, also by other checks; 0 for none.
        words: the last of what the plugin wrote before it died.
        function: the C function that answered with an error, or was in progress at the end.
        cause: the other check that found the cause; empty if there is none.
    """

    name: str
    title: str
    verdict: Verdict
    text: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    number: int = 0
    words: str = ""
    function: str = ""
    cause: str = ""

    @property
    def area(self) -> str:
        """The area of the check."""
        return self.name.partition(".")[0]

    @classmethod
    def of_fields(cls, row: Mapping[str, Any]) -> Result:
        """Make a result from its fields in JSON.

        Args:
            row: the fields.

        Raises:
            ValueError, KeyError, TypeError: the fields are not those of a result.
        """
        return cls(**{**row, "verdict": Verdict(row["verdict"]), "notes": tuple(row["notes"])})


@dataclass(frozen=True, slots=True)
class Identity:
    """The plugin that a report is about.

    Attributes:
        name: the plugin's name, or its file's.
        path: the library's path.
        sha256: the digest of the library's file.
        api_version: "0.81"; empty if the library cannot be loaded.
        platform: the platform that the client names; empty without a client.
        platform_version: the plugin's own words.
        extensions: each extension's name -> the size of its node in bytes.
        attributes: the plugin's attributes.
        options: the create options of the clients.
        devices: the kind of each device.
        target: the machine that the plugin described without hardware; empty for none.
        layers: the layers that the plugin was checked through, with settings; empty for none.
    """

    name: str
    path: str
    sha256: str
    api_version: str = ""
    platform: str = ""
    platform_version: str = ""
    extensions: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    target: str = ""
    layers: str = ""


@dataclass(frozen=True)  # A cached property needs a `__dict__`, so there are no slots.
class Report:
    """The results of a run of the suite on one plugin.

    Attributes:
        plugin: the plugin that was checked.
        host: the machine: "linux-x86_64-glibc2.36".
        pjrt_hub: the version of the suite.
        date: when the report was made, in UTC: "2026-11-20T16:00:00Z".
        seconds: how long the run took.
        results: the results, in the order of the checks.
        left: how many checks were not made, because the run was interrupted.
    """

    plugin: Identity
    host: str
    pjrt_hub: str
    date: str
    seconds: float
    results: tuple[Result, ...]
    left: int = 0

    @property
    def defects(self) -> tuple[Result, ...]:
        """The results that are defects, one for each cause.

        Results that explain most others come first, equal ones in the order of the checks.
        """
        found = [each for each in self.results if each.verdict.is_defect and not each.cause]
        return tuple(sorted(found, key=lambda each: -len(self.hidden(each.name))))

    def hidden(self, name: str) -> tuple[Result, ...]:
        """Return the other results that a cause explains.

        Args:
            name: the name of the check that found the cause.
        """
        return self._hidden.get(name, ())

    @cached_property
    def _hidden(self) -> dict[str, tuple[Result, ...]]:
        grouped: dict[str, list[Result]] = {}
        for each in self.results:
            if each.cause:
                grouped.setdefault(each.cause, []).append(each)
        return {cause: tuple(results) for cause, results in grouped.items()}

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many results there are of each verdict."""
        counted = Counter(each.verdict for each in self.results)
        return {verdict: counted[verdict] for verdict in Verdict}

    def areas(self) -> Iterator[tuple[str, list[Result]]]:
        """Yield each area with its results."""
        grouped: dict[str, list[Result]] = {}
        for each in self.results:
            grouped.setdefault(each.area, []).append(each)
        yield from grouped.items()

    def __getitem__(self, name: str) -> Result:
        """Return the result of a check by its name."""
        return {each.name: each for each in self.results}[name]

    def to_json(self) -> str:
        """Return the report as JSON, in the form of docs/conformance.md."""
        return json.dumps({"form": FORM, **dataclasses.asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, path: str = "the report") -> Report:
        """Read a report from `to_json`.

        Args:
            text: the report.
            path: its source, for the error.

        Raises:
            FileFormatError: the text is not a report, or is one of a newer form.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            if not isinstance(fields, dict):
                raise ValueError("it is not a JSON object")
            form = fields.pop("form")
            if form > FORM:
                raise ValueError(f"it has the form {form}, this version reads up to {FORM}")
            plugin = fields.pop("plugin")
            plugin["devices"] = tuple(plugin["devices"])
            results = tuple(Result.of_fields(row) for row in fields.pop("results"))
            return cls(Identity(**plugin), results=results, **fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
            why = str(exc) if isinstance(exc, ValueError) else f"it has other fields ({exc})"
            raise FileFormatError(
                f"{path} is not a conformance report: {why}",
                path=path,
                hint="`pjrt-hub check PLUGIN --output FILE` writes one",
            ) from exc
