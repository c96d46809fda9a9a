"""Writes the corpus of single-op programs and docs/ops.md: `python tools/corpus`.

It needs the dependency group `corpus`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import generation  # noqa: E402  (found through the path above)
import page  # noqa: E402

from pjrt_hub.kit.conformance import corpus  # noqa: E402


def main() -> None:
    """Write the corpus, unless two oracles disagree anywhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--op", action="append", help="only these; nothing is written")
    only = parser.parse_args().op
    programs, quarrels = generation.generate(only)
    for quarrel in quarrels:
        print(quarrel, file=sys.stderr)
    print(f"{len(programs)} programs of {len({each.op for each in programs})} ops")
    if quarrels:
        sys.exit(f"{len(quarrels)} programs without one result")
    if not only:
        corpus.PATH.write_bytes(corpus.pack(programs))
        page.PATH.write_text(page.text(programs))
        print(f"{corpus.PATH.stat().st_size} bytes in {corpus.PATH.name}")


if __name__ == "__main__":
    main()
