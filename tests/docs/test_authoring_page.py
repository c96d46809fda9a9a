"""docs/authoring.md: what hosts need is made of their profiles, all of it."""

from __future__ import annotations

import runpy
from pathlib import Path

from pjrt_hub.kit.conformance.host import newest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "authoring.md").read_text("utf-8")


def test_the_page_is_up_to_date():
    tool = runpy.run_path(str(ROOT / "tools" / "hosts" / "page.py"))
    assert tool["page"](PAGE) == PAGE, "python tools/hosts/page.py"


def test_what_ends_jax_at_its_first_jit_is_on_the_page():
    (jax,) = [host for host in newest() if host.name == "JAX"]
    assert jax.unimplemented["PJRT_LoadedExecutable_GetDeviceAssignment"].at == "jit"
    [row] = [line for line in PAGE.splitlines() if line.startswith("| `PJRT_LoadedExecutable`")]
    _, _, null, unimplemented, _, _ = row.split("|")
    assert "GetDeviceAssignment" in null
    assert "GetDeviceAssignment" in unimplemented
