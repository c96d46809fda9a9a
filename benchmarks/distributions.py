"""Installed distributions as discovery sees them: metadata, and here and there a script."""

from __future__ import annotations

from pathlib import Path


def install(site: Path, count: int) -> None:
    """Write `count` distributions into a folder; none of them is a plugin."""
    for number in range(count):
        info = site / f"example_{number}-1.0.dist-info"
        info.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: example-{number}\nVersion: 1.0\n"
        (info / "METADATA").write_text(text)
        (info / "RECORD").write_text(f"example_{number}/__init__.py,,\n{info.name}/METADATA,,\n")
        if number % 3 == 0:
            script = f"[console_scripts]\nexample-{number} = example_{number}:main\n"
            (info / "entry_points.txt").write_text(script)
