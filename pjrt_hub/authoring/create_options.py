"""Which create options a library takes, found by sending wrong types (layer 5).

Owns the attempts, in a child process that is started again where one ends it, and what follows
from the answers. No client is kept: an attempt that succeeds is undone.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pjrt_hub import errors
from pjrt_hub._capi import watch
from pjrt_hub._capi.child import Child, signal_name
from pjrt_hub.contract.option import Option

if TYPE_CHECKING:
    from pjrt_hub._capi.library import Api

#: What an attempt gave: the client's "platform", or the "error".
Answer = dict[str, str]

#: A value of each type that no plugin acts upon; (1,) and "x" are wrong for most options.
_VALUES: dict[str, Any] = {
    "int64_list": [1],
    "string": "x",
    "int64": 1,
    "float": 0.5,
    "bool": True,
}
#: A name that no plugin has: what is answered to it is said of every unknown name.
_NOBODY = "zq_pjrt_hub_nobody"
#: XLA's plugins name the type that they expected: the index of PJRT_NamedValue_Type.
_EXPECTED = re.compile(r"expected type index is (\d)")
_INDEXED = ("string", "int64", "int64_list", "float", "bool")

_IDENTIFIER = re.compile(rb"(?<=\0)[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?=\0)")
_NEAR = 4096  # bytes of the library around a known name in which another one may stand
_MOST_CANDIDATES = 400
_MOST_DEATHS = 40
_SECONDS = 120.0
_SMALL = 1 << 20  # of a library of this many bytes every identifier is a candidate
_HINT = "`pjrt-hub check` says more of it; `--no-options` does not ask for options"


@dataclass(frozen=True, slots=True)
class Contact:
    """What a plugin said to a client that was asked for without any option.

    Attributes:
        platform: its platform's name, or empty where it told none.
        refusal: why it makes no client here, or empty.
    """

    platform: str
    refusal: str


def candidates(path: Path, known: Sequence[str]) -> tuple[str, ...]:
    """Gives the names that may be options: the known ones, and identifiers near them in the file.

    Args:
        path: of the library.
        known: options of other plugins.
    """
    import mmap

    near: dict[str, None] = {}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if len(data) <= _SMALL:
            places = [(0, len(data))]
        else:
            anchors = [name.encode() for name in known if "_" in name] + [b"PJRT_Client_Create"]
            places = [
                (max(0, each.start() - _NEAR), each.end() + _NEAR)
                for each in re.finditer(
                    b"\0(?:" + b"|".join(map(re.escape, anchors)) + b")\0", data
                )
            ]
        for begin, end in places:
            for each in _IDENTIFIER.finditer(data[begin:end]):
                near[each[0].decode()] = None
    return tuple(dict.fromkeys([*known, *near]))[: max(_MOST_CANDIDATES, len(known))]


def find(
    path: Path,
    names: Sequence[str],
    env: Mapping[str, str],
    *,
    identity: str = "",
    seconds: float = _SECONDS,
) -> tuple[Contact, tuple[Option, ...]]:
    """Finds out which of these names are create options of a library, and of which types.

    A name is an option where the plugin answers otherwise than to a name that nobody has: with
    another error, with the type that it expected, or by ending its process.

    Args:
        path: of the library.
        names: the candidates.
        env: the environment that the plugin sees.
        identity: of the file to ask, and no other; by default of the one that lies there.
        seconds: for all of them together.

    Returns:
        What the plugin says without any option, and the options by name.

    Raises:
        PluginLoadError: the file cannot be loaded, or is another one.
        PluginCrashedError: it dies without any option, or of too many of them.
        PluginTimeoutError: it did not answer in time.
    """
    ask = functools.partial(_ask, path, identity, env, time.monotonic() + seconds)
    [told] = ask([{}], most_deaths=1)
    assert told is not None
    strangers = ask(_each_type(_NOBODY))
    unknown = [_said(answer, _NOBODY) for answer in strangers]
    wrong = [(name, number) for name in names for number in (0, 1)]
    attempts = [_each_type(name)[number] for name, number in wrong]
    suspects: dict[str, str] = {}
    for (name, number), answer in zip(wrong, ask(attempts), strict=True):
        if _said(answer, name) != unknown[number]:
            suspects[name] = suspects.get(name) or _expected(answer)
    options = [
        Option(name, kind or _by_elimination(ask, name, unknown))
        for name, kind in sorted(suspects.items())
    ]
    return Contact(told.get("platform", ""), told.get("error", "")), tuple(options)


def _each_type(name: str) -> list[dict[str, Any]]:
    return [{name: value} for value in _VALUES.values()]


def _by_elimination(
    ask: Callable[..., list[Answer | None]], name: str, unknown: Sequence[str]
) -> str:
    """The type that is answered as though nothing were wrong, else one that the plugin survives."""
    answers = list(zip(_VALUES, ask(_each_type(name)), unknown, strict=True))
    fine = [kind for kind, answer, other in answers if _said(answer, name) == other]
    survived = [kind for kind, answer, _ in answers if answer is not None]
    return (fine or survived or ["string"])[0]


def _expected(answer: Answer | None) -> str:
    found = _EXPECTED.search((answer or {}).get("error", ""))
    return _INDEXED[int(found[1])] if found and int(found[1]) < len(_INDEXED) else ""


def _said(answer: Answer | None, name: str) -> str:
    """An answer as one would hear it for any name, and at any time."""
    if answer is None:
        return "died"
    return re.sub(r"\d+", "0", answer.get("error", "").replace(name, "NAME"))


def _ask(
    path: Path,
    identity: str,
    env: Mapping[str, str],
    deadline: float,
    attempts: Sequence[Mapping[str, Any]],
    most_deaths: int = _MOST_DEATHS,
) -> list[Answer | None]:
    """Makes a client with each of these options, in as many processes as that takes.

    Returns:
        An answer for each attempt; None where it ended the process.
    """
    answers: list[Answer | None] = []
    for death in range(1, most_deaths + 1):
        left = attempts[len(answers) :]
        status = 1
        with Child(__spec__.name, [str(path), identity, json.dumps(left)], env=env) as child:
            for line in child.answers(deadline):
                if "refusal" in line:
                    raise errors.PluginLoadError(**line["refusal"], path=path)
                if "status" in line:
                    status = line["status"]
                else:
                    answers.append(line)
            if not child.silent:
                raise errors.PluginTimeoutError(
                    f"{path} did not say in time whether it takes the options {left[0]} and others",
                    seconds=_SECONDS,
                    hint=_HINT,
                )
        if len(answers) < len(attempts):
            if death == most_deaths:
                break
            answers.append(None)
        if len(answers) == len(attempts):
            return answers
    last = attempts[len(answers)]
    what = f"the options {dict(last)}" if last else "no option"
    raise errors.PluginCrashedError(
        f"{path}: making a client with {what} ended its process",
        signal=signal_name(-status) if status < 0 else None,
        returncode=status,
        stderr=child.words(),
        hint=_HINT,
    )


def _answer(tell: watch.Tell, path: str, identity: str, attempts: str) -> int:
    """What the child does: it makes clients."""
    from pjrt_hub._capi import library

    try:
        api = library.load(path, identity=identity)
    except errors.PluginLoadError as exc:
        tell(refusal={"message": exc.message, "hint": exc.hint})
        return 1
    for options in json.loads(attempts):
        answer: Answer = {}
        try:
            client = api.call("PJRT_Client_Create", create_options=options)
            answer["platform"] = api.call("PJRT_Client_PlatformName", client=client).decode()
            api.call("PJRT_Client_Destroy", client=client)
        except errors.PjrtHubError as exc:
            answer["error"] = exc.message
            if not options:
                answer["platform"] = _platform_of_topology(api)
        tell(**answer)
    return 0


def _platform_of_topology(api: Api) -> str:
    """The platform of machines that need not be here, where the plugin describes any by default."""
    describe, name = "PJRT_TopologyDescription_Create", "PJRT_TopologyDescription_PlatformName"
    try:
        topology = api.call(describe, topology_name="", create_options={})
        return str(api.call(name, topology=topology).decode())
    except errors.PjrtHubError:
        return ""


if __name__ == "__main__":
    watch.serve(_answer)
