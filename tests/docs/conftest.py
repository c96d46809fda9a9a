"""The pages, and what Python prints; for the tests of this folder to import."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def printed(*words: object, status: int = 0, **how: object) -> str:
    """What Python prints; it must end with this status."""
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **how)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def beside_examples(folder: Path, *words: object) -> str:
    """What Python prints away from the checkout, whose pjrt_hub is not compiled."""
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    return printed(*words, cwd=folder)


def floats(text: str) -> list[float]:
    return [float(word) for word in text.strip("[] \n").split()]
