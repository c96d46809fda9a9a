"""One parser under atheris: `python target.py PARSER CORPUS [an option of libFuzzer]...`."""

import hashlib
import logging
import shutil
import sys
from pathlib import Path

import atheris

sys.path.append(str(Path(__file__).parents[1] / "unit"))


def main() -> None:
    """Fuzzes until an option ends it, or a finding does."""
    name, corpus = sys.argv[1], Path(sys.argv[2])
    with atheris.instrument_imports(include=["pjrt_hub"]):
        import parsers
    logging.getLogger("pjrt_hub").setLevel(logging.CRITICAL)
    corpus.mkdir(parents=True, exist_ok=True)
    parser = parsers.PARSERS[name]
    for seed in (*parser.seeds(), *parser.findings):
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    atheris.Setup([sys.argv[0], *sys.argv[2:]], parser.one)
    try:
        atheris.Fuzz()
    finally:
        shutil.rmtree(parsers.folder(), ignore_errors=True)


if __name__ == "__main__":
    main()
