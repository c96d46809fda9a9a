"""One line of the answer to "which plugins are there?".

Owns the joining of candidates, rejections and the choice into one list; must not choose.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pjrt_hub.base import digest
from pjrt_hub.base.abi import ApiVersion, Verdict
from pjrt_hub.base.listing import Listing
from pjrt_hub.errors import AmbiguousPluginError, PluginNotFoundError
from pjrt_hub.finding.contract.manifest import FILE_NAME
from pjrt_hub.finding.discovery import packages, select
from pjrt_hub.finding.discovery.source import Candidate, Rejection
from pjrt_hub.finding.discovery.survey import Survey
from pjrt_hub.finding.store.cache.memo import Probes
from pjrt_hub.finding.store.catalog import Artifact


class Finding(NamedTuple):
    """A plugin that was found, or a place where one was expected, with the verdict on it.

    Attributes:
        name: the plugin ("cuda13"), or the word that was asked for.
        platform: what it drives ("cuda"); empty if nothing usable was found.
        version: the version of the distribution that ships the library, or empty.
        api_version: its PJRT API version as far as it is known without loading it, or None.
        priority: the highest wins if no platform is named.
        hardware: whether its hardware is present, and the reason.
        source: the source that found it, or empty.
        origin: every place that led to it.
        library_path: the library, or None if it must be fetched or cannot be used.
        verdict: whether it can be used or was chosen; the reason, if not or if noteworthy.
        chosen: whether it is the one that `client` would use.
        aside: whether nothing of it is here, or another of that name is used in its place.
        package: the distribution that ships the library, or empty.
        license: the licence in the registry's row; empty if no row is of that release.
        publisher: the builder that the index's attestation names; empty if there is none.
    """

    name: str
    platform: str
    version: str
    api_version: ApiVersion | None
    priority: int
    hardware: Verdict
    source: str
    origin: str
    library_path: Path | None
    verdict: Verdict
    chosen: bool
    aside: bool = False
    package: str = ""
    license: str = ""
    publisher: str = ""

    @property
    def is_unknown(self) -> bool:
        """Whether `name` is a word that was asked for and that nothing has as its name."""
        return self.verdict.reason == select.NO_SUCH_NAME

    def _row(self) -> dict[str, str]:
        word = "chosen" if self.chosen else "usable" if self.verdict.ok else "no"
        return {
            "name": self.name,
            "platform": self.platform or "-",
            "version": self.version or "-",
            "api": str(self.api_version or "-"),
            "verdict": ": ".join(filter(None, (word, self.verdict.reason))),
        }


Finding.__module__ = "pjrt_hub"  # The body of a NamedTuple cannot set this.
_NO = Verdict(False, "nothing usable was found")
_NOTHING = Finding("", "", "", None, 0, _NO, "", "", None, _NO, False)


def findings(
    survey: Survey,
    request: select.Request | None,
    *,
    offline: bool,
    probes: Probes | None = None,
    row_of: Callable[[Candidate], Artifact | None] = lambda _: None,
) -> Listing[Finding]:
    """List everything that was found: the choice first, then the rest as the survey orders it.

    `offline` is as for `select.choose`. `probes` know the API versions of libraries that were
    loaded before; `row_of` returns the registry's row of a candidate's release, or None.
    """
    chosen: Candidate | None = None
    reasons: dict[tuple[str, str], str] = {}
    try:
        choice = select.choose(survey, request, offline=offline)
    except PluginNotFoundError as exc:
        rejections = [each for each in exc.rejections if isinstance(each, Rejection)]
    except AmbiguousPluginError as exc:
        rejections = list(survey.rejections)
        what = exc.message.partition("\n")[0]
        reasons = {
            (item.name, item.origin): what
            if item.may_run
            else f"its hardware is absent: {item.hardware.reason}"
            for item in survey.candidates
        }
    else:
        chosen, rejections = choice.candidate, list(choice.rejections)
        reasons[chosen.name, chosen.origin] = choice.reason
    for why in rejections:
        reasons.setdefault((why.name, why.origin), why.reason)
    builds = [each.build for each in rejections if each.build is not None]
    candidates = [chosen] if chosen is not None else []
    for each in sorted(survey.candidates, key=lambda each: not chosen or each.name != chosen.name):
        same = (build for build in builds if build.name == each.name)
        candidates += (one for one in (each, *same) if chosen is None or not _same(one, chosen))
    listed = {(each.name, each.origin) for each in candidates}
    usable = [
        _usable(each, reasons.get((each.name, each.origin), ""), chosen, probes, row_of(each))
        for each in candidates
    ]
    unusable = [_unusable(each) for each in rejections if (each.name, each.origin) not in listed]
    return Listing(usable + unusable)


def _usable(
    candidate: Candidate,
    reason: str,
    chosen: Candidate | None,
    probes: Probes | None,
    row: Artifact | None,
) -> Finding:
    is_chosen = chosen is not None and _same(candidate, chosen)
    version, path = candidate.api_version, candidate.library_path
    if path is not None and probes is not None:
        version = version or probes.api_version(path)
    return Finding(
        name=candidate.name,
        platform=candidate.platform,
        version=candidate.version,
        api_version=version or (row.api_version if row else None),
        priority=candidate.priority,
        hardware=candidate.hardware,
        source=candidate.source,
        origin=candidate.origin,
        library_path=candidate.library_path,
        verdict=Verdict(
            is_chosen or candidate.may_run, "; ".join(filter(None, (reason, _hook_note(candidate))))
        ),
        chosen=is_chosen,
        package=candidate.distribution,
        license=row.license if row else "",
        publisher=row.publisher if row else "",
    )


def _hook_note(candidate: Candidate) -> str:
    """Return a note if a package in `pjrt_plugins` has an initialize() but no manifest."""
    path = candidate.library_path
    if candidate.manifest.path is not None or path is None:
        return ""
    homes = (each for each in list(path.parents)[:2] if each.parent.name == packages.PACKAGE)
    with suppress(OSError):
        for home in homes:
            if re.search(rb"^def initialize\b", digest.content(home / "__init__.py"), re.M):
                return (
                    f"its initialize() is never called: put {FILE_NAME} into {home}, as "
                    "docs/manifest.md says"
                )
    return ""


def _same(one: Candidate, other: Candidate) -> bool:
    ours, theirs = ((each.name, each.origin, each.library_path) for each in (one, other))
    return ours == theirs


def _unusable(rejection: Rejection) -> Finding:
    return _NOTHING._replace(
        name=rejection.name,
        origin=rejection.origin,
        verdict=Verdict(False, rejection.reason),
        aside=rejection.absent or rejection.shadowed,
    )
