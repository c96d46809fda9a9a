"""`python tools/jax_tests`: JAX's own tests on a plugin that pjrt-hub gave to JAX."""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import cause
import files
import page
import process


def main() -> int:
    """Give 1 where something failed that is not known."""
    parser = argparse.ArgumentParser(prog="jax_tests", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="JAX's own tests/")
    parser.add_argument("--every", action="store_true", help="every file there, and no others")
    parser.add_argument("--platform", default="cpu", help="the plugin (default: cpu)")
    parser.add_argument("--file", default="", help="only files with this in their names")
    parser.add_argument("--all", action="store_true", help="every test of the sampled files")
    parser.add_argument("--test-seconds", type=float, default=process.TEST_LIMIT, metavar="N")
    parser.add_argument("--known", type=Path, default=cause.KNOWN, help="the known failures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result here")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write docs/jax_tests.md here")
    parser.add_argument("--keep", action="store_true", help="make the failures the known ones")
    parser.add_argument("-k", metavar="EXPRESSION", help="pytest's -k: only these tests")
    options = parser.parse_args()
    # Ending this process must also end the one that runs the tests.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    if options.every and not options.folder:
        parser.error("--every needs a folder")
    if options.page and options.k:
        parser.error("--page is of whole files, so not with -k")
    of = files.every if options.every else files.chosen
    chosen = [
        file
        for file in of(options.folder and options.folder.resolve())
        if options.file in file.name
    ]
    if options.all:
        chosen = [dataclasses.replace(file, one_in=1) for file in chosen]
    results: list[process.Result] = []
    for file in chosen:
        with TemporaryDirectory() as folder:
            extra = ["-k", options.k] if options.k else []
            done = process.run(file, options.platform, Path(folder), extra, options.test_seconds)
        counts = Counter(result.outcome for result in done)
        print(f"{file.name}: " + ", ".join(f"{n} {o}" for o, n in sorted(counts.items())))
        sys.stdout.flush()
        results += done
        if options.json:
            write(options.json, results)

    failures = cause.causes(results)
    if options.page:
        page.write(options.page, page.figures(options.platform, chosen, results))
    if options.keep:
        cause.keep(options.known, options.platform, results, failures)
    return judge(results, failures, cause.known(options.known, options.platform))


def write(path: Path, results: list[process.Result]) -> None:
    """Write every result so far, with its cause and what it said."""
    failures = cause.causes(results)
    rows = [
        {"test": r.name, "outcome": r.outcome, "cause": failures.get(r.name), "text": r.text}
        for r in results
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def judge(results: list[process.Result], failures: dict[str, str], known: dict[str, str]) -> int:
    """Print what is not known, and what is known and passes; give 1 for the former."""
    texts = {result.name: result.text for result in results}
    new = {name: what for name, what in failures.items() if known.get(name) != what}
    for name, what in new.items():
        print(f"\nnot known: {name}\n{what}\n{texts[name][-2000:]}")
    passing = {result.name for result in results if result.outcome == "passed"}
    for name in sorted(passing & known.keys()):
        print(f"passes now: {name} ({known[name]}); --keep forgets it")
    print(f"{len(results)} results, {len(failures)} failures, {len(new)} of them not known")
    if not results:
        print("no test ran; hint: look at --file and -k")
    return 1 if new or not results else 0


if __name__ == "__main__":
    sys.exit(main())
