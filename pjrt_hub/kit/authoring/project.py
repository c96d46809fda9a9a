"""`new`: a project that builds, tests and publishes a plugin's package."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from importlib.resources import files as resources
from pathlib import Path
from typing import Literal

from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import PjrtHubError
from pjrt_hub.kit.authoring.building import refuse_built
from pjrt_hub.kit.authoring.identity import identify
from pjrt_hub.kit.authoring.package import Package, license_expression, platform_name, refuse_name
from pjrt_hub.kit.authoring.wheel import platform_tag

#: The template of each file of the project that is not in the package itself.
_FILES = {
    "pyproject.toml": "pyproject.toml.in",
    "setup.py": "setup.py.in",
    "README.md": "README.md.in",
    ".gitignore": "gitignore.in",
    ".github/workflows/test.yml": "workflow.yml.in",
    "tests/conftest.py": "conftest.py.in",
    "tests/test_plugin.py": "test_plugin.py.in",
}

#: The suffix of a library's source file, by its language.
_SUFFIXES = {"c": ".c", "c++": ".cc"}


def new(
    name: str,
    *,
    library: Path | None = None,
    language: Literal["", "c", "c++"] = "",
    example: bool = False,
    platform: str = "",
    license: str = "",
    into: Path | None = None,
    with_options: bool = True,
    known_defects: Callable[[], Mapping[str, str]] = dict,
) -> tuple[Path, Package]:
    """Write the project of a new plugin.

    Args:
        name: the plugin's name.
        library: a library that is copied into the project, and asked what it is.
        language: "c" or "c++" for a library whose source is in the project, with the headers that
            it is written against.
        example: whether that source is a small interpreter instead of a skeleton.
        platform: what the plugin drives; by default what the library says, else the plugin's name.
        license: an SPDX expression.
        into: the project's folder, which must be absent or empty; by default a folder here with
            the distribution's name.
        with_options: make clients of the library, to learn its platform and create options.
        known_defects: returns conformance checks that the plugin fails -> why, which the project's
            tests then expect. It is called once nothing else can be refused.

    Returns:
        The project's folder, and the package in it.

    Raises:
        PluginError: the library cannot be loaded, or fails while it is loaded.
        PjrtHubError: the name, platform or licence is invalid, the library is one that `build`
            wrote, or the folder is in use.
    """
    refuse_name(name)
    license = license_expression(license)
    if library and language:
        raise PjrtHubError(
            f"{library} is a library already, and one is to be written",
            hint="give the library, or a language to write one in",
        )
    if library:
        refuse_built(library)
    identity = identify(library, with_options=with_options) if library else None
    package = Package(
        name,
        platform_name(platform, identity.platform if identity else "", name),
        "0.1.0",
        license,
        identity,
        platform_tag(identity.binary) if identity else f"linux_{HostTag.current().arch}",
        f"{name}{_SUFFIXES[language]}" if language else "",
    )
    folder = into or Path(package.distribution)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PjrtHubError(f"{folder} is there already", hint="name another folder with `--output`")
    source = Path("src", package.module)
    defects = "".join(f"{name}: {' '.join(why.split())}\n" for name, why in known_defects().items())
    files = {
        **{target: package.fill(template) for target, template in _FILES.items()},
        "tests/known_defects.txt": package.fill("known_defects.txt.in") + defects,
        **{str(source / target): text for target, text in package.files().items()},
        **(_native(package, example) if language else {}),
    }
    for target, text in files.items():
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    if identity is not None:
        shutil.copyfile(identity.path, folder / source / package.file_name)
    return folder, package


def _native(package: Package, example: bool) -> dict[str, str]:
    """Return the source of a library and its build files: file of the project -> text."""
    headers = resources(__package__).joinpath("c", "pjrt_plugin")
    return {
        "setup.py": package.fill("setup_native.py.in"),
        "CMakeLists.txt": package.fill("CMakeLists.txt.in"),
        f"native/{package.source}": package.fill("example.c.in" if example else "plugin.c.in"),
        **{
            f"native/pjrt_plugin/{each.name}": each.read_text("utf-8")
            for each in headers.iterdir()
            if each.name.endswith(".h")
        },
    }
