"""A plugin and all that it requires in one folder, as an installer would have put them there.

Owns these folders, which hold nothing but links: to cache entries, and to installed files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.cache.layout import CacheLayout

_AREA = "closures"


def place(layout: CacheLayout, files: Mapping[str, Path]) -> Path:
    """Return the path of the folder for some files, which need not exist; its name is a hash."""
    text = "".join(f"{name}\0{files[name]}\0" for name in sorted(files))
    return layout.tree / _AREA / hashlib.sha256(text.encode()).hexdigest()


def holds(root: Path, files: Mapping[str, Path]) -> bool:
    """Check whether a folder has a link to each file, and whether each of these files exists."""
    try:
        return all(
            os.readlink(link := root / name) == os.fspath(file) and os.path.exists(link)
            for name, file in files.items()
        )
    except OSError:
        return False


def lay_out(layout: CacheLayout, files: Mapping[str, Path]) -> Path:
    """Make the folder with links to some files: all of them, or none."""
    root = place(layout, files)

    def is_sound() -> bool:
        if not (sound := holds(root, files)):
            shutil.rmtree(layout.move_aside(root, "trash"), ignore_errors=True)
        return sound

    with layout.build(root, is_sound) as private:
        for name, file in files.items():
            link = private / name
            disk.make(layout.root, link.parent)
            link.symlink_to(file)
    return root


def find_broken(layout: CacheLayout) -> Iterator[Path]:
    """Yield the folders with a link to a file that is gone."""
    for root in sorted((layout.tree / _AREA).glob("*")):
        links = (Path(inside, name) for inside, _, names in os.walk(root) for name in names)
        if not all(map(os.path.exists, links)):
            yield root
