"""Fake site-packages folders and tiny plugin libraries for tests."""

import functools
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pjrt_hub.base.host import HostTag
from pjrt_hub.finding.discovery.installed import Installed
from pjrt_hub.finding.discovery.source import Candidate, World
from pjrt_hub.finding.discovery.survey import Survey

#: Code that must never run in a test.
SENTINEL = "raise SystemExit('a plugin was imported')\n"
#: Linker flags for a run path as DT_RPATH and as DT_RUNPATH.
OLD, NEW = "-Wl,--disable-new-dtags,-rpath,", "-Wl,--enable-new-dtags,-rpath,"
#: C code of a library that reports which file it gets for a name.
OPENS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
__attribute__((visibility("protected"))) const char *opened(const char *name) {
  struct link_map *map;
  void *library = dlopen(name, RTLD_NOW);
  if (library == 0) return "";
  dlinfo(library, RTLD_DI_LINKMAP, &map);
  return map->l_name;
}
"""
MANIFEST = """schema = 1
name = "{name}"
platform = "{platform}"
priority = {priority}
{more}

[[library]]
path = "*.so"
"""

Points, Files = Mapping[str, str] | None, Mapping[str, str | bytes] | None


def compile_library(source: str, path: Path, *flags: str) -> Path:
    """Compile C to a shared library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-shared", "-fPIC", "-nostdlib", "-o", path, "-x", "c", "-", "-x", "none"]
    given = source.encode()
    subprocess.run([*command, *flags], input=given, check=True, capture_output=True)
    return path


@functools.cache
def plugin_bytes() -> bytes:
    """The bytes of the smallest library that looks like a plugin."""
    with tempfile.TemporaryDirectory() as folder:
        source = "const void *GetPjrtApi(void) { return 0; }"
        return compile_library(source, Path(folder, "toy.so")).read_bytes()


class Site:
    """A folder that acts as one entry of `sys.path`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, path: str, content: str | bytes = b"") -> Path:
        """Write one file below the folder."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def install(
        self, name: str, version: str = "1.0", entry_points: Points = None, files: Files = None
    ) -> None:
        """Install a distribution; `entry_points` maps "group:name" to a value."""
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        groups: dict[str, list[str]] = {}
        for key, value in (entry_points or {}).items():
            group, _, point = key.partition(":")
            groups.setdefault(group, []).append(f"{point} = {value}")
        text = "".join(f"[{group}]\n" + "\n".join(items) + "\n" for group, items in groups.items())
        if text:
            self.write(f"{info}/entry_points.txt", text)
        for path, content in (files or {}).items():
            self.write(path, content)
        self.write(f"{info}/RECORD", "".join(f"{path},,\n" for path in files or {}))

    def vendor(self, name: str, module: str, library: str, version: str = "1.0") -> Path:
        """Install a vendor's package for JAX: an entry point, code and a library."""
        folder = module.replace(".", "/")
        files = {f"{folder}/__init__.py": SENTINEL, f"{folder}/{library}": plugin_bytes()}
        point = {f"jax_plugins:{module.rpartition('.')[2]}": module}
        self.install(name, version, point, files)
        return self.folder / folder / library

    def plugin(
        self, name: str, plugin: str, platform: str = "", version: str = "1.0", **told: object
    ) -> Path:
        """Install a distribution that registers in `pjrt_plugins` with a manifest."""
        module = f"{name.replace('-', '_')}_code"
        given = {"name": plugin, "platform": platform or plugin, "priority": 400, "more": ""}
        files = {
            f"{module}/__init__.py": SENTINEL,
            f"{module}/pjrt_plugin.toml": MANIFEST.format(**{**given, **told}),
            f"{module}/toy.so": plugin_bytes(),
        }
        self.install(name, version, {f"pjrt_plugins:{plugin}": module}, files)
        return self.folder / module / "toy.so"


def world(
    tmp_path: Path,
    *sites: Site,
    first_party: bool = False,
    finders: tuple = (),
    **changed: object,
) -> World:
    """A world of these folders, without the machine's hardware and, by default, its plugins."""
    values = {
        "env": {},
        "host": HostTag.current(),
        "installed": Installed([str(site.folder) for site in sites], finders),
        "root": tmp_path / "root",
        **changed,
    }
    if not first_party:
        values.setdefault("first_party", tmp_path / "nobody")
    return World(**values)  # type: ignore[arg-type]


def only(found: Survey) -> Candidate:
    """The one candidate that was found."""
    (candidate,) = found.candidates
    return candidate
