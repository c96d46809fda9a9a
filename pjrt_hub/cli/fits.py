"""`pjrt-hub fits`: whether a program fits machines that need not be here."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

import pjrt_hub
from pjrt_hub.cli import output, program_file
from pjrt_hub.cli.command import Command, offline_option, usage_errors
from pjrt_hub.cli.compile import compile_options_of, compiler_options, refuse_unknown
from pjrt_hub.cli.status import FAILED


@click.command(
    "fits",
    cls=Command,
    examples=(
        "pjrt-hub fits step.mlir --targets tpu,cuda",
        "pjrt-hub fits step.mlir --targets cuda:H100,cuda:H200 --json",
    ),
)
@click.argument("program", type=program_file.PROGRAM)
@click.option(
    "--targets",
    required=True,
    metavar="TARGET,...",
    help="Machines such as cuda:H100; a platform alone stands for all that it lists.",
)
@compiler_options
@offline_option
def command(
    program: Path,
    targets: str,
    compile_options: dict[str, Any],
    flags: dict[str, str],
    dimensions: dict[str, Any],
    offline: bool,
    as_json: bool,
) -> int:
    """Tell which of several machines have the memory for a program.

    PROGRAM is as for `compile`; it is compiled for each machine. The machine with the least memory
    comes first. Exits with 1 if the program fits none.
    """
    with usage_errors("--compile-option"):
        options = compile_options_of(compile_options, flags)
    source: Any = program_file.read(program)
    refuse_unknown(dimensions, source)
    if not isinstance(source, pjrt_hub.Program):
        from pjrt_hub.frameworks.exported import specialisation

        source = partial(specialisation.for_topology, source, sizes=dimensions)
    with usage_errors("--targets"):
        found = pjrt_hub.fits(source, targets, compile_options=options, offline=offline)
    if as_json:
        more = ("headroom_nbytes", "fits")
        output.show_json(
            [each._asdict() | {name: getattr(each, name) for name in more} for each in found]
        )
    else:
        rows = found.rows()
        output.show_table(tuple(rows[0]), [[*row.values()] for row in rows])
    return 0 if any(each.fits for each in found) else FAILED
