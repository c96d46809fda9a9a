"""Builds the compiled modules from the declarations; everything else is in pyproject.toml."""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
from copy import copy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))
# Modules there are imported late: a Python that is too old must get as far as its error message.

NATIVE = Path("pjrt_hub") / "running" / "capi"
INTERPOSE = Path("pjrt_hub") / "running" / "interpose"
FORWARD = ("forwarding/forward.c", "layers/options.c", "layers/refusal.c")
AUTHORING = Path("pjrt_hub") / "kit" / "authoring" / "native"
KIT = Path("pjrt_hub") / "kit" / "authoring" / "c" / "pjrt_plugin"
DECLARATIONS = sorted(str(path) for path in NATIVE.glob("declarations/*.pjrt"))
# One build serves every Python since 3.11; free-threaded ones need one for each version.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
PYTHON_ABI = (
    {"py_limited_api": True, "define_macros": [("Py_LIMITED_API", "0x030b0000")]} if STABLE else {}
)


class Library(Extension):
    """A library that no Python imports, and so without one in its name."""


class BuildNative(build_ext):
    """Writes the header and the cffi source into the build directory, then compiles."""

    def initialize_options(self) -> None:
        """Compile as many modules at once as there are processors."""
        super().initialize_options()
        self.parallel = True

    def run(self) -> None:
        """Build; beside modules that are built in place goes what else the build makes."""
        if not self.inplace:  # Only a checkout needs the symbols that debuggers read.
            for extension in self.extensions:
                extension.extra_link_args.append("-s")
        super().run()
        if self.inplace:
            write_generated(ROOT)

    def get_ext_filename(self, fullname: str) -> str:
        """Name a module for the Pythons that it is for, and a library for none."""
        if isinstance(self.ext_map.get(fullname), Library):
            return fullname.replace(".", "/") + ".so"
        return str(super().get_ext_filename(fullname))

    def build_extensions(self) -> None:
        """Generates, points every extension at the generated header, and builds."""
        import capi
        import layers
        from cffi import FFI

        generated = Path(self.build_temp)
        generated.mkdir(parents=True, exist_ok=True)
        api = capi.read()
        (generated / "pjrt_api.h").write_text(capi.header(api))
        (generated / "functions.h").write_text(layers.header(api))
        (generated / "functions.c").write_text(layers.source(api))
        ffi = FFI()
        ffi.cdef(capi.c_types(api))
        ffi.set_source("pjrt_hub.running.capi._pjrt", '#include "pjrt_api.h"')
        ffi.emit_c_code(str(generated / "_pjrt.c"))
        # A Python that was built with run paths passes them on, but they belong to its machine.
        self.compiler.linker_so = [
            word for word in self.compiler.linker_so if not word.startswith(RUN_PATH)
        ]
        for extension in self.extensions:
            extension.include_dirs.append(str(generated))
            extension.sources = [s.replace("@generated", str(generated)) for s in extension.sources]
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Compile into a folder of its own: modules share sources, and are built at once."""
        own = copy(self)
        own.build_temp = str(Path(self.build_temp) / ext.name)
        super(BuildNative, own).build_extension(ext)


class BuildPython(build_py):
    """Puts the registry's rows, which live at the top of the repository, into the package."""

    def run(self) -> None:
        """Copy `registry/` to `pjrt_hub/registry/`; an editable install reads the checkout.

        Of all headers only those for plugins in C are shipped.

        What an earlier build left there goes first: modules deleted since would be shipped.
        """
        if not self.editable_mode:
            for package in ("pjrt_hub", "pjrt_plugins"):
                shutil.rmtree(Path(self.build_lib) / package, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            for source in sorted((ROOT / "registry").glob("*.*")):
                target = Path(self.build_lib) / "pjrt_hub" / "registry" / source.name
                self.mkpath(str(target.parent))
                self.copy_file(str(source), str(target))
            for source in sorted((ROOT / KIT).glob("*.h")):
                target = Path(self.build_lib) / KIT / source.name
                self.mkpath(str(target.parent))
                self.copy_file(str(source), str(target))
            write_generated(Path(self.build_lib))


def write_generated(root: Path) -> None:
    """Write what is made of declarations and of TOML files into the package below `root`."""
    import capi
    import parsed
    import plugin_header

    api = capi.read()
    (root / NATIVE / "table.json").write_text(capi.table(api), "utf-8")
    (root / KIT / "api.h").write_text(plugin_header.text(api), "utf-8")
    (root / "pjrt_hub" / "finding" / "contract" / "parsed.json").write_text(parsed.text(), "utf-8")


def description() -> str:
    """Give the README for an index's page, on which links into the checkout would be broken."""
    readme = (ROOT / "README.md").read_text("utf-8")
    return re.sub(r"\[([^]]+)\]\((?!https?://)[^)]*\)", r"\1", readme)


RUN_PATH = ("-Wl,-rpath,", "-Wl,-rpath=", "-Wl,-R")
OPTIMISED = [
    *("-O2", "-std=c11", "-fvisibility=hidden"),
    *("-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror=implicit"),
]

PLUGIN_HEADERS = [*AUTHORING.glob("*.h"), *KIT.glob("*.h"), *NATIVE.glob("native/*.h")]

modules = [
    # The code of this table of types seldom runs, so it is compiled quickly, without debug info.
    Extension(
        "pjrt_hub.running.capi._pjrt",
        ["@generated/_pjrt.c"],
        extra_compile_args=["-O1", "-g0"],
        depends=DECLARATIONS,
        **PYTHON_ABI,
    ),
    Extension(
        "pjrt_hub.running.capi.hotpath",
        sorted(str(path) for path in NATIVE.glob("native/*.c")),
        extra_compile_args=OPTIMISED,
        depends=DECLARATIONS + sorted(str(path) for path in NATIVE.glob("native/*.h")),
        **PYTHON_ABI,
    ),
    Extension(
        "pjrt_hub.kit.authoring._plugin",
        # The rules for threads that call into Python are the same, with a state of their own.
        [*sorted(str(path) for path in AUTHORING.glob("*.c")), str(NATIVE / "native" / "upcall.c")],
        include_dirs=[str(NATIVE / "native"), str(KIT.parent)],
        extra_compile_args=OPTIMISED,
        depends=[*DECLARATIONS, *map(str, PLUGIN_HEADERS)],
        **PYTHON_ABI,
    ),
    # This is no module and lies beside none: pjrt_hub/kit/authoring/building.py copies it.
    Library(
        "pjrt_hub.kit.authoring.native.launcher",
        [str(AUTHORING / "launcher" / "launcher.c")],
        libraries=["dl"],
        extra_compile_args=OPTIMISED,
    ),
    # This is no module: it is preloaded into the reference interpreter's process.
    Library(
        "pjrt_hub.kit.authoring.native.processors",
        [str(AUTHORING / "interpreter" / "processors.c")],
        extra_compile_args=OPTIMISED,
    ),
    # This is no module: a host opens it by its path.
    Library(
        "pjrt_hub.running.interpose.forwarding.forward",
        [str(INTERPOSE / each) for each in FORWARD],
        include_dirs=[str(INTERPOSE / "layers"), str(NATIVE / "native")],
        extra_compile_args=OPTIMISED,
        define_macros=[("_GNU_SOURCE", None)],
        depends=[*DECLARATIONS, str(INTERPOSE / "layers" / "options.h")],
    ),
    # This is no module: it is opened when a program needs it.
    Library(
        "pjrt_hub.running.capi.lapack.lapack",
        [str(NATIVE / "lapack" / "lapack.c")],
        include_dirs=[str(NATIVE / "native")],
        libraries=["m"],
        extra_compile_args=OPTIMISED,
        depends=[*DECLARATIONS, str(NATIVE / "native" / "structs.h")],
    ),
    # This is no module: it is preloaded into programs that may have no Python.
    Library(
        "pjrt_hub.running.interpose.layers.preload",
        ["@generated/functions.c", *sorted(str(path) for path in INTERPOSE.glob("layers/**/*.c"))],
        include_dirs=[str(INTERPOSE / "layers"), str(NATIVE / "native")],
        libraries=["dl"],
        extra_compile_args=OPTIMISED,
        define_macros=[("_GNU_SOURCE", None)],
        depends=[
            *DECLARATIONS,
            "tools/layers.py",
            "pjrt_hub/finding/contract/variables.py",
            *map(str, INTERPOSE.glob("layers/**/*.h")),
            str(NATIVE / "native" / "structs.h"),
        ],
    ),
]

setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    # On other systems nothing is compiled, and the wheel is pure. It is for the machine that built
    # it: if published, it would be installed on each Linux without a wheel of its own.
    ext_modules=modules if sys.platform == "linux" else [],
    cmdclass={"build_ext": BuildNative, "build_py": BuildPython},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
    # The source distribution contains what the build reads; a wheel has no use for it.
    exclude_package_data={"": ["*.pjrt", "*.md", "*.c", "*.h"]},
)
