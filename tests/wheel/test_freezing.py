"""A program that is frozen where the wheel and a plugin are installed runs where no Python is."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(1800)]  # builds are slow
ROOT = Path(__file__).parents[2]
PROGRAM = '''
import sys
import numpy
import pjrt_hub

TEXT = """
func.func @main(%a: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<2xf32> {
  %sum = stablehlo.add %a, %b : tensor<2xf32>
  return %sum : tensor<2xf32>
}
"""
assert sys.argv[1:] == ["one"]  # as the program sees them
with pjrt_hub.capture_native_logs(), pjrt_hub.client("cpu") as client:
    for isolated in (False, True):
        add = client.compile(TEXT, isolated=isolated)
        print(numpy.asarray(add(numpy.float32([1, 2]), numpy.float32([3, 4]))))
    print("isolated:", not client._why_not_isolated, pjrt_hub.__version__)
'''


@pytest.fixture(scope="module")
def programs(call, uv, install):
    """The folder of programs of an environment with a plugin and the tools that freeze."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    [plugin] = [each for each in groups["cpu_0_106"] if "xla-cpu" in each]
    programs = install(sys.executable)
    into = (uv, "pip", "install", "-q", "--python", programs / "python")
    call(*into, *groups["freezing"], plugin)
    return programs


@pytest.mark.parametrize(
    ("command", "made"),
    [
        (["pyinstaller", "hello.py"], "dist/hello/hello"),
        (["pyinstaller", "--onefile", "hello.py"], "dist/hello"),
        (["python", "setup.py", "build_exe", "--build-exe=made"], "made/hello"),
    ],
)
def test_it_runs_without_python(call, programs, tmp_path, command, made):
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    [cx_freeze] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "setup.py").write_text(cx_freeze)
    (tmp_path / "hello.py").write_text(PROGRAM)
    call(programs / command[0], *command[1:], cwd=tmp_path)
    elsewhere = programs.parent.rename(tmp_path / "elsewhere")
    try:
        said = call(tmp_path / made, "one", PATH="/nonexistent").stdout
        assert said.startswith("[4. 6.]\n[4. 6.]\nisolated: True 0.")
        refused = call(tmp_path / made, "--pjrt-hub-run", "pjrt_hub.cli", status=1)
        assert "is for this program's own use" in refused.stderr
    finally:
        elsewhere.rename(programs.parent)
