"""tools/release.py: what it changes in a repository of three files, and what it refuses."""

import importlib.util
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "release.py"
PROJECT = '[project]\nname = "pjrt-hub"\nversion = "0.1.0"\n\n[tool.other]\nversion = "9"\n'
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.0.9 - 2026-01-02\n"


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("release_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def git(tmp_path, monkeypatch):
    """Run git in a repository of its own, and give what it prints."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")

    def run(*words: str) -> str:
        how = {"cwd": tmp_path, "check": True, "capture_output": True, "text": True}
        return subprocess.run(["git", *words], **how).stdout.strip()

    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / ".gitignore").write_text("/dist/\n")
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "--message", "first")
    return run


@pytest.fixture
def builds(tool, monkeypatch):
    """The versions that were built, in place of their wheels."""
    built = []
    monkeypatch.setattr(tool, "build", lambda root: built.append(tool.read_version(root)))
    return built


def test_a_release_is_a_commit_and_a_tag(tool, git, builds, tmp_path, capsys):
    before = datetime.now(UTC).date()
    tool.release(tmp_path, "0.2.0")
    days = (before, datetime.now(UTC).date())
    assert builds == ["0.2.0"]
    assert (tmp_path / "pyproject.toml").read_text() == PROJECT.replace("0.1.0", "0.2.0")
    dated = (f"## Unreleased\n\n## 0.2.0 - {day}\n\n### Added" for day in days)
    changed = [CHANGELOG.replace("## Unreleased\n\n### Added", each) for each in dated]
    assert (tmp_path / "CHANGELOG.md").read_text() in changed
    assert git("log", "--format=%s") == "Release 0.2.0\nfirst"
    assert git("rev-parse", "v0.2.0^{commit}") == git("rev-parse", "HEAD")
    assert git("status", "--porcelain") == ""
    assert "`git push origin HEAD v0.2.0`" in capsys.readouterr().out


def test_the_first_release_has_the_version_that_is_there(tool, git, builds, tmp_path):
    """And only the tag of that is built."""
    tool.release(tmp_path, "0.1.0")
    assert git("tag") == "v0.1.0"
    tool.check_tag(tmp_path, "v0.1.0")
    with pytest.raises(SystemExit, match=r"the tag v0\.2\.0 is not v0\.1\.0"):
        tool.check_tag(tmp_path, "v0.2.0")


def test_a_dry_run_and_a_build_that_fails_leave_the_checkout_as_it_was(
    tool, git, builds, monkeypatch, tmp_path
):
    def unchanged() -> bool:
        states = (git("status", "--porcelain"), git("tag"), git("log", "--format=%s"))
        return states == ("", "", "first")

    def fail(root: Path) -> None:
        raise subprocess.CalledProcessError(1, "nox")

    tool.release(tmp_path, "0.2.0", dry_run=True)
    assert builds == ["0.2.0"]
    assert unchanged()
    monkeypatch.setattr(tool, "build", fail)
    with pytest.raises(subprocess.CalledProcessError):
        tool.release(tmp_path, "0.2.0")
    assert unchanged()


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("0.0.9", "0.0.9 cannot follow 0.1.0"),
        ("0.2", "there is a tag v0.2 already"),
        ("v0.3.0", "v0.3.0 cannot follow 0.1.0"),
        ("next", "next is not a version"),
    ],
)
def test_a_wrong_version_is_refused(tool, git, builds, tmp_path, version, why):
    git("tag", "v0.2")
    with pytest.raises(SystemExit, match=why):
        tool.release(tmp_path, version)
    assert builds == []


def test_changes_that_are_not_committed_and_a_release_without_news_are_refused(
    tool, git, builds, tmp_path
):
    (tmp_path / "new").write_text("")
    with pytest.raises(SystemExit, match=r"not committed:\n\?\? new"):
        tool.release(tmp_path, "0.2.0")
    (tmp_path / "new").unlink()
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG.replace("- A thing.\n", ""))
    git("commit", "--quiet", "--all", "--message", "no news")
    with pytest.raises(SystemExit, match="has nothing below Unreleased"):
        tool.release(tmp_path, "0.2.0")
    assert builds == []
