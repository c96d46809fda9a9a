"""What becomes of each host on this plugin, by the functions that the plugin lacks."""

from __future__ import annotations

import re
from functools import partial

from pjrt_hub.kit.conformance import registration
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Failed, Unsupported
from pjrt_hub.kit.conformance.host import Host, hosts
from pjrt_hub.kit.conformance.lacking import Lacking, lacking
from pjrt_hub.kit.conformance.subject import Subject

_SHOWN = 8


def runs(subject: Subject, host: Host) -> None:
    """Says whether a host runs."""
    lacks = lacking(subject)
    if not lacks.asked:
        subject.note("no client here: only functions that are NULL are known")
    found = host.without(lacks.null, lacks.unimplemented, lacks.traits)
    told = f"{_title(host)} {host.word(found)}"
    if found.functions:
        told += f": {_told(found.functions, lacks)}"
    if found.aborts and host.name == "JAX" and registration.with_jax(subject.path):
        raise Failed(f"it registers with JAX, so expected that JAX does not abort; found: {told}")
    subject.note(told)
    if found.aborts or next(iter(host.needs)) in found.fails:
        raise Unsupported(f"{host.name} does not run")


def _told(functions: tuple[str, ...], lacks: Lacking) -> str:
    """How functions are lacking: "PJRT_Buffer_IsOnCpu is NULL"."""
    names = list(dict.fromkeys(functions))
    words = [f"{name} is {'NULL' if name in lacks.null else 'UNIMPLEMENTED'}" for name in names]
    more = [f"{len(words) - _SHOWN} more"] if len(words) > _SHOWN else []
    return ", ".join([*words[:_SHOWN], *more])


def _title(host: Host) -> str:
    return host.name if host.name == "pjrt-hub" else host.title  # it is this release


for _host in hosts():
    check(
        needs="plugin",
        seconds=60,
        area="hosts",
        name=re.sub(r"\W", "_", _title(_host).lower()),
        title=f"The functions without which {_title(_host)} does not run -> the plugin has them",
    )(partial(runs, host=_host))
