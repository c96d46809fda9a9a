"""Measures what a host does without each function of a plugin, and writes its measurement.

python tools/hosts pjrt_hub
python tools/hosts jax --python OTHER/bin/python
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import measurement

import pjrt_hub

HOSTS = Path(__file__).parents[2] / "pjrt_hub" / "kit" / "conformance" / "hosts"
NAMES = {
    "jax": "JAX",
    "pjrt_hub": "pjrt-hub",
    "pypjrt": "pypjrt",
    "torch_tpu": "TorchTPU",
    "torch_xla": "torch_xla",
}


def main() -> int:
    """Give 1 where the host does not run even on the whole plugin."""
    parser = argparse.ArgumentParser(prog="hosts", description=__doc__)
    parser.add_argument("host", choices=sorted(NAMES))
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has it")
    parser.add_argument("--library", type=Path, help="the plugin (default: what profiles rest on)")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    build = measurement.BUILDS.get(options.host, measurement.PLUGIN)
    library = (options.library or pjrt_hub.fetch(build)).resolve()
    version, names = measurement.functions(library)
    asked = [named.format(name) for named in measurement.FORMS.values() for name in names]
    module = f"{options.host}_walk"
    walked = measurement.walk(module, library, asked, options.python, options.jobs)
    whole = walked.runs[""]
    if whole.status or len(walked.left_out) > len(walked.needs):
        sys.stderr.write(f"{options.host} does not run on {library}: {whole}\n")
        return 1
    for step in walked.left_out:
        sys.stderr.write(f"left out: {step}: {whole.steps.get(step, 'what it needs is')}\n")
    suffix = "" if options.host == "pjrt_hub" else f"-{walked.release}"
    learned = measurement.measured(library, version, names)
    text = measurement.text(NAMES[options.host], walked, names, learned)
    (HOSTS / f"{options.host}{suffix}.toml").write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
