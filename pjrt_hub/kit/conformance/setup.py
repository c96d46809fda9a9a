"""What a worker is told before it is asked."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker must know of the plugin.

    Attributes:
        path: of the library.
        identity: of that file; no other one is checked.
        manifest: that describes it.
        options: create options that were asked for.
        preload: libraries to load before it.
        target: a machine that it describes without hardware, or empty.
    """

    path: Path
    identity: str
    manifest: Manifest
    options: Mapping[str, Any]
    preload: tuple[Path, ...] = ()
    target: str = ""

    def line(self) -> str:
        """As text for a pipe to a process of ours."""
        return base64.b64encode(pickle.dumps(self)).decode() + "\n"

    @classmethod
    def of_line(cls, line: str) -> Setup:
        """Reads what `line` gave."""
        setup: Setup = pickle.loads(base64.b64decode(line))
        return setup
