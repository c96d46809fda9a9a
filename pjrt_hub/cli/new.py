"""`pjrt-hub new`: a project for a plugin's package."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command
from pjrt_hub.kit import authoring


@click.command(
    "new",
    cls=Command,
    examples=("pjrt-hub new acme --library libacme.so", "pjrt-hub new acme --c --example"),
)
@click.argument("name")
@click.option(
    "--library",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Your PJRT plugin; it is copied and asked what it is.",
)
@click.option("--c", "c", is_flag=True, help="Write the plugin in C: a skeleton, and headers.")
@click.option("--cxx", is_flag=True, help="The same in C++.")
@click.option("--example", is_flag=True, help="Instead of a skeleton, a small interpreter.")
@click.option("--platform", default="", help="What it drives; by default what the library says.")
@click.option("--license", default="", metavar="SPDX", help="The licence it has.")
@output.option("into", "The new folder.", kind=output.FOLDER)
@click.option("--no-options", is_flag=True, help="Make no client to learn the create options.")
@click.option("--no-check", is_flag=True, help="Do not look for defects that it has already.")
def command(
    name: str,
    library: Path | None,
    c: bool,
    cxx: bool,
    example: bool,
    no_options: bool,
    no_check: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Write a project that packages a plugin."""
    language: Literal["", "c", "c++"] = "c++" if cxx else "c" if c or example else ""
    folder, package = authoring.new(
        name,
        library=library,
        language=language,
        example=example,
        with_options=not no_options,
        known_defects=dict if library is None or no_check else partial(defects, library),
        **how,
    )
    place = folder / "src" / package.module / package.file_name
    if as_json:
        found = {"folder": str(folder), "distribution": package.distribution}
        output.show_json({**found, "module": package.module, "library": str(place)})
        return
    print(f"{folder}: the project of {package.distribution}")
    if language:
        print(f"{folder / 'native' / package.source}: what the device does, for you to change")
    elif library is None:
        print(f"{place}: put your PJRT plugin there, or start again with `--library`")
    print(f"next: pip install -e '{folder}[test]' && pytest {folder}")


def defects(library: Path) -> dict[str, str]:
    """Return the checks that a library fails, and why; leave out operations, which take minutes."""
    from pjrt_hub.cli.check import run_checks
    from pjrt_hub.kit.conformance.check import AREAS, select

    report = run_checks(str(library), select(area for area in AREAS if area != "ops"), {})
    return {each.name: each.text for each in report.defects}
