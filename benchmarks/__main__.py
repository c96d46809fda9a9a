"""`python benchmarks`: measures everything and prints one summary; `--page` rewrites the page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import call
import exported
import jax_bridge
import machine
import memory
import report
import serving
import small
import start
import store
import tracing
import transfer


def main() -> int:
    """Gives 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write docs/benchmarks.md here")
    options = parser.parse_args()
    machine.notes()
    sections = [
        each.measure()
        for each in (
            call,
            small,
            transfer,
            start,
            exported,
            jax_bridge,
            store,
            memory,
            tracing,
            serving,
        )
    ]
    return report.conclude(sections, options.json, options.page)


if __name__ == "__main__":
    sys.exit(main())
