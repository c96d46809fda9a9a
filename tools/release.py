"""Makes a release: version, dated changelog, wheels and sdist, commit and tag; pushes nothing.

`nox -s release -- 0.2.0` runs it; `--dry-run` leaves the checkout as it was, and `--build` only
builds what a tag names, as the forge's workflow does.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
#: The only place of the version: a line in the first table of pyproject.toml.
VERSION = re.compile(r'^version = "(.*)"$', re.MULTILINE)
UNRELEASED = re.compile(r"^## Unreleased\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="nox -s release --", description=__doc__)
    parser.add_argument("version", help="such as 0.2.0; a tag, such as v0.2.0, with --build")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--dry-run", action="store_true", help="undo it all in the end")
    chosen.add_argument("--build", action="store_true", help="only build into dist/")
    asked = parser.parse_args()
    if asked.build:
        check_tag(ROOT, asked.version)
        build(ROOT)
    else:
        release(ROOT, asked.version, dry_run=asked.dry_run)


def release(root: Path, version: str, *, dry_run: bool = False) -> None:
    """Make the release in a checkout, or leave it as it was and say what is wrong.

    Args:
        root: the top of the checkout.
        version: the new one.
        dry_run: build and check all, then put the two files back.
    """
    check_tree(root)
    check_version(root, version)
    project, changelog = root / "pyproject.toml", root / "CHANGELOG.md"
    files = {path: path.read_text("utf-8") for path in (project, changelog)}
    dated = date_changelog(files[changelog], version)
    try:
        project.write_text(VERSION.sub(f'version = "{version}"', files[project], count=1), "utf-8")
        changelog.write_text(dated, "utf-8")
        build(root)
    except BaseException:
        restore(files)
        raise
    if dry_run:
        restore(files)
        print(f"{version} can be released; nothing was changed but dist/")
        return
    git(root, "commit", "--quiet", "--message", f"Release {version}", "--", *map(str, files))
    git(root, "tag", "--annotate", "--message", f"pjrt-hub {version}", f"v{version}")
    print(f"released here; `git push origin HEAD v{version}` publishes it")


def check_tree(root: Path) -> None:
    """End the program where the checkout has changes that are not committed."""
    if changed := git(root, "status", "--porcelain"):
        sys.exit(f"some changes are not committed:\n{changed}\n\nhint: commit or stash them")


def check_version(root: Path, version: str) -> None:
    """End the program where the version is none, is older than the last, or has its tag."""
    current = read_version(root)
    try:
        if str(Version(version)) != version or Version(version) < Version(current):
            sys.exit(f"{version} cannot follow {current}\n\nhint: give a later one, such as 1.2.0")
    except InvalidVersion:
        sys.exit(f"{version} is not a version\n\nhint: give one such as 1.2.0 or 1.2.0rc1")
    if git(root, "tag", "--list", f"v{version}"):
        sys.exit(f"there is a tag v{version} already\n\nhint: give a later version")


def check_tag(root: Path, tag: str) -> None:
    """End the program where a tag is not that of the version."""
    if tag != f"v{read_version(root)}":
        sys.exit(
            f"the tag {tag} is not v{read_version(root)}, the version of pyproject.toml\n\n"
            "hint: `nox -s release` sets both; remove that tag"
        )


def read_version(root: Path) -> str:
    """Return the version of the checkout."""
    return str(tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def date_changelog(text: str, version: str) -> str:
    """Give the section Unreleased the version and the date, and open an empty one above it."""
    found = UNRELEASED.search(text)
    if found is None or not re.search(r"^- ", found[1], re.MULTILINE):
        sys.exit(
            "CHANGELOG.md has nothing below Unreleased\n\nhint: say there what is new for users"
        )
    head = f"## Unreleased\n\n## {version} - {datetime.now(UTC):%Y-%m-%d}\n"
    return text[: found.start()] + head + text[found.start(1) :]


def build(root: Path) -> None:
    """Build and check the wheels and the source distribution, and put them into `dist/`."""
    for folder in (built := root / ".nox" / "wheelhouse", root / "dist"):
        shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "nox", "--session", "wheels"], cwd=root, check=True)
    shutil.copytree(built, root / "dist")  # It fails if nox skipped the session for lack of Python.


def restore(files: dict[Path, str]) -> None:
    """Put files back."""
    for path, text in files.items():
        path.write_text(text, "utf-8")


def git(root: Path, *words: str) -> str:
    """Run git there, and give what it prints."""
    done = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
