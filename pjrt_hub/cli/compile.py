"""`pjrt-hub compile`: a program for a machine that need not be here (layer 5)."""

from __future__ import annotations

from pathlib import Path

import click

import pjrt_hub
from pjrt_hub.cli import output
from pjrt_hub.errors import PjrtHubError


@click.command("compile")
@click.argument("program", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--target",
    required=True,
    metavar="PLATFORM:NAME",
    help="The machine, such as tpu:v5e:2x2 or cuda:H100; `pjrt-hub targets` lists them.",
)
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the compiled program to this file, for Client.load.",
)
@click.option(
    "--flag",
    "flags",
    multiple=True,
    metavar="NAME=VALUE",
    help="One of XLA's flags, such as xla_gpu_autotune_level=0; once for each.",
)
@click.option("--offline", is_flag=True, help="Use the cache only; never the network.")
@output.json_option
def command(
    program: Path, target: str, out: Path, flags: tuple[str, ...], offline: bool, as_json: bool
) -> None:
    """Compile PROGRAM (StableHLO or an HLO proto) for a machine that need not be here."""
    platform, _, name = target.partition(":")
    options = pjrt_hub.CompileOptions(flags=dict(map(pair, flags)))
    try:
        topology = pjrt_hub.topology(platform, name, offline=offline)
    except (TypeError, ValueError) as exc:
        if isinstance(exc, PjrtHubError):
            raise
        raise click.BadParameter(f"{exc}.", param_hint="--target") from exc
    code = topology.compile(program, options).serialize()
    out.write_bytes(code)
    if as_json:
        devices = topology.device_descriptions
        output.show_json(
            {
                "target": target,
                "platform": topology.platform_name,
                "kind": devices[0].kind,
                "devices": len(devices),
                "path": str(out),
                "nbytes": len(code),
            }
        )
    else:
        print(out)


def pair(text: str) -> tuple[str, str]:
    """Takes "NAME=VALUE" apart; the plugin parses the value."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint="--flag")
    return name, value
