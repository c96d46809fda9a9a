"""A plugin that requires two archives, as wheels in a folder: the only source of downloads."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import wheels
from trees import compile_library

from pjrt_hub.base import digest
from pjrt_hub.base.host import HostTag
from pjrt_hub.finding.store.catalog import Artifact, Member, Requirement

LIBRARY, DEPENDENCY, TOOL = "toy/lib/toy.so", "dep/lib/libdep.so", "dep/bin/tool"
RUN_PATH = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../dep/lib"


@dataclass
class Toys:
    """A plugin that requires two archives, and the folder of its wheels."""

    wheels: Path
    row: Artifact

    def __post_init__(self) -> None:
        self.library, self.tool = self.row.requires


def member(path: str, content: bytes) -> Member:
    return Member(
        path, len(content), hashlib.sha256(content).hexdigest(), executable="/bin/" in path
    )


def build(folder: Path) -> Toys:
    """Build the wheels; the plugin's library links with a library that it requires."""
    source = "int dep(void) { return 42; }"
    dependency = compile_library(source, folder / "libdep.so", "-Wl,-soname,libdep.so")
    source = (
        "int dep(void); void *GetPjrtApi(void) { return 0; } int answer(void) { return dep(); }"
    )
    library = compile_library(source, folder / "toy.so", str(dependency), RUN_PATH)
    (folder / "wheels").mkdir()

    def wheel(name: str, version: str, path: str, body: bytes) -> dict[str, object]:
        archive = folder / "wheels" / f"{name}-{version}-py3-none-any.whl"
        archive.write_bytes(
            wheels.build({path: body, f"{name}-{version}.dist-info/METADATA": b"Name: x\n"})
        )
        return {
            **{"plugin": "toy", "platform": "toy", "license": "MIT", "version": version},
            "package": name.replace("_", "-"),
            "file_name": archive.name,
            "size": archive.stat().st_size,
            "sha256": digest.of_file(archive),
            "members": (member(path, body),),
        }

    needs = wheel("toy_dep", "2.5", DEPENDENCY, dependency.read_bytes())
    tool = wheel("toy_tool", "1.0", TOOL, b"#!/bin/sh\necho here\n")
    row = Artifact(
        **wheel("toy_plugin", "1.0", LIBRARY, library.read_bytes()),
        library=LIBRARY,
        host=HostTag.current(),
        api_note="not loaded",
        requires=(Requirement(**needs, specifier=">=2,<3"), Requirement(**tool, compiles=True)),
    )
    return Toys(folder / "wheels", row)
