"""Builds the two compiled modules from the declarations; everything else is in pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

import capi  # noqa: E402  (found through the path above)

NATIVE = Path("pjrt_hub") / "_capi"
DECLARATIONS = sorted(str(path) for path in NATIVE.glob("declarations/*.pjrt"))
STABLE_ABI = {"py_limited_api": True, "define_macros": [("Py_LIMITED_API", "0x030b0000")]}


class BuildNative(build_ext):
    """Writes the header and the cffi source into the build directory, then compiles."""

    def build_extensions(self) -> None:
        """Generates, points every extension at the generated header, and builds."""
        from cffi import FFI

        generated = Path(self.build_temp)
        generated.mkdir(parents=True, exist_ok=True)
        api = capi.read()
        (generated / "pjrt_api.h").write_text(capi.header(api))
        ffi = FFI()
        ffi.cdef(capi.c_types(api))
        ffi.set_source("pjrt_hub._capi._pjrt", '#include "pjrt_api.h"')
        ffi.emit_c_code(str(generated / "_pjrt.c"))
        for extension in self.extensions:
            extension.include_dirs.append(str(generated))
            extension.sources = [s.replace("@generated", str(generated)) for s in extension.sources]
        super().build_extensions()


class BuildPython(build_py):
    """Puts the registry's rows, which live at the top of the repository, into the package."""

    def run(self) -> None:
        """Copies `registry/` to `pjrt_hub/registry/`; an editable install reads the checkout."""
        super().run()
        if not self.editable_mode:
            for source in sorted((ROOT / "registry").glob("*.*")):
                target = Path(self.build_lib) / "pjrt_hub" / "registry" / source.name
                self.mkpath(str(target.parent))
                self.copy_file(str(source), str(target))


OPTIMISED = ["-O2", "-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden"]

modules = [
    # A table of types: no code of it runs often, so it is compiled quickly and without symbols.
    Extension(
        "pjrt_hub._capi._pjrt",
        ["@generated/_pjrt.c"],
        extra_compile_args=["-O1", "-g0"],
        depends=DECLARATIONS,
        **STABLE_ABI,
    ),
    Extension(
        "pjrt_hub._capi.hotpath",
        sorted(str(path) for path in NATIVE.glob("native/*.c")),
        extra_compile_args=OPTIMISED,
        depends=DECLARATIONS + sorted(str(path) for path in NATIVE.glob("native/*.h")),
        **STABLE_ABI,
    ),
]

setup(
    ext_modules=modules,
    cmdclass={"build_ext": BuildNative, "build_py": BuildPython},
    # What the build reads is in the source distribution and of no use in a wheel.
    exclude_package_data={"": ["*.pjrt", "*.md", "*.c", "*.h"]},
)
