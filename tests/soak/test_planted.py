"""Each planted mistake of a plugin in C is found by the conformance suite: an hour in all."""

from __future__ import annotations

from pathlib import Path

import native_plugin
import pytest
from mistakes import MISTAKES, Mistake

from pjrt_hub.kit import conformance


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.name)
def test_it_is_found(tmp_path: Path, mistake: Mistake) -> None:
    source = native_plugin.write(tmp_path)
    mistake.make(source)
    library = native_plugin.build(source, "gcc", *native_plugin.POSIX)
    assert conformance.run(library, areas=mistake.areas).defects != ()
