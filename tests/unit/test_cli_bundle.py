"""`pjrt-hub bundle` and the question of `pjrt-hub lock`, against a public interface of stubs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import pjrt_hub
from pjrt_hub.cli.__main__ import run
from pjrt_hub.errors import ArchiveError

HELD = ("toy 1.0 for linux-x86_64-glibc2.17, 3 MB",)


def test_export(monkeypatch, capsys, tmp_path):
    asked = []

    def export(
        path: Path, *platforms: str, hosts: tuple[str, ...], plugin_only: bool, **allowed: bool
    ) -> tuple[str, ...]:
        path.write_bytes(bytes(2000))
        asked.append((path.name, platforms, hosts, plugin_only, *allowed.items()))
        return HELD

    monkeypatch.setattr(pjrt_hub, "export_bundle", export, raising=False)
    out = tmp_path / "toy.bundle"
    line = ["bundle", "export", str(out), "toy", "--platform", "cpu"]
    assert run([*line, "--host", "linux-x86_64"]) == 0
    assert capsys.readouterr().out == f"{HELD[0]}\n1 in {out} (2 kB)\n"
    assert run([*line, "--plugin-only", "--allow-restricted", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(out), "artifacts": list(HELD)}
    assert asked == [
        ("toy.bundle", ("toy", "cpu"), ("linux-x86_64",), False, ("allow_restricted", False)),
        ("toy.bundle", ("toy", "cpu"), (), True, ("allow_restricted", True)),
    ]


def test_import(monkeypatch, capsys, tmp_path):
    path = tmp_path / "toy.bundle"
    assert run(["bundle", "import", str(path)]) == 2
    path.write_bytes(bytes(2000))
    monkeypatch.setattr(pjrt_hub, "import_bundle", lambda path: HELD, raising=False)
    assert run(["bundle", "import", str(path)]) == 0
    assert capsys.readouterr().out == f"{HELD[0]}\n1 in {path} (2 kB)\n"

    def refuse(path: Path) -> tuple[str, ...]:
        raise ArchiveError("the bundle is refused", hint="copy it again")

    monkeypatch.setattr(pjrt_hub, "import_bundle", refuse)
    assert run(["bundle", "import", str(path)]) == 4
    assert "error: the bundle is refused\n\nhint: copy it again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("terminal", "typed", "yes", "trusted"),
    [
        (False, "y\n", [], False),
        (True, "y\n", [], True),
        (True, "n\n", [], False),
        (True, "\n", [], False),
        (False, "", ["--yes"], True),
    ],
)
def test_only_a_yes_is_a_yes(monkeypatch, capsys, tmp_path, terminal, typed, yes, trusted):
    answers = []

    def lock(*requests: str, trust, **options: object) -> SimpleNamespace:
        answers.append(trust("sha256 0123"))
        return SimpleNamespace(
            pins=SimpleNamespace(path=tmp_path / "x", rows=()), changes=(), additions=()
        )

    class Stdin:
        def isatty(self) -> bool:
            return terminal

        def readline(self) -> str:
            return typed

    monkeypatch.setattr(pjrt_hub, "lock", lock, raising=False)
    monkeypatch.setattr("sys.stdin", Stdin())
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: typed.strip())
    assert run(["lock", "toy", *yes]) == 0
    assert answers == [trusted]
    assert "sha256 0123" in capsys.readouterr().err
