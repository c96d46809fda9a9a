"""docs/performance.md: its code is one program, which runs and computes what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "performance.md").read_text("utf-8")

#: What must hold after the page's code, of its own names.
CHECKED = """
one = np.tanh(x * x + 1)
expected = x
for _ in range(10):
    expected = np.tanh(expected * x + 1)
assert np.allclose(result, expected, atol=1e-6), result
assert len(results) == 4
following = np.tanh(expected * x + 1)
assert all(np.allclose(each, following, atol=1e-6) for each in results)
assert np.allclose(y.to_numpy(), following, atol=1e-6)
assert np.allclose(total.to_numpy(), 10 * x, atol=1e-5), total
assert (shared.to_numpy() == 1).all()
assert shared.to_numpy().ctypes.data == large.ctypes.data
assert 0 < per_call < 1
print("all of it")
"""


def test_the_code_of_the_page_runs(tmp_path):
    pieces = re.findall(r"<!-- runs -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(pieces) == PAGE.count("```python")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*pieces, CHECKED])],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **_paths()},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all of it\n"


def _paths() -> dict[str, str]:
    """Where this process finds its modules, so that the child has the same pjrt_hub."""
    return {"PYTHONPATH": ":".join(path for path in sys.path if path)}
