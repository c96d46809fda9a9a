"""One parser under atheris: `python target.py PARSER CORPUS [an option of libFuzzer]...`."""

from __future__ import annotations

import hashlib
import importlib
import logging
import shutil
import sys
from pathlib import Path

import atheris

sys.path.append(str(Path(__file__).parents[1] / "unit"))


def main() -> None:
    """Fuzzes until an option ends it, or a finding does."""
    parser, corpus = sys.argv[1], Path(sys.argv[2])
    with atheris.instrument_imports(include=["pjrt_hub"]):
        module = importlib.import_module(f"fuzz_{parser}")
    logging.getLogger("pjrt_hub").setLevel(logging.CRITICAL)
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in (*module.seeds(), *module.FINDINGS):
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    atheris.Setup([sys.argv[0], *sys.argv[2:]], module.one)
    try:
        atheris.Fuzz()
    finally:
        files = importlib.import_module("files")
        shutil.rmtree(files.folder(), ignore_errors=True)


if __name__ == "__main__":
    main()
