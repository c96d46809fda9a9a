"""`pjrt-hub compile`: a program for a machine that need not be here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pjrt_hub
from pjrt_hub.cli import output, program_file
from pjrt_hub.cli.command import Command, named_values, offline_option, usage_errors
from pjrt_hub.errors import InvalidArgumentError, PluginNotFoundError, UnsupportedByPluginError

if TYPE_CHECKING:
    from pjrt_hub import Program
    from pjrt_hub.frameworks.exported.function import ExportedFunction


def compiler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `--compile-option`, `--flag` and `--dimension` to a command."""
    what = "Of an exported function, the size of a symbolic dimension; once for each."
    command = named_values("--dimension", "dimensions", what, metavar="NAME=SIZE")(command)
    what = "One of XLA's flags, such as xla_gpu_autotune_level=0; once for each."
    command = named_values("--flag", "flags", what, as_text=True)(command)
    what = "One of CompileOptions, such as use_spmd_partitioning=true; once for each."
    return named_values("--compile-option", "compile_options", what)(command)


@click.command(
    "compile",
    cls=Command,
    examples=(
        "pjrt-hub compile add.mlir --target cuda:H100 --output add.h100",
        "pjrt-hub compile add.mlir --target tpu:v5e:2x2 --output add.v5e",
    ),
)
@click.argument("program", type=program_file.PROGRAM)
@click.option(
    "--target",
    required=True,
    metavar="PLATFORM:NAME",
    help="The machine, such as tpu:v5e:2x2 or cuda:H100; `pjrt-hub targets` lists them.",
)
@output.option("out", "Write the compiled program to this file, for Client.load.", required=True)
@click.option(
    "--num-replicas", type=int, metavar="N", help="Copies of the program that run together."
)
@click.option(
    "--num-partitions", type=int, metavar="N", help="Parts that the program is split into."
)
@named_values(
    "--topology-option",
    "topology_options",
    "More about the machine, such as num_slices=2 or chips_per_host_bounds=[2,2,1]; once for each.",
)
@compiler_options
@offline_option
def command(
    program: Path,
    target: str,
    out: Path,
    num_replicas: int | None,
    num_partitions: int | None,
    topology_options: dict[str, Any],
    compile_options: dict[str, Any],
    flags: dict[str, str],
    dimensions: dict[str, Any],
    offline: bool,
    as_json: bool,
) -> None:
    """Compile a program for a machine that may be elsewhere.

    PROGRAM is StableHLO text or bytecode, an HLO proto, what jax.export serialized, or a folder
    that torch_xla saved.
    """
    platform, _, name = target.partition(":")
    if not platform or not (name or topology_options):
        raise no_machine(target, named_alone(target))
    counts = {"num_replicas": num_replicas, "num_partitions": num_partitions}
    given = {name: value for name, value in counts.items() if value is not None}
    with usage_errors("--compile-option"):
        options = compile_options_of({**compile_options, **given}, flags)
    # A bad program is an error before a plugin is fetched for it.
    source = program_file.read(program, whole=True)
    refuse_unknown(dimensions, source)
    if not isinstance(source, pjrt_hub.Program):
        refuse_elsewhere(source, platform)
    with usage_errors("--topology-option" if topology_options else "--target"):
        try:
            topology = describe(platform, name, topology_options, offline)
        except PluginNotFoundError as exc:
            if likely := named_alone(target):
                raise no_machine(target, likely) from exc
            raise
    if not isinstance(source, pjrt_hub.Program):
        from pjrt_hub.frameworks.exported import specialisation

        with usage_errors("--dimension"):
            source = specialisation.for_topology(source, topology, dimensions)
    with usage_errors():
        code = topology.compile(source, options).serialize()
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


def named_alone(machine: str) -> list[str]:
    """List the targets that have this name, for a user who left the platform out."""
    return [str(target) for target in pjrt_hub.targets() if target.name == machine]


def no_machine(target: str, likely: list[str]) -> click.BadParameter:
    """Return the error for a target that is not of the form PLATFORM:NAME."""
    rest = f"Did you mean {' or '.join(likely)}?" if likely else "`pjrt-hub targets` lists them."
    return click.BadParameter(
        f"{target!r} names no machine: it must be PLATFORM:NAME, such as tpu:v5e:2x2. {rest}",
        param_hint="--target",
    )


def describe(platform: str, name: str, options: dict[str, Any], offline: bool) -> pjrt_hub.Topology:
    """Make the topology of a machine; raise ValueError if the plugin knows none of that name."""
    try:
        return pjrt_hub.topology(platform, name, options=options, offline=offline)
    except UnsupportedByPluginError as exc:
        exc.hint = (
            "`pjrt-hub targets` lists the machines that plugins describe; for one that is here, "
            "compile in Python: client.compile(program).serialize()"
        )
        raise
    except InvalidArgumentError as exc:
        if options:  # The plugin's error may be about one of the options.
            raise
        raise ValueError(
            f"{platform} has no machine {name!r}: {exc.message}; `pjrt-hub targets {platform}` "
            "lists those that have a name"
        ) from exc


def compile_options_of(given: dict[str, Any], flags: dict[str, str]) -> pjrt_hub.CompileOptions:
    """Make compile options from names and values.

    An unknown name, or `flags`, which the option `--flag` sets, raises ValueError; a value of the
    wrong type raises TypeError.
    """
    known = [field.name for field in fields(pjrt_hub.CompileOptions) if field.name != "flags"]
    for name in given:
        if name not in known:
            raise ValueError(f"there is no compile option {name!r}; there are {', '.join(known)}")
    return pjrt_hub.CompileOptions(**given, flags=flags)


def refuse_unknown(dimensions: dict[str, Any], source: ExportedFunction | Program) -> None:
    """Refuse the size of a dimension that the program does not have."""
    known = set[str]()
    if not isinstance(source, pjrt_hub.Program):
        known = {name for each in source.inputs for name in each.names}
    if unknown := [name for name in dimensions if name not in known]:
        has = ", ".join(sorted(known)) or "none"
        raise click.BadParameter(
            f"{', '.join(map(repr, unknown))} is no symbolic dimension of it; it has {has}.",
            param_hint="--dimension",
        )


def refuse_elsewhere(function: ExportedFunction, name: str) -> None:
    """Refuse a function that was not exported for the platform of the plugin that is named."""
    from pjrt_hub.frameworks.exported import obstacle

    for each in pjrt_hub.plugins(name):
        if each.platform and name in (each.name, each.platform):
            obstacle.refuse_platform(function, each.platform)
