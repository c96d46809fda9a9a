"""What the TOML files of the package say, as JSON: for the build, see setup.py.

Python reads JSON ten times as fast, and without the import of `tomllib`. The TOML files stay the
truth: `contract/table.py` takes an entry only for a file that still has the very same text.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def files() -> Iterator[Path]:
    """Yield every TOML file that a start reads: the registry and our own manifests."""
    yield from sorted(ROOT.glob("registry/*.toml"))
    yield from sorted(ROOT.glob("pjrt_plugins/*/pjrt_plugin.toml"))


def text() -> str:
    """Return the text of parsed.json: that of each file, to the JSON of what it says."""
    found = {}
    for path in files():
        said = path.read_bytes().decode()
        data = tomllib.loads(said)
        found[said] = json.dumps(data)
        if json.loads(found[said]) != data:
            raise ValueError(f"{path} says something that JSON cannot")
    return json.dumps(found)
