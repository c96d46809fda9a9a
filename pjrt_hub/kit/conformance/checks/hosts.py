"""How each host fares on this plugin, judged by the functions that the plugin lacks."""

from __future__ import annotations

import importlib.util
import re
from functools import partial
from pathlib import Path

from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Failed, Unsupported
from pjrt_hub.kit.conformance.host import Host, hosts
from pjrt_hub.kit.conformance.missing_functions import MissingFunctions, find_missing
from pjrt_hub.kit.conformance.subject import Subject

_SHOWN = 8


def runs(subject: Subject, host: Host) -> None:
    """Note how a host runs on the plugin; fail if JAX aborts, but the plugin registers with JAX."""
    lacks = find_missing(subject)
    if not lacks.asked:
        subject.note("no client here: only functions that are NULL are known")
    found = host.without(lacks.null, lacks.unimplemented, lacks.traits)
    told = f"{_title(host)} {host.word(found)}"
    if found.functions:
        told += f": {_reasons(found.functions, lacks)}"
    if found.aborts and host.name == "JAX" and _registers_with_jax(subject.path):
        raise Failed(f"it registers with JAX, so expected that JAX does not abort; found: {told}")
    subject.note(told)
    if found.aborts or next(iter(host.needs)) in found.fails:
        raise Unsupported(f"{host.name} does not run")


def _reasons(functions: tuple[str, ...], lacks: MissingFunctions) -> str:
    """Say how functions are missing: "PJRT_Buffer_IsOnCpu is NULL"."""
    names = list(dict.fromkeys(functions))
    words = [f"{name} is {'NULL' if name in lacks.null else 'UNIMPLEMENTED'}" for name in names]
    more = [f"{len(words) - _SHOWN} more"] if len(words) > _SHOWN else []
    return ", ".join([*words[:_SHOWN], *more])


def _title(host: Host) -> str:
    # pjrt-hub is always checked in this release, so its title needs no version.
    return host.name if host.name == "pjrt-hub" else host.title


def _registers_with_jax(library: Path) -> bool:
    """Say whether the library's package has an entry point `jax_plugins`."""
    from importlib.metadata import entry_points

    tops = {
        point.value.partition(":")[0].split(".")[0] for point in entry_points(group="jax_plugins")
    }
    return any(library.resolve().is_relative_to(folder) for top in tops for folder in _folders(top))


def _folders(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(each).resolve() for each in (spec and spec.submodule_search_locations) or ()]


for _host in hosts():
    check(
        needs="plugin",
        seconds=60,
        area="hosts",
        name=re.sub(r"\W", "_", _title(_host).lower()),
        title=f"Look for the functions that {_title(_host)} needs to run -> the plugin has them",
    )(partial(runs, host=_host))
