"""What names a plugin to the programs that open one: variables, or lines of their own files.

Owns those names, as data; must not run a host or import one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pjrt_hub.errors import FrameworkError

if TYPE_CHECKING:
    from pjrt_hub.finding.discovery.source import Candidate


class Host(NamedTuple):
    """A host, and the texts that name a plugin to it.

    They hold {name}, {jax_name}, {platform}, {PLATFORM}, {path}, and {quoted}: the path as a string
    in double quotes.
    """

    release: str  # The release that this was taken from.
    is_tested: bool = False  # Whether tests run the host; else its documentation or source says so.
    variables: Mapping[str, str] = {}
    lines: tuple[str, ...] = ()
    comment: str = "#"  # What begins a comment in the host's files.
    module: str = ""  # If it is installed beside pjrt-hub, `beside` replaces the variables.
    beside: Mapping[str, str] = {}
    platforms: tuple[str, ...] = ()  # The only platforms that it can be told; empty means any.


HOSTS = {
    "jax": Host(
        "JAX 0.4.33 to 0.12",
        is_tested=True,
        # JAX makes a platform called "cpu" or "tpu" by itself.
        variables={
            "PJRT_NAMES_AND_LIBRARY_PATHS": "{jax_name}:{path}",
            "JAX_PLATFORMS": "{jax_name}",
        },
        module="jax",
        beside={"PJRT_HUB_JAX": "{jax_name}={name}", "JAX_PLATFORMS": "{jax_name}"},
    ),
    "torch_tpu": Host(
        "TorchTPU 0.2", is_tested=True, module="torch_tpu", beside={"PJRT_HUB_TORCH": "{name}"}
    ),
    "torch_xla": Host(
        "torch_xla 2.9",
        variables={"PJRT_DEVICE": "LIBRARY", "PJRT_LIBRARY_PATH": "{path}"},
        module="torch_xla",
        beside={"PJRT_DEVICE": "PJRTHUB", "PJRT_HUB_TORCH_XLA": "{name}"},
    ),
    "pypjrt": Host("pypjrt 0.1.1", is_tested=True, variables={"PYPJRT_PLUGIN": "{path}"}),
    "r-pjrt": Host(
        "pjrt 0.5 for R",
        variables={"PJRT_PLATFORM": "{platform}", "PJRT_PLUGIN_PATH_{PLATFORM}": "{path}"},
        platforms=("cpu", "cuda", "metal"),
    ),
    "go-xla": Host("go-xla 0.3, for GoMLX", variables={"GOMLX_BACKEND": "xla:{path}"}),
    "exla": Host(
        "EXLA 0.13",
        lines=(
            "config :exla, :clients,",
            '  {name}: [platform: :pjrt_plugin, device_type: "{name}", plugin_path: {quoted}]',
        ),
    ),
    "zml": Host(
        "zml of 2026",
        lines=("const api = try pjrt.Api.loadFrom({quoted});",),
        comment="//",
    ),
    "lammps": Host(
        "lammps-jax 0.2", lines=("variable pjrt string {quoted}", "pair_style jax/kk ${{pjrt}}")
    ),
    "openmm": Host("openmm-jax of 2026", lines=("force.setPjrtPluginPath({quoted})",)),
}


class Told(NamedTuple):
    """What a host is told: variables, or lines of its own configuration or program."""

    note: str  # Which release of the host this is for, and how it is known.
    path: Path  # The plugin's library.
    variables: dict[str, str]
    lines: tuple[str, ...]


def tell(host: str, platform: str | None) -> Told:
    """Choose a plugin, fetch it if it is missing, load it, and return what makes a host use it.

    Args:
        host: a key of HOSTS.
        platform: as for `pjrt_hub.client`.

    Raises:
        FrameworkError: the host cannot use the plugin.
    """
    from pjrt_hub.door.client import choose, load
    from pjrt_hub.door.plugin import open_plugin

    choice = choose(platform)
    path = open_plugin(choice, reload=load).path
    return tell_of(host, choice.candidate, path)


def tell_of(host: str, plugin: Candidate, path: Path) -> Told:
    """Return what makes a host use a plugin whose library is at `path`; errors are as above."""
    about, name, platform = HOSTS[host], plugin.name, plugin.platform
    if about.platforms and platform not in about.platforms:
        raise FrameworkError(
            f"{host} cannot use the plugin {name}, which drives {platform}: it knows "
            f"{', '.join(about.platforms)} only",
            hint="`pjrt-hub list` shows which plugin drives which platform",
        )
    is_beside = bool(about.module) and find_spec(about.module) is not None
    if about.beside and not about.variables and not is_beside:
        raise FrameworkError(
            f"{host} takes a plugin only from a pjrt-hub in its own environment, and is not in "
            "this one",
            hint=f"install pjrt-hub beside {host}, and run this command there",
        )
    texts = {
        "name": name,
        "jax_name": f"hub{name}"[:32],
        "platform": platform,
        "PLATFORM": platform.upper(),
        "path": str(path),
        "quoted": json.dumps(str(path), ensure_ascii=False),
    }
    # A host beside pjrt-hub gets the plugin's own variables from it.
    env = {} if is_beside else plugin.manifest.environment_for(present=plugin.may_run)
    variables = {**env, **(about.beside if is_beside else about.variables)}
    return Told(
        f"{about.release}: {'tests run it' if about.is_tested else 'by its documentation'}",
        path,
        {key.format_map(texts): text.format_map(texts) for key, text in variables.items()},
        tuple(line.format_map(texts) for line in about.lines),
    )
