"""`pjrt-hub export`: a program in a file that hosts in other languages read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pjrt_hub.cli import output, program_file
from pjrt_hub.cli.command import Command, usage_errors
from pjrt_hub.cli.compile import compile_options_of, compiler_options, refuse_unknown


@click.command(
    "export",
    cls=Command,
    examples=(
        "pjrt-hub export model.jaxexport --output model.pjrt",
        "pjrt-hub export add.mlir --compile-option optimization_level=2 --output add.pjrt",
    ),
)
@click.argument("program", type=program_file.PROGRAM)
@output.option("out", "Write the file here, for loader/pjrt_program.h.", required=True)
@click.option("--platform", help="Of a function that was exported for several, the one to keep.")
@compiler_options
def command(
    program: Path,
    out: Path,
    platform: str | None,
    compile_options: dict[str, Any],
    flags: dict[str, str],
    dimensions: dict[str, Any],
    as_json: bool,
) -> None:
    """Write a program to a file for hosts in any language.

    The file says how to compile it, and what it takes and gives.

    PROGRAM is StableHLO text or bytecode, an HLO proto, or what jax.export or pjrt_hub.torch.export
    wrote.
    """
    from pjrt_hub.frameworks.exported import program_file as written

    with usage_errors("--compile-option"):
        options = compile_options_of(compile_options, flags)
    source = program_file.read(program, whole=True)
    refuse_unknown(dimensions, source)
    with usage_errors("--dimension"):
        code = written.program_file(source, options, platform, dimensions)
    out.write_bytes(code)
    output.show_path(out, {"path": str(out), "nbytes": len(code)}, as_json)
