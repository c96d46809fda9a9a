"""docs/exported.md: its code runs, and prints what it shows."""

import re
import sys
from pathlib import Path

import finished
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "exported.md").read_text(encoding="utf-8")


def block(mark):
    [code] = re.findall(rf"<!-- {re.escape(mark)} -->\n```\w*\n(.*?)```", PAGE, re.DOTALL)
    return code


def test_the_code_prints_what_is_shown(tmp_path, clean_env):
    pytest.importorskip("jax")

    def run(*command):
        done = finished.run(*command, seconds=120, cwd=tmp_path, env=clean_env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(sys.executable, "-c", block("file: export.py"))
    assert run(sys.executable, "-c", block("run")) == block("prints")
    command = f"{sys.executable} -m pjrt_hub.cli.__main__"
    inspected, result = (
        run("bash", "-c", line.replace("pjrt-hub", command) + " --platform cpu")
        for line in block("console").splitlines()
    )
    assert "args[0]['w']     f32[3,2]" in inspected
    assert "cpu: can run it" in inspected
    assert "1.99010" in result
