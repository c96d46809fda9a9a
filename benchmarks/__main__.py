"""`python benchmarks [NAME ...]`: measures all or what is named, each in a fresh process."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import page
import record
import session


def main() -> int:
    """Give 1 where a bar is missed, 2 where a benchmark gave no figures."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of those that --list prints")
    parser.add_argument("--list", action="store_true", help="print the benchmarks and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures in this record")
    parser.add_argument(
        "--page",
        action="store_true",
        help=f"keep them in {page.RECORD.relative_to(page.ROOT)}, and write the page and charts",
    )
    parser.add_argument(
        "--same-xla",
        action="store_true",
        help=f"the same in {page.SAME_XLA.relative_to(page.ROOT)}",
    )
    options = parser.parse_args()
    records = {page.RECORD: options.page, page.SAME_XLA: options.same_xla}
    kept = [path for path, is_kept in records.items() if is_kept]
    known = session.names()
    if options.list:
        print("\n".join(known))
        return 0
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"no benchmark {', '.join(unknown)}\n\nhint: python benchmarks --list")
    without, missed = [], []
    for name in options.names or known:
        part = session.run(name)
        if part is None:
            without.append(name)
            continue
        # Each benchmark's figures are saved at once, so that an interrupted run loses nothing.
        for path in filter(None, (options.json, *kept)):
            record.keep(path, name, part)
        missed += [bar.what for section in part.sections for bar in section.missed_bars()]
    if kept:
        page.rewrite()
    print(f"missed: {'; '.join(missed) or 'none'}")
    if without:
        print(f"without figures: {', '.join(without)}")
    return 2 if without else 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
