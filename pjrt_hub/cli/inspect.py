"""`pjrt-hub inspect`: what a program or an exported function takes, gives and needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pjrt_hub
from pjrt_hub.cli import output, program_file
from pjrt_hub.cli.command import Command, offline_option
from pjrt_hub.cli.status import FAILED, status_of
from pjrt_hub.errors import PjrtHubError

if TYPE_CHECKING:
    from pjrt_hub import Program
    from pjrt_hub.frameworks.exported.function import ExportedFunction


#: A tree with more characters cannot be read at a glance.
LONGEST = 80


@click.command(
    "inspect",
    cls=Command,
    examples=(
        "pjrt-hub inspect add.mlir",
        "pjrt-hub inspect model.jaxexport --platform cuda --compile",
    ),
)
@click.argument("source", metavar="FILE_OR_DIR", type=program_file.PROGRAM)
@click.option("--name", help="The function of a folder; else the only one, or forward.")
@click.option("--platform", help="The plugin to judge by; else as `pjrt-hub run` chooses it.")
@click.option("--no-plugin", is_flag=True, help="Only say what the file says.")
@click.option("--compile", "compiles", is_flag=True, help="Let the plugin compile it as well.")
@offline_option
def command(
    source: Path,
    name: str | None,
    platform: str | None,
    no_plugin: bool,
    compiles: bool,
    offline: bool,
    as_json: bool,
) -> int:
    """Show what a program takes, gives and needs.

    FILE_OR_DIR is StableHLO text or bytecode, an HLO proto, what jax.export serialized, or a folder
    that torch_xla saved. For the last two, it also says whether a plugin can run them; for the
    others, only where --platform or --compile asks. Exits with 1 where --compile fails.
    """
    function = program_file.read(source, name)
    status = 0
    is_program = isinstance(function, pjrt_hub.Program)
    if isinstance(function, pjrt_hub.Program):
        told = as_dict(function)
    else:
        from pjrt_hub.frameworks.exported import description

        told = description.describe(function)
    if not no_plugin and not (is_program and platform is None and not compiles):
        told["plugin"], status = judge(function, platform, compiles, offline)
    if as_json:
        output.show_json(told)
    elif is_program:
        show_program(told)
    else:
        show(told)
    return status


def as_dict(program: Program) -> dict[str, Any]:
    """Return the documented JSON of a program by itself; null stands for what is not known."""
    signature, version = pjrt_hub.signature(program), program.stablehlo_version
    return {
        "format": program.format,
        "stablehlo_version": ".".join(map(str, version)) if version else None,
        "inputs": signature and [str(each) for each in signature.parameters],
        "outputs": signature and [str(each) for each in signature.outputs],
    }


def show_program(told: dict[str, Any]) -> None:
    """Print the JSON of a program by itself in a form for people to read."""
    print(f"format       {told['format']}")
    print(f"StableHLO    {told['stablehlo_version'] or 'unknown'}")
    if told["inputs"] is None:
        print("arguments    cannot be read; compiling it says why")
    else:
        print(f"arguments    {', '.join(told['inputs']) or 'none'}")
        print(f"results      {', '.join(told['outputs']) or 'none'}")
    show_plugin(told)


def judge(
    function: ExportedFunction | Program, platform: str | None, compiles: bool, offline: bool
) -> tuple[dict[str, Any], int]:
    """Return the documented JSON that says whether the chosen plugin can run it, and the status."""
    from pjrt_hub.cli.run import connect
    from pjrt_hub.frameworks.exported.load import isolates

    told: dict[str, Any] = {"name": None, "platform": platform, "can_run": False}
    told |= {"reasons": [], "doubts": [], "compiled": None}
    try:
        with connect(platform, offline, function) as client:
            told |= {"name": client.plugin.name, "platform": client.platform_name, "can_run": True}
            if not isinstance(function, pjrt_hub.Program):
                from pjrt_hub.frameworks.exported import description

                verdict = description.verdict(function, client)
                told |= {"can_run": verdict.ok, "reasons": list(verdict.reasons)}
                told["doubts"] = list(verdict.doubts)
                compiles = compiles and verdict.ok and not function.is_symbolic
            if compiles:
                try:
                    if isinstance(function, pjrt_hub.Program):
                        client.compile(function, isolated=isolates())
                    else:
                        pjrt_hub.Exported(function, client, isolated=isolates()).compile()
                    told["compiled"] = True
                except (PjrtHubError, TypeError, ValueError) as exc:
                    why = exc.message if isinstance(exc, PjrtHubError) else str(exc)
                    told |= {"compiled": False, "can_run": False, "reasons": [why]}
                    return told, FAILED
    except PjrtHubError as exc:
        told["reasons"] = [exc.message]
        return told, status_of(exc) if platform or compiles else 0
    return told, 0


def show(told: dict[str, Any]) -> None:
    """Print the JSON of an exported function in a form for people to read."""
    by = told["exporter"]
    if told["jax_version"]:
        by += f" of JAX {told['jax_version']}"
    if told["calling_convention_version"]:
        by += f", calling convention {told['calling_convention_version']}"
    effects = [f"{each} (ordered)" for each in told["ordered_effects"]] + told["unordered_effects"]
    calls = told["custom_calls"]
    rows = [
        ("function", f"{told['function_name']}, exported by {by}"),
        ("platforms", ", ".join(told["platforms"]) or "unknown"),
        ("devices", str(told["nr_devices"])),
        ("StableHLO", told["stablehlo_version"] or "unknown"),
        ("custom calls", "cannot be read" if calls is None else ", ".join(calls) or "none"),
        ("effects", ", ".join(effects) or "none"),
        ("unchecked", ", ".join(told["disabled_checks"]) or "nothing"),
        ("arguments", tree_text(told["in_tree"], told["inputs"])),
        ("result", tree_text(told["out_tree"], told["outputs"])),
    ]
    if told["weights"]:
        rows.append(("weights", f"{len(told['weights'])} beside the program"))
    for name, text in rows:
        print(f"{name:13}{text}")
    print()
    columns = ("place", "type", "")
    inputs = [
        (each["path"], words(each), "" if each["used"] else "not used") for each in told["inputs"]
    ]
    output.show_table(
        columns, inputs + [(each["path"], words(each), "") for each in told["outputs"]]
    )
    show_plugin(told)


def show_plugin(told: dict[str, Any]) -> None:
    """Print whether the plugin can run it, if that is told."""
    plugin = told.get("plugin")
    if plugin is None:
        return
    print()
    compiled = {True: ", compiled", False: "", None: ", not compiled"}[plugin["compiled"]]
    name = plugin["name"] or plugin["platform"] or "plugin"
    print(f"{name}: {f'can run it{compiled}' if plugin['can_run'] else 'cannot run it'}")
    for each in plugin["reasons"]:
        print(f"  because {each}")
    for each in plugin["doubts"]:
        print(f"  note that {each}")


def tree_text(tree: str, leaves: list[dict[str, Any]]) -> str:
    """Return how arrays are nested; if that is too long for a line, refer to the table below."""
    return tree if len(tree) <= LONGEST else f"{len(leaves)} arrays, in the places below"


def words(each: dict[str, Any]) -> str:
    """Return a type, as `--arg` of `pjrt-hub run` takes it."""
    return f"{each['element_type']}[{','.join(map(str, each['shape']))}]"
