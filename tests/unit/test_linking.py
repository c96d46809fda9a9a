"""Which file a name means: what we say, and what this machine's loader takes."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from trees import NEW, OLD, OPENS, compile_library

from pjrt_hub.base.host import HostTag
from pjrt_hub.door import preflight
from pjrt_hub.finding.contract import linking
from pjrt_hub.finding.contract.headers import inspect

NAME = "libdnn.so.9"
#: Part of glibc, which nothing loads by itself.
OF_SYSTEM = "libanl.so.1"
MACHINE = HostTag.current().arch
HOST = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) { /* NAME, then what is loaded before, the plugin as the last */
  void *plugin = NULL;
  for (int i = 2; i < count; i++)
    if ((plugin = dlopen(words[i], RTLD_NOW | RTLD_GLOBAL)) == NULL) return puts(dlerror()), 1;
  const char *(*opened)(const char *) = dlsym(plugin, "opened");
  return puts(opened(words[1])) < 0;
}
"""


class Case(NamedTuple):
    """An environment: what the plugin is linked with, and what stands round it."""

    link: tuple[str, ...] = ()
    env: dict[str, str] = {}
    before: tuple[Path, ...] = ()
    name: str = NAME
    program: tuple[str, ...] = ()
    reason: str | None = ""


def library(path: Path, *flags: str, soname: str | None = NAME) -> Path:
    named = [f"-Wl,-soname,{soname}"] if soname else []
    return compile_library("int answer;", path, *named, *flags)


def in_path(*folders: object, between: str = ":") -> dict[str, str]:
    return {"LD_LIBRARY_PATH": between.join(map(str, folders))}


def two(root: Path) -> tuple[Path, Path]:
    """Two copies, in folders of their own."""
    return library(root / "a" / NAME).parent, library(root / "b" / NAME).parent


def other_machine(path: Path) -> Path:
    data = bytearray(library(path).read_bytes())
    struct.pack_into("<H", data, 18, 8)  # MIPS
    path.write_bytes(data)
    return path.parent


def runpath(root: Path) -> Case:
    a, _ = two(root)
    return Case((NEW + str(a),), reason="DT_RUNPATH of plugin.so")


def rpath(root: Path) -> Case:
    a, _ = two(root)
    return Case((OLD + str(a),), reason="DT_RPATH of plugin.so")


def variable_before_runpath(root: Path) -> Case:
    a, b = two(root)
    return Case((NEW + str(a),), in_path(b), reason="LD_LIBRARY_PATH")


def rpath_before_variable(root: Path) -> Case:
    a, b = two(root)
    return Case((OLD + str(a),), in_path(b), reason="DT_RPATH of plugin.so")


def variable_alone(root: Path) -> Case:
    return Case(env=in_path(two(root)[0]), reason="LD_LIBRARY_PATH")


def first_of_two(root: Path) -> Case:
    a, b = two(root)
    return Case(env=in_path(b, a), reason="LD_LIBRARY_PATH")


def semicolon(root: Path) -> Case:
    a, _ = two(root)
    return Case(env=in_path(root / "none", a, between=";"), reason="LD_LIBRARY_PATH")


def empty_is_here(root: Path) -> Case:
    library(root / NAME)
    return Case(env=in_path("", two(root)[0]), reason="LD_LIBRARY_PATH")


def of_another_machine(root: Path) -> Case:
    wrong, a = other_machine(root / "wrong" / NAME), two(root)[0]
    return Case(env=in_path(wrong, a), reason="LD_LIBRARY_PATH")


def no_library(root: Path) -> Case:
    a, b = two(root)
    (a / NAME).write_text("no library, but longer than a header of one is" * 4)
    return Case(env=in_path(a, b), reason=None)


def absent(root: Path) -> Case:
    return Case(env=in_path(root / "none"), reason=None)


def symlink(root: Path) -> Case:
    folder = library(root / "a" / f"{NAME}.1.0").parent
    (folder / NAME).symlink_to(f"{NAME}.1.0")
    return Case((NEW + str(folder),), reason="DT_RUNPATH of plugin.so")


def origin(root: Path) -> Case:
    two(root)
    return Case((NEW + "$ORIGIN/../b",), reason="DT_RUNPATH of plugin.so")


def loaded_before(root: Path) -> Case:
    a, b = two(root)
    return Case((OLD + str(a),), in_path(a), (b / NAME,), reason="already loaded")


def loaded_under_another_file_name(root: Path) -> Case:
    a, _ = two(root)
    other = library(root / "c" / "renamed.so")
    return Case(env=in_path(a), before=(other,), reason="already loaded")


def loaded_without_a_name(root: Path) -> Case:
    """Without DT_SONAME only its path is known."""
    a, _ = two(root)
    other = library(root / "c" / NAME, soname=None)
    return Case(env=in_path(a), before=(other,), reason="LD_LIBRARY_PATH")


def loaded_under_another_name(root: Path) -> Case:
    a, _ = two(root)
    other = library(root / "c" / NAME, soname="libother.so")
    return Case(env=in_path(a), before=(other,), reason="LD_LIBRARY_PATH")


def preloaded_by_variable(root: Path) -> Case:
    a, b = two(root)
    return Case((OLD + str(a),), {"LD_PRELOAD": str(b / NAME)}, reason="already loaded")


def of_the_system(root: Path) -> Case:
    return Case(name=OF_SYSTEM, reason="ld.so.cache")


def before_the_systems(root: Path) -> Case:
    folder = library(root / "a" / OF_SYSTEM, soname=OF_SYSTEM).parent
    return Case(env=in_path(folder), name=OF_SYSTEM, reason="LD_LIBRARY_PATH")


def another_machines_before_the_systems(root: Path) -> Case:
    folder = other_machine(root / "a" / OF_SYSTEM)
    return Case(env=in_path(folder), name=OF_SYSTEM, reason="ld.so.cache")


def for_this_processor(root: Path) -> Case:
    a, _ = two(root)
    for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        library(a / "glibc-hwcaps" / level / NAME)
    return Case(env=in_path(a), reason="LD_LIBRARY_PATH")


def rpath_of_the_program(root: Path) -> Case:
    """As conda's Python has it."""
    a, b = two(root)
    return Case(env=in_path(b), program=(OLD + str(a),), reason="DT_RPATH of the program")


def runpath_hides_that_of_the_program(root: Path) -> Case:
    a, b = two(root)
    return Case((NEW + str(b),), program=(OLD + str(a),), reason="DT_RUNPATH of plugin.so")


def runpath_of_the_program(root: Path) -> Case:
    """It holds for the program alone."""
    a, b = two(root)
    return Case(env=in_path(b), program=(NEW + str(a),), reason="LD_LIBRARY_PATH")


def by_its_path(root: Path) -> Case:
    a, b = two(root)
    return Case(env=in_path(b), name=str(a / NAME), reason="its path")


CASES: list[Callable[[Path], Case]] = [
    runpath,
    rpath,
    variable_before_runpath,
    rpath_before_variable,
    variable_alone,
    first_of_two,
    semicolon,
    empty_is_here,
    of_another_machine,
    no_library,
    absent,
    symlink,
    origin,
    loaded_before,
    loaded_under_another_file_name,
    loaded_without_a_name,
    loaded_under_another_name,
    preloaded_by_variable,
    of_the_system,
    before_the_systems,
    another_machines_before_the_systems,
    for_this_processor,
    rpath_of_the_program,
    runpath_hides_that_of_the_program,
    runpath_of_the_program,
    by_its_path,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_winner_is_the_loaders(case, tmp_path, monkeypatch):
    link, env, before, name, program, reason = case(tmp_path)
    plugin = compile_library(OPENS, tmp_path / "plugin" / "plugin.so", "-lc", *link)
    host = tmp_path / "host"
    compile_host = ["cc", "-x", "c", "-", "-x", "none", "-o", host, "-ldl", *program]
    subprocess.run(compile_host, input=HOST.encode(), check=True, capture_output=True)
    words = [host, name, *before, plugin]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}
    ran = subprocess.run(
        words, env={**kept, **env}, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stdout
    monkeypatch.chdir(tmp_path)
    search = preflight.search(before, env, host)
    found = linking.find(name, MACHINE, search, inspect(plugin))
    if reason is None:
        assert (found, ran.stdout) == (None, "\n")
        return
    assert found is not None
    assert found.reason == reason
    assert os.path.samefile(found.library.path, ran.stdout.rstrip("\n"))


def test_what_a_winner_hides(tmp_path):
    a, b = two(tmp_path)
    search = linking.Search((str(a), str(tmp_path / "none"), str(b), str(a)))
    found = linking.find(NAME, MACHINE, search)
    assert found is not None
    assert (found.library.path, found.hidden) == (a / NAME, (b / NAME,))


def test_an_inherited_rpath_ends_at_a_runpath(tmp_path):
    a, b = two(tmp_path)
    for flags, winner in (((), a), ((NEW + str(b),), b)):
        middle = inspect(library(tmp_path / "middle.so", *flags, soname=None))
        found = linking.find(NAME, MACHINE, linking.Search(), middle, (str(a),))
        assert found is not None
        assert found.library.path == winner / NAME
