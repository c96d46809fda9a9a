"""The file that a library's name leads to: our prediction, and this machine's loader."""

import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import finished
import pytest
from trees import NEW, OLD, OPENS, compile_library

from pjrt_hub.base.host import HostTag
from pjrt_hub.door import preflight
from pjrt_hub.finding.contract import linking
from pjrt_hub.finding.contract.headers import inspect

NAME = "libdnn.so.9"
#: A library of glibc that no process loads by default.
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
    """An environment: how the plugin is linked, and what surrounds it."""

    reason: str | None
    link: str = ""
    env: dict[str, str] = {}
    before: tuple[Path, ...] = ()
    name: str = NAME
    program: str = ""


def library(path: Path, *flags: str, soname: str | None = NAME) -> Path:
    named = [f"-Wl,-soname,{soname}"] if soname else []
    return compile_library("int answer;", path, *named, *flags)


def in_path(*folders: object, between: str = ":") -> dict[str, str]:
    return {"LD_LIBRARY_PATH": between.join(map(str, folders))}


def two(root: Path) -> tuple[Path, Path]:
    """The folders of two copies of the library."""
    return library(root / "a" / NAME).parent, library(root / "b" / NAME).parent


def other_machines(path: Path) -> Path:
    """A folder with a library for another machine."""
    data = bytearray(library(path).read_bytes())
    struct.pack_into("<H", data, 18, 8)  # the number of MIPS
    path.write_bytes(data)
    return path.parent


def damaged(folder: Path) -> Path:
    (folder / NAME).write_text("no library, but longer than a header of one is" * 4)
    return folder


def symlink(folder: Path) -> Path:
    library(folder / f"{NAME}.1.0")
    (folder / NAME).symlink_to(f"{NAME}.1.0")
    return folder


def with_levels(folder: Path) -> Path:
    """A folder with a library for each level of x86-64's instruction set."""
    for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        library(folder / "glibc-hwcaps" / level / NAME)
    return folder


def here(folder: Path) -> str:
    """An empty entry, which means the working directory, where a library is put."""
    library(folder / NAME)
    return ""


RPATH, RUNPATH = "DT_RPATH of plugin.so", "DT_RUNPATH of plugin.so"
VARIABLE, LOADED, CACHE = "LD_LIBRARY_PATH", "already loaded", "ld.so.cache"
#: Name -> a case, made of the test's folder and two more, which each have a copy of the library.
CASES: dict[str, Callable[[Path, Path, Path], Case]] = {
    "runpath": lambda root, a, b: Case(RUNPATH, f"{NEW}{a}"),
    "rpath": lambda root, a, b: Case(RPATH, f"{OLD}{a}"),
    "variable before runpath": lambda root, a, b: Case(VARIABLE, f"{NEW}{a}", in_path(b)),
    "rpath before variable": lambda root, a, b: Case(RPATH, f"{OLD}{a}", in_path(b)),
    "variable alone": lambda root, a, b: Case(VARIABLE, env=in_path(a)),
    "the first of two": lambda root, a, b: Case(VARIABLE, env=in_path(b, a)),
    "semicolon": lambda root, a, b: Case(VARIABLE, env=in_path(root / "none", a, between=";")),
    "empty is here": lambda root, a, b: Case(VARIABLE, env=in_path(here(root), a)),
    "another machine's": lambda root, a, b: Case(
        VARIABLE, env=in_path(other_machines(root / "wrong" / NAME), a)
    ),
    "no library": lambda root, a, b: Case(None, env=in_path(damaged(a), b)),
    "absent": lambda root, a, b: Case(None, env=in_path(root / "none")),
    "symlink": lambda root, a, b: Case(RUNPATH, f"{NEW}{symlink(root / 'c')}"),
    "origin": lambda root, a, b: Case(RUNPATH, f"{NEW}$ORIGIN/../b"),
    "loaded before": lambda root, a, b: Case(LOADED, f"{OLD}{a}", in_path(a), (b / NAME,)),
    "loaded under another file name": lambda root, a, b: Case(
        LOADED, env=in_path(a), before=(library(root / "c" / "renamed.so"),)
    ),
    # The loader knows a library without DT_SONAME only by its path.
    "loaded without a name": lambda root, a, b: Case(
        VARIABLE, env=in_path(a), before=(library(root / "c" / NAME, soname=None),)
    ),
    "loaded under another name": lambda root, a, b: Case(
        VARIABLE, env=in_path(a), before=(library(root / "c" / NAME, soname="libother.so"),)
    ),
    "preloaded": lambda root, a, b: Case(LOADED, f"{OLD}{a}", {"LD_PRELOAD": str(b / NAME)}),
    "of the system": lambda root, a, b: Case(CACHE, name=OF_SYSTEM),
    "before the system's": lambda root, a, b: Case(
        VARIABLE, env=in_path(library(a / OF_SYSTEM, soname=OF_SYSTEM).parent), name=OF_SYSTEM
    ),
    "another machine's before the system's": lambda root, a, b: Case(
        CACHE, env=in_path(other_machines(a / OF_SYSTEM)), name=OF_SYSTEM
    ),
    "for this processor": lambda root, a, b: Case(VARIABLE, env=in_path(with_levels(a))),
    # conda's Python has such a DT_RPATH.
    "rpath of the program": lambda root, a, b: Case(
        "DT_RPATH of the program", env=in_path(b), program=f"{OLD}{a}"
    ),
    "runpath hides that of the program": lambda root, a, b: Case(
        RUNPATH, f"{NEW}{b}", program=f"{OLD}{a}"
    ),
    # A program's DT_RUNPATH does not apply to its libraries.
    "runpath of the program": lambda root, a, b: Case(
        VARIABLE, env=in_path(b), program=f"{NEW}{a}"
    ),
    "by its path": lambda root, a, b: Case("its path", env=in_path(b), name=str(a / NAME)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_winner_is_the_loaders(case, tmp_path, monkeypatch):
    reason, link, env, before, name, program = CASES[case](tmp_path, *two(tmp_path))
    plugin = compile_library(OPENS, tmp_path / "plugin" / "plugin.so", "-lc", *link.split())
    host = tmp_path / "host"
    compile_host = ["cc", "-x", "c", "-", "-x", "none", "-o", host, "-ldl", *program.split()]
    subprocess.run(compile_host, input=HOST.encode(), check=True, capture_output=True)
    words = [host, name, *before, plugin]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}
    ran = finished.run(*words, seconds=60, env={**kept, **env}, cwd=tmp_path)
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


def test_an_inherited_rpath_ends_at_a_runpath(tmp_path):
    a, b = two(tmp_path)
    for flags, winner in (((), a), ((NEW + str(b),), b)):
        middle = inspect(library(tmp_path / "middle.so", *flags, soname=None))
        found = linking.find(NAME, MACHINE, linking.Search(), middle, (str(a),))
        assert found is not None
        assert found.library.path == winner / NAME
