"""The layers between a host and a plugin: their library, and a table seen through them.

`read` gives a `Chain` of them, which wraps tables in this process; `preload_path` is for a
program's LD_PRELOAD. The C files in layers/ know nothing of Python. Must not read the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.running.capi import table
from pjrt_hub.running.capi._pjrt import ffi

#: The names of all layers, in the order from the host to the plugin.
LAYERS = ("validate", "trace", "device", "pad", "cache", "options", "without", "discrete")
#: From this minor version on, no host was seen to give too small a `struct_size`. JAX 0.6.2
#: (0.70) gives 24 bytes for `PJRT_Plugin_Attributes_Args`, which has always had 32.
TRUE_SIZES = 85
#: The tables that `pad` made. They are never freed, because hosts keep them for ever.
_tables: list[object] = []


def preload_path() -> Path:
    """Return the path of the library for a program's LD_PRELOAD.

    It reads PJRT_HUB_LAYERS, PJRT_HUB_TRACE, PJRT_HUB_OPTIONS, PJRT_HUB_WITHOUT and
    PJRT_HUB_DISCRETE; the layer `cache` reads where the compile cache is.
    """
    return Path(__file__).with_suffix("") / "preload.so"


class Chain(NamedTuple):
    """Layers and their settings, which `read` has checked."""

    names: str  # The layers, joined by commas, from the host to the plugin.
    without: str = ""  # What the layer `without` takes away, joined by commas.
    discrete: str = ""  # The settings of the layer `discrete`, joined by commas.
    folder: str | os.PathLike[str] | None = None  # The folder in which the layer `trace` records.
    options: str = ""  # The rules of the layer `options`, joined by semicolons.

    def __str__(self) -> str:
        """Write the layers with what was set: "discrete (seed=7,hold)"."""
        given = ",".join(filter(None, (self.options, self.without, self.discrete)))
        return f"{self.names} ({given})" if given else self.names

    def wrap(self, address: int) -> int:
        """Return the address of a table whose calls pass through the layers to that at `address`.

        The latter must stay for ever, as plugins' tables do. A process has one set of layers: those
        of the first call hold for all later plugins.
        """
        if not self.names:
            return address
        place = os.fsencode(self.folder) if self.folder is not None else None
        texts = (self.names, self.options, self.without, self.discrete)
        names, *words = [each.encode() for each in texts]
        import ctypes  # Processes without layers do not need this import.

        function = ctypes.CDLL(os.fspath(preload_path())).pjrt_hub_wrap
        function.restype = ctypes.c_void_p
        function.argtypes = (ctypes.c_void_p, *[ctypes.c_char_p] * 5)
        return int(function(address, names, place, *words))


def read(
    layers: str,
    folder: str | os.PathLike[str] | None = None,
    without: str | None = None,
    discrete: str | None = None,
    options: str | None = None,
) -> Chain:
    """Read the names of layers, joined by commas, and their settings; PjrtHubError if wrong."""
    names = [name.strip() for name in layers.split(",") if name.strip()]
    if unknown := [name for name in names if name not in LAYERS]:
        raise PjrtHubError(
            f"there is no layer {unknown[0]!r}",
            hint=f"name some of {', '.join(LAYERS)}, joined by commas",
        )
    recording = [name for name in names if name in ("trace", "device")]
    if recording and (folder is None or not os.path.isdir(folder)):
        raise PjrtHubError(
            f"the layer {recording[0]} has no folder to record to: {folder}",
            hint="make a folder and name it in PJRT_HUB_TRACE",
        )
    taken = ",".join(removals(without or "")) if "without" in names else ""
    given = ",".join(settings(discrete or "")) if "discrete" in names else ""
    if "options" in names and options is None:
        raise PjrtHubError(
            "the layer options has no rules",
            hint="set PJRT_HUB_OPTIONS; an empty value leaves out all of the host's options",
        )
    rules = option_rules(options or "") if "options" in names else ""
    return Chain(",".join(names), taken, given, folder, rules)


def wrap(
    address: int,
    layers: str,
    folder: str | os.PathLike[str] | None = None,
    without: str | None = None,
) -> int:
    """Return the address of a table whose calls pass through layers, as `Chain.wrap` does.

    Args:
        address: of a plugin's `PJRT_Api`; it must stay there for ever, as plugins' tables do.
        layers: names from `LAYERS`, joined by commas.
        folder: where the layer `trace` records; it must exist.
        without: what the layer `without` takes away, as `removals` reads it.

    Raises:
        PjrtHubError: as `read`.
    """
    return read(layers, folder, without).wrap(address)


def removals(names: str) -> list[str]:
    """Read what to take away from a plugin: functions and extensions, joined by commas.

    A function's name makes it answer UNIMPLEMENTED; `PJRT_Buffer_IsOnCpu:null` makes it NULL.
    An extension, such as `Layouts`, is left out of the chain. No or unknown names: PjrtHubError.
    """
    taken = [name.strip() for name in names.split(",") if name.strip()]
    known = {*function_names(), *(f"{name}:null" for name in function_names()), *table.EXTENSIONS}
    if unknown := [name for name in taken if name not in known]:
        raise PjrtHubError(
            f"the layer without cannot take away {unknown[0]!r}: there is none",
            hint="name functions as in docs/coverage.md, PJRT_Buffer_IsOnCpu or "
            "PJRT_Buffer_IsOnCpu:null, and extensions, Layouts",
        )
    if not taken:
        raise PjrtHubError(
            "the layer without has nothing to take away",
            hint="name functions or extensions in PJRT_HUB_WITHOUT, joined by commas",
        )
    return taken


#: A rule of the layer `options`: a name, and maybe a value in the form that tells its type.
_RULE = re.compile(r"""\s*[^\s;='"]+(=('[^']*'|\[[-\d, ]*\]|[^;'\[\]]+))?\s*""")


def option_rules(text: str) -> str:
    """Check the rules of the layer `options`: "num_nodes;cpu_device_count=4;mode='fast;2'".

    A name lets the host's option through; a name with a value gives the plugin an option in place
    of the host's. All other options of the host are left out. Malformed text: PjrtHubError.
    """
    rules = re.findall(r"(?:'[^']*'|[^;'])+", text)
    if wrong := [each for each in rules if not _RULE.fullmatch(each)]:
        raise PjrtHubError(
            f"the layer options has no rule {wrong[0]!r}",
            hint="PJRT_HUB_OPTIONS takes names, which let the host's options through, and values, "
            "as in num_nodes;cpu_device_count=4;mode='fast', joined by semicolons",
        )
    return ";".join(each.strip() for each in rules)


def option_rule(name: str, value: str | int | float | bool | tuple[int, ...]) -> str:
    """Write the rule that gives a plugin an option; text that has a quote in it is a ValueError."""
    if isinstance(value, str):
        if "'" in value:
            raise ValueError(f"the option {name} is {value!r}, and no rule can hold a quote")
        return f"{name}='{value}'"
    if isinstance(value, tuple):
        return f"{name}=[{','.join(map(str, value))}]"
    return f"{name}={str(value).lower()}"


#: The settings of the layer `discrete`, with the pattern of each.
_SETTINGS = {
    "seed": r"seed=\d+",
    "window": r"window=[1-9]\d{0,8}",
    "capacity": r"capacity=\d+([KMG]iB)?",
    "platform": r"platform=[a-z0-9_]{1,31}",
    "hold": r"hold",
    "silence": r"silence=[1-9]\d{0,6}",
    "prompt": r"prompt",
    "tiled": r"tiled",
}


def settings(text: str) -> list[str]:
    """Read the settings of the layer `discrete`: "seed=7,capacity=64MiB,hold", or PjrtHubError."""
    given = [each.strip() for each in text.split(",") if each.strip()]
    for each in given:
        pattern = _SETTINGS.get(each.partition("=")[0])
        if pattern is None or not re.fullmatch(pattern, each):
            raise PjrtHubError(
                f"the layer discrete has no setting {each!r}",
                hint="PJRT_HUB_DISCRETE takes seed=7, window=8, capacity=64MiB, platform=tpu, "
                "silence=100, hold, prompt and tiled, joined by commas",
            )
    return given


def growing_structs(host: int, plugin: int) -> tuple[str, ...]:
    """Return the structs that a plugin of that minor may require to be larger than a host's."""
    names = {function.args for function in table.FUNCTIONS.values()} | {"PJRT_ExecuteOptions"}
    fields = {name: [field.since for field in table.FIELDS[name]] for name in sorted(names)}
    return tuple(
        name
        for name, since in fields.items()
        if since and min(since) <= host and any(host < each <= plugin for each in since)
    )


def pad(address: int, host: int, structs: Collection[str]) -> int:
    """Return the address of a table that pads structs that a host of that minor makes too small.

    Functions whose structs cannot be too small, because none is in `structs` (which
    `growing_structs` names), are the plugin's own.
    """
    padded = wrap(address, "pad")
    if host < TRUE_SIZES:
        return padded
    own = ffi.cast("PJRT_Api *", address)
    nbytes = int(own.struct_size)
    copy = ffi.new("char[]", nbytes)
    ffi.memmove(copy, ffi.cast("char *", padded), nbytes)
    for name, function in table.FUNCTIONS.items():
        at = offsets("PJRT_Api")[name]
        fields = (field.ctype.rstrip(" *") for field in table.FIELDS[function.args])
        if at < nbytes and not {function.args, *fields} & {*structs}:
            ffi.memmove(copy + at, ffi.cast("char *", own) + at, sizeof("void *"))
    _tables.append(copy)
    return int(ffi.cast("uintptr_t", copy))


def function_names() -> tuple[str, ...]:
    """Return the names of all functions, each at the index that recordings use as its number."""
    nodes = (each for node in table.EXTENSIONS.values() for each in node.functions.values())
    return (*table.FUNCTIONS, *(each.args.removesuffix("_Args") for each in nodes))


@cache
def offsets(struct: str) -> dict[str, int]:
    """Return where each field of a struct stands, in bytes."""
    return {field.name: int(ffi.offsetof(struct, field.name)) for field in table.FIELDS[struct]}


@cache
def sizeof(ctype: str) -> int:
    """Return the size of a C type in bytes."""
    return int(ffi.sizeof(ctype))
