"""Plugins in no Python package, described by a manifest in a standard folder, work as any."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import finished
import pytest
from trees import compile_library

import pjrt_hub

MANIFEST = """schema = 1
name = "toy"
platform = "cpu"

[[library]]
path = "/nowhere/libtoy.so"
target = "plan9-mips"

[[library]]
path = "libtoy.so"

[[preload]]
libraries = ["liba.so"]
folder = "{folder}/far"

[[preload]]
libraries = ["libb.so", "libabsent.so"]
folder = "near"

[environment]
TOY_MODE = {{ value = "here", when = "present" }}
STUB_LATE = "1"
"""
ORDER = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) {
  FILE *file = fopen(getenv("TOY_ORDER"), "a");
  fputs(NAME, file);
  fclose(file);
}
"""


@pytest.fixture
def toy(stub, environment, tmp_path: Path) -> dict[str, str]:
    """Lay out a plugin with its manifest; give the variables that lead to it."""
    folder = tmp_path / "config" / "pjrt" / "plugins"
    folder.mkdir(parents=True)
    shutil.copy(stub(), folder / "libtoy.so")
    for name, place in (("a", tmp_path / "far"), ("b", folder / "near")):
        compile_library(f'#define NAME "{name}"\n{ORDER}', place / f"lib{name}.so", "-lc")
    manifest = folder / "toy.toml"
    manifest.write_text(MANIFEST.format(folder=tmp_path))
    for path in (folder, *folder.rglob("*"), *(tmp_path / "far").iterdir()):
        path.chmod(0o755)
    order = {"TOY_ORDER": str(tmp_path / "order"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    return {**environment, **order}


def use(order):
    with pjrt_hub.client("toy") as client:
        print(client.plugin.name, os.environ["TOY_MODE"])
    maps = Path("/proc/self/maps").read_text()
    print([name for name in ("liba.so", "libb.so", "libtoy.so") if name in maps])


def test_a_client_is_made_after_the_preloads_in_order(run, stub, toy) -> None:
    ended = run(stub(), use, toy["TOY_ORDER"], env=toy)
    assert ended.stdout == "toy here\n['liba.so', 'libb.so', 'libtoy.so']\n", ended.stderr
    assert ended.returncode == 0
    # First contact, in a child, loads them, too.
    assert Path(toy["TOY_ORDER"]).read_text() == "abab"


def test_list_and_doctor_show_it(toy, tmp_path: Path) -> None:
    listed = finished.cli("list", "toy", "--json", seconds=120, env=toy)
    found = json.loads(listed.stdout)[0]
    folder = tmp_path / "config" / "pjrt" / "plugins"
    assert (found["name"], found["source"], found["chosen"]) == ("toy", "manifests", True)
    assert found["origin"] == str(folder / "toy.toml")
    assert found["library_path"] == str(folder / "libtoy.so")
    told = finished.cli("doctor", "toy", "--json", seconds=120, env=toy)
    steps = json.loads(told.stdout)
    assert [step["what"] for step in steps if not step["ok"]] == []
    assert steps[0]["detail"] == f"toy ({folder / 'libtoy.so'}) [{folder / 'toy.toml'}]"


def test_what_is_refused_is_listed_with_its_reason(toy, tmp_path: Path) -> None:
    folder = tmp_path / "config" / "pjrt" / "plugins"
    (folder / "libtoy.so").chmod(0o777)
    listed = finished.cli("list", "toy", "--json", seconds=120, env=toy)
    reason = f"{folder / 'libtoy.so'}: everybody may write to it"
    verdicts = [each["verdict"] for each in json.loads(listed.stdout) if each["name"] == "toy"]
    assert {"ok": False, "reason": reason} in verdicts


def test_a_disabled_plugin_is_an_error_that_says_why(toy) -> None:
    told = finished.cli("fetch", "toy", seconds=120, env={**toy, "PJRT_HUB_DISABLE": "t*"})
    assert told.returncode != 0
    assert "toy: PJRT_HUB_DISABLE names it" in told.stderr
