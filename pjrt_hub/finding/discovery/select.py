"""The choice of a plugin, and the reasons against the others.

Owns the rules of selection and the one text that explains them; docs/discovery.md states them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pjrt_hub.errors import AmbiguousPluginError, PluginNotFoundError
from pjrt_hub.finding.contract.manifest import Manifest
from pjrt_hub.finding.contract.names import canonical, did_you_mean
from pjrt_hub.finding.discovery import registry_rows, user_paths
from pjrt_hub.finding.discovery.source import Candidate, Rejection, World
from pjrt_hub.finding.discovery.survey import Survey

#: The origin of a request that a caller makes.
ARGUMENT = "the argument"
OURS = "PJRT_HUB_PLATFORMS"
JAX = "JAX_PLATFORMS"
_FETCHED = (registry_rows.CACHED, registry_rows.CATALOGUED)
NO_SUCH_NAME = "no plugin, platform or alias has that name"


class Request(NamedTuple):
    """A user's request for a plugin."""

    words: tuple[str, ...]  # Plugins, platforms, aliases or "distribution:plugin", best first.
    origin: str  # The argument or the variable that asks.

    def __str__(self) -> str:
        return f"{','.join(self.words)} (from {self.origin})"

    @classmethod
    def read(
        cls, argument: str | None, env: Mapping[str, str], origin: str = ARGUMENT
    ) -> Request | None:
        """Return the first request that is set: the argument, our variable or JAX's; else None.

        `origin` is what asks with the argument.
        """
        for text, asker in (
            (argument, origin),
            (env.get(OURS), f"${OURS}"),
            (env.get(JAX), f"${JAX}"),
        ):
            # JAX strips no spaces, so it does not know the platform " cpu".
            items = (text or "").split(",")
            words = tuple(item if asker == f"${JAX}" else item.strip() for item in items)
            if any(words):
                return cls(tuple(dict.fromkeys(word for word in words if word)), asker)
        return None


class Choice(NamedTuple):
    """The plugin to use, and why."""

    candidate: Candidate
    rejections: tuple[Rejection, ...]  # Everything that was not chosen.
    reason: str  # Why the candidate won.
    was_asked_for_alone: bool = False  # Whether the user asked for nothing else.
    unknown: tuple[Rejection, ...] = ()  # Words of the request that name nothing.
    world: World | None = None  # Where it was chosen; loading it looks there, too.


def choose(
    survey: Survey, request: Request | None = None, *, offline: bool = False, to_run: bool = False
) -> Choice:
    """Choose one plugin; without a request, by priority.

    Without a request, `offline` passes over plugins that would have to be fetched, if another one
    is here. `to_run` passes over those that would have to be fetched for absent hardware, since
    they could only compile ahead of time.

    Raises:
        PluginNotFoundError: nothing fits; `.rejections` holds every reason.
        AmbiguousPluginError: several of equal standing fit.
    """
    for given in survey.candidates:
        if given.source == user_paths.EXPLICIT:
            why = "its path was given"
            return Choice(_add_note(given), survey.rejections, why, was_asked_for_alone=True)
    if request is None:
        return _by_priority(survey, offline)
    return _by_request(survey, request, to_run)


def explain(answer: Survey | Choice) -> str:
    """Format a line for each candidate, for errors, `pjrt-hub list` and PJRT_HUB_DEBUG."""
    lines = []
    if isinstance(answer, Choice):
        lines.append(f"chosen: {line(answer.candidate)}")
        lines.append(f"  because {answer.reason}")
        lines += (f"  note: {note}" for note in answer.candidate.notes)
    else:
        lines += map(line, answer.candidates)
    return "\n".join([*lines, *map(str, answer.rejections)])


def line(candidate: Candidate) -> str:
    """Describe a candidate in one line."""
    shipped = f"{candidate.distribution} {candidate.version}".strip()
    here = {True: "present", False: "absent", None: "unknown"}[candidate.hardware.ok]
    return (
        f"{candidate.name}: platform {candidate.platform}, priority {candidate.priority}, "
        f"{f'{shipped}, ' if shipped else ''}{candidate.library_path or 'must be fetched'}, "
        f"hardware {here} ({candidate.hardware.reason}) [{candidate.origin}]"
    )


def _by_priority(survey: Survey, offline: bool) -> Choice:
    present = [each for each in survey.candidates if each.may_run]
    # A user who has installed a plugin that works here did not ask for a download.
    installed = [each for each in present if each.source not in _FETCHED]
    local = [each for each in present if not each.must_be_fetched]
    eligible = local if installed or (offline and local) else present
    if not eligible:
        raise PluginNotFoundError(
            "no plugin can be used on this machine\n" + explain(survey),
            rejections=_losers(survey, None, (), ""),
            # The hint leaves out pip: what pip could install here would be a candidate to fetch.
            hint="docs/plugins.md says what runs where; name the library of another plugin by its "
            "path, or in PJRT_HUB_PLUGIN_PATH",
        )
    winner = _first(survey, sorted(eligible, key=_sort_key), None)
    known = "is present" if winner.hardware.ok else "may be here"
    reason = f"its hardware {known} and its priority, {winner.priority}, is the highest"
    otherwise = f"it would have to be fetched, and {winner.name} is here"
    return Choice(winner, _losers(survey, winner, eligible, otherwise), reason)


def _by_request(survey: Survey, request: Request, to_run: bool) -> Choice:
    unknown: list[Rejection] = []
    for word in request.words:
        found = matches(survey, word)
        if not found:
            unknown.append(_unknown(survey, word, request.origin))
        present = [each for each in found if each.may_run]
        if present:
            return _choose_named(survey, request, word, present, unknown)
    # A single plugin or platform that is asked for by name may compile without the hardware.
    (word, *others) = request.words
    named = [each for each in matches(survey, word) if word not in each.aliases]
    usable = [each for each in named if not (to_run and each.must_be_fetched)]
    if usable and not others:
        return _choose_named(survey, request, word, usable, unknown)
    idle = ""
    if named and not others:
        idle = (
            f"nothing was fetched; `pjrt-hub fetch {named[0].name}` fetches it all the same, to "
            "compile ahead of time or where the hardware is there in spite of this"
        )
    raise _not_found(survey, request, unknown, idle)


def _choose_named(
    survey: Survey,
    request: Request,
    word: str,
    matches: list[Candidate],
    unknown: Sequence[Rejection],
) -> Choice:
    # A plugin on this machine comes before one that would have to be fetched.
    winner = _first(survey, sorted(matches, key=_rank), word)
    losers = _losers(survey, winner, matches, "it was not asked for")
    return Choice(
        _add_note(winner),
        (*unknown, *losers),
        f"{request.origin} asks for {word!r}",
        was_asked_for_alone=len(request.words) == 1,
        unknown=tuple(each for each in unknown if each.reason == NO_SUCH_NAME),
    )


def _add_note(winner: Candidate) -> Candidate:
    """Note that the hardware of a named plugin is absent."""
    if winner.may_run:
        return winner
    note = f"its hardware is absent: {winner.hardware.reason}"
    return winner._replace(notes=(*winner.notes, note))


def _rank(candidate: Candidate) -> tuple[object, ...]:
    return (candidate.must_be_fetched, *_sort_key(candidate))


def _sort_key(candidate: Candidate) -> tuple[int, bool, tuple[int, int]]:
    # Of plugins to be fetched, none was chosen by installing it, so the newest API is first.
    api = candidate.api_version if candidate.must_be_fetched else None
    newest = (-api.major, -api.minor) if api else (0, 0)
    return (-candidate.priority, candidate.must_be_fetched, newest)


def _first(survey: Survey, ranked: Sequence[Candidate], word: str | None) -> Candidate:
    """Return the winner, or refuse a tie and a name that two distributions claim."""
    winner = ranked[0]

    def same_library(each: Candidate) -> bool:
        return winner.library_path is not None and each.library_path == winner.library_path

    equal = [each for each in ranked if _rank(each) == _rank(winner) and not same_library(each)]
    if word is None or ":" not in word:
        # A rival counts even if its hardware is absent, because the name itself is in doubt.
        equal += (
            each
            for each in survey.candidates
            if each.name == winner.name and each is not winner and each not in equal
        )
    tied = [winner, *(each for each in equal if each is not winner)]
    if len(tied) == 1:
        return winner
    what = f"for {word!r} there are" if word else "there are"
    raise AmbiguousPluginError(
        f"{what} {len(tied)} plugins of equal standing\n" + "\n".join(map(line, tied)),
        hint="name one: " + " or ".join(f'client("{_selector(each, tied)}")' for each in tied),
    )


def _selector(candidate: Candidate, tied: Sequence[Candidate]) -> str:
    """Return the shortest word that selects a candidate among those tied with it."""
    if sum(each.name == candidate.name for each in tied) == 1:
        return candidate.name
    if candidate.distribution:
        return f"{candidate.distribution}:{candidate.name}"
    return str(candidate.library_path)


def matches(survey: Survey, word: str) -> list[Candidate]:
    """Return the candidates that have a word as their name, else as their platform or an alias.

    "distribution:plugin" is one build, which need not be the one that the name alone selects.
    """
    distribution, colon, name = word.rpartition(":")
    if colon:
        others = (each.build for each in survey.rejections if each.build)
        return [
            each
            for each in (*survey.candidates, *others)
            if each.name == name and canonical(distribution) == each.distribution
        ]
    named = [each for each in survey.candidates if each.name == word]
    return named or [
        each for each in survey.candidates if word == each.platform or word in each.aliases
    ]


def _unknown(survey: Survey, word: str, origin: str) -> Rejection:
    meant = [each.name for each in survey.known if word in _words(each)]
    meant += [each.name for each in survey.rejections if each.name == word]
    reason = (
        f"it means {' or '.join(dict.fromkeys(meant))}, which cannot be had here"
        if meant
        else NO_SUCH_NAME
    )
    hint = _likely(word, _all_words(survey)) if not meant else ""
    return Rejection(_printable(word), origin, reason, hint)


def _likely(word: str, words: set[str]) -> str:
    """Return "did you mean 'cuda'?" for a similar name or for a file, or an empty string."""
    if os.path.isfile(word) and not os.path.dirname(word):
        return f"did you mean {os.path.join(os.curdir, word)!r}?"
    return did_you_mean(word, words)


def _all_words(survey: Survey) -> set[str]:
    manifests = (*survey.known, *(each.manifest for each in survey.candidates))
    return {word for each in manifests for word in _words(each)}


def _words(manifest: Manifest) -> tuple[str, ...]:
    return (manifest.name, manifest.platform, *manifest.aliases)


def _losers(
    survey: Survey, winner: Candidate | None, eligible: Sequence[Candidate], otherwise: str
) -> tuple[Rejection, ...]:
    losers = []
    for each in survey.candidates:
        if each is winner:
            continue
        if not each.may_run:
            reason = f"its hardware is absent: {each.hardware.reason}"
        elif winner is None or each not in eligible:
            reason = otherwise
        elif each.priority != winner.priority:
            reason = f"its priority is {each.priority}, that of {winner.name} {winner.priority}"
        elif each.must_be_fetched and not winner.must_be_fetched:
            reason = f"it would have to be fetched, and {winner.name} is here"
        else:
            reason = f"{winner.name} comes before it"
        losers.append(Rejection(each.name, each.origin, reason))
    others = (each for each in survey.rejections if winner is None or each.build is not winner)
    return (*losers, *others)


def _not_found(
    survey: Survey, request: Request, unknown: Sequence[Rejection], next_step: str
) -> PluginNotFoundError:
    manifests = (*survey.known, *(each.manifest for each in survey.candidates))
    names = {each.name for each in manifests}
    words = _all_words(survey)
    words |= {each.name for each in survey.rejections} & set(request.words)
    meant = [_likely(word, words) for word in request.words if word not in words]
    wanted = " or ".join(f"'{_printable(word)}'" for word in request.words)
    rejections = (*unknown, *_losers(survey, None, (), "it was not asked for"))
    # The message has the reasons for what was asked for; `rejections` has all of them.
    asked = {each.name for each in manifests if set(_words(each)) & set(request.words)}
    asked |= {*request.words, registry_rows.REGISTRY}
    told = [each for each in rejections if each in unknown or each.name in asked]
    return PluginNotFoundError(
        f"no plugin for {wanted}, which {request.origin} asks for\n"
        + "\n".join(map(str, told))
        + f"\nknown: {', '.join(sorted(names)) or 'none'}; "
        f"also by platform or alias: {', '.join(sorted(words - names - asked)) or 'none'}",
        rejections=rejections,
        hint=" ".join(filter(None, meant))
        or next_step
        or "`pjrt-hub list` shows every plugin and its verdict",
    )


def _printable(word: str) -> str:
    """Escape text that only looks like an ASCII name, and shorten long text."""
    word = word if len(word) <= 80 else f"{word[:77]}..."
    return word if word.isascii() and word.isprintable() else ascii(word)[1:-1]
