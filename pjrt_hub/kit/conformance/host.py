"""What a host of plugins does if a plugin lacks functions, as it was measured.

The measurements are data, hosts/*.toml; must not run any host.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

#: A host calls some functions only if the plugin's buffers are in the host's memory, if it has the
#: extension FFI, or if JAX keeps its programs in the cache on disk.
TRAITS = frozenset({"on_cpu", "ffi", "compile_cache"})
#: JAX caches programs of these platforms (`jax._src.compilation_cache`); a GPU has two names.
CACHED_PLATFORMS = frozenset({"tpu", "gpu", "cpu", "neuron", "cuda", "rocm"})


@dataclass(frozen=True, slots=True)
class Without:
    """What a host does without one function, or without several."""

    fails: tuple[str, ...] = ()  # The steps that raise; steps that need them are impossible, too.
    at: str = ""  # The step in which the host's process ends; empty if it does not end.
    signal: str = ""  # What ends the process: "SIGABRT", or "SIGALRM" if it hangs.
    functions: tuple[str, ...] = ()  # The missing functions that cause this.

    @property
    def aborts(self) -> bool:
        """Whether the process of the host ends or hangs."""
        return bool(self.at)


@dataclass(frozen=True, slots=True)
class Host:
    """A release of a host.

    Attributes:
        null: each function that is NULL in the table or past its end -> how the host fares;
            functions that the host can do without are left out.
        unimplemented: the same for functions that answer UNIMPLEMENTED.
        asked_of: each of `TRAITS` -> the functions that the host calls only on plugins with that
            trait, which the plugin of the measurement had.
    """

    name: str  # The name of the host, such as "JAX".
    release: str  # A version such as "0.10.2", or the commit whose source was read.
    learned: str  # How this was learned, when, and with which plugin.
    needs: Mapping[str, tuple[str, ...]]  # The steps of the measurement, each with those it needs.
    null: Mapping[str, Without]
    unimplemented: Mapping[str, Without]
    left_out: tuple[str, ...] = ()  # Steps that tell nothing, because whole plugins fail them, too.
    asked_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name and the release."""
        return f"{self.name} {self.release}"

    def without(
        self,
        null: Iterable[str] = (),
        unimplemented: Iterable[str] = (),
        traits: Set[str] = TRAITS,
    ) -> Without:
        """Say how the host fares on a plugin that lacks functions: where it ends, or what fails.

        `null` and `unimplemented` name the functions; `traits` are those that the plugin has.
        """
        spared = {name for each in self.asked_of.keys() - traits for name in self.asked_of[each]}
        met = [found for name in null if (found := self.null.get(name))]
        met += [found for name in unimplemented if (found := self.unimplemented.get(name))]
        met = [found for found in met if not spared & set(found.functions)]
        order = list(self.needs)
        ends = sorted((each for each in met if each.aborts), key=lambda each: order.index(each.at))
        if ends:
            first = [each for each in ends if each.at == ends[0].at]
            names = tuple(name for each in first for name in each.functions)
            return Without((), ends[0].at, ends[0].signal, names)
        fails = {step for each in met for step in each.fails}
        names = tuple(name for each in met for name in each.functions)
        return Without(tuple(step for step in order if step in fails), functions=names)

    def word(self, found: Without) -> str:
        """Say how the host fares: "runs", "runs without copy", "aborts at jit (SIGABRT)"."""
        if found.aborts:
            if found.signal == "SIGALRM":
                return f"hangs at {found.at}"
            return f"aborts at {found.at} ({found.signal})"
        if not found.fails:
            return "runs"
        first = next(iter(self.needs))
        if first in found.fails:
            return f"refuses at {first}"
        return f"runs without {', '.join(found.fails)}"


@cache
def hosts() -> tuple[Host, ...]:
    """Read the profile of every known host, the newest release of each first."""
    folder = files("pjrt_hub.kit.conformance").joinpath("hosts")
    texts = [path.read_text("utf-8") for path in folder.iterdir() if path.name.endswith(".toml")]
    known = [parse(text) for text in texts]
    known.sort(key=lambda host: _age(host.release), reverse=True)
    return tuple(sorted(known, key=lambda host: host.name.lower()))


def newest() -> tuple[Host, ...]:
    """Return the newest release of each host."""
    by_name: dict[str, Host] = {}
    for host in hosts():
        by_name.setdefault(host.name, host)
    return tuple(by_name.values())


def parse(text: str) -> Host:
    """Read the text of a file of hosts/."""
    read = tomllib.loads(text)
    needs, asked_of = (
        {name: tuple(each) for name, each in rows.items()}
        for rows in (read["needs"], read.get("asked_of", {}))
    )
    null, unimplemented = (_outcomes(read.get(form, {})) for form in ("null", "unimplemented"))
    left_out = tuple(read.get("left_out", ()))
    known = (read["host"], read["release"], read["learned"])
    return Host(*known, needs, null, unimplemented, left_out, asked_of)


def _outcomes(rows: Mapping[str, Sequence[str]]) -> dict[str, Without]:
    """Read "SIGABRT at jit" or "fails put, get", each with the missing functions that cause it."""
    found = {}
    for outcome, names in rows.items():
        signal, _, step = outcome.partition(" at ")
        fails = () if step else tuple(outcome.removeprefix("fails ").split(", "))
        for name in names:
            found[name] = Without(fails, step, signal if step else "", (name,))
    return found


def _age(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdecimal())
