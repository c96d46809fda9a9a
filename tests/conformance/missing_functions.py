"""Prints what `find_missing` finds on a plugin from which one function after the other is taken.

A forked child looks at each behind the layer `without`: missing_functions.py LIBRARY NAME ...
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pjrt_hub.kit.conformance.missing_functions import find_missing
from pjrt_hub.kit.conformance.subject import Subject


def look(library: Path, name: str) -> None:
    if name:
        os.environ.update(PJRT_HUB_LAYERS="without", PJRT_HUB_WITHOUT=name)
    found = find_missing(Subject(library))
    print(json.dumps([name, found.null, found.unimplemented, found.asked]), flush=True)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        child = os.fork()
        if child == 0:
            look(Path(sys.argv[1]), name)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            print(json.dumps([name, [], [f"ended with {status}"], False]), flush=True)
