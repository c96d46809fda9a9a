"""What the loader in C adds to a plugin's cold start: `python benchmarks/loader.py [LIBRARY]`.

It prints the milliseconds of dlopen and GetPjrtApi, of `pjrt_loader_open` by a name, and of that
among the manifests of other plugins; each is a median over new processes, in turn.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import rounds

import pjrt_hub

HERE = Path(__file__).parent
LOADER = HERE.parent / "loader"
ROUNDS = 101
OTHERS = 20


def main() -> None:
    """Measure, and print."""
    library = Path(sys.argv[1]) if sys.argv[1:] else pjrt_hub.fetch("cpu", offline=True)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        program = folder / "loader_open"
        command = ["cc", "-std=gnu11", "-O2", f"-I{LOADER}", "-o", str(program), "-pthread"]
        command += [str(HERE / "loader_open.c"), str(LOADER / "pjrt_loader.c"), "-ldl"]
        subprocess.run(command, check=True)
        for name, others in (("alone", 0), ("crowd", OTHERS)):
            (folder / name).mkdir()
            for each in ("measured", *(f"other{number}" for number in range(others))):
                (folder / name / f"{each}.toml").write_text(
                    f'schema = 1\nname = "{each}"\nplatform = "{each}"\n'
                    f'[[library]]\npath = "{library}"\n[options.a]\ntype = "int64"\ndefault = 1\n'
                )

        def opens(what: str, manifests: str) -> float:
            env = {**os.environ, "PJRT_PLUGIN_MANIFESTS": str(folder / manifests)}
            done = subprocess.run([program, what], env=env, capture_output=True, check=True)
            return float(done.stdout)

        variants = {
            "dlopen and GetPjrtApi": lambda: opens(str(library), "alone"),
            "pjrt_loader_open": lambda: opens("measured", "alone"),
            f"pjrt_loader_open, {OTHERS} other manifests": lambda: opens("measured", "crowd"),
        }
        times = rounds.interleave(variants, ROUNDS)
    base = times["dlopen and GetPjrtApi"]
    for name, found in times.items():
        more = median(one - other for one, other in zip(found, base, strict=True))
        print(f"{name:45} {median(found):8.2f} ms {more:+8.2f} ms")


if __name__ == "__main__":
    main()
