"""Targets: machines that a plugin compiles for without having them.

Owns the way from a user's "H100" to what `PJRT_TopologyDescription_Create` takes; the check of
shapes, as some plugins end the process for one of no devices or of too many; and the GPU
descriptions that a library embeds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import PluginLoadError, TargetNotFoundError
from pjrt_hub.finding.contract import option
from pjrt_hub.finding.contract.names import did_you_mean
from pjrt_hub.finding.contract.option import Option, OptionValue
from pjrt_hub.finding.contract.table import Table

if TYPE_CHECKING:
    import mmap

#: The option that takes a GPU's description.
_CONFIG = "target_config"
_MAX_DEVICES = 1 << 16
#: This matches a shape such as "2x2x1", alone or after a name as in "v5e:2x2".
_SHAPE = re.compile(r"(?:.*[:=_])?(-?\d+(?:x-?\d+)*)(?:_twisted|_untwisted)?")
#: XLA's GPU plugins embed, as text, a GpuTargetConfigProto of each GPU that was measured for them.
#: Only the plugin parses this text.
_BEGIN = re.compile(rb"gpu_device_info \{")
_DEVICE = re.compile(r'^device_description_str: "([^"\\]+)"', re.MULTILINE)
_PLATFORM = re.compile(r'^platform_name: "(\w+)"', re.MULTILINE)
#: Real descriptions have up to 6 kB, including the comment of a licence before them.
_MAX_NBYTES = 1 << 16


class Target(NamedTuple):
    """A machine that a plugin can compile for.

    Attributes:
        name: what a user says, "H100" or "v5e:2x2".
        plugin: the plugin that knows it, or an empty string in the plugin's own manifest.
        description: one line.
        device: a GPU's name in the descriptions that the library embeds.
        config: our own description of a GPU, for a library that embeds none.
    """

    name: str
    plugin: str = ""
    description: str = ""
    device: str = ""
    config: str = ""

    def __str__(self) -> str:
        return f"{self.plugin}:{self.name}" if self.plugin else self.name

    def __repr__(self) -> str:  # This leaves out `config`, which is long.
        shown = {name: value for name, value in self._asdict().items() if name != "config"}
        return f"Target({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _row(self) -> dict[str, str]:
        return {"target": str(self), "description": self.description}


Target.__module__ = "pjrt_hub"  # The body of a NamedTuple cannot set this.


class Targets(NamedTuple):
    """The machines that a plugin compiles for, and how they are named to it."""

    options: tuple[Option, ...] = ()  # The options of `PJRT_TopologyDescription_Create`.
    known: tuple[Target, ...] = ()  # The machines with names; the plugin may know more.
    embedded: str = ""  # The platform of the GPUs that its library describes ("CUDA").
    refused: tuple[str, ...] = ()  # GPUs, by device, for which its compiler is too new.

    @classmethod
    def read(cls, table: Table) -> Targets:
        """Read the `[topology]` table of a manifest."""
        targets = cls(
            options=option.read_all(table.table("options")),
            known=tuple(_target(item) for item in table.tables("target")),
            embedded=table.text("embedded", ""),
            refused=table.texts("refused"),
        )
        if targets.embedded and _CONFIG not in {each.name for each in targets.options}:
            table.fail("options", f"an option {_CONFIG!r}, because GPU descriptions are embedded")
        table.finish()
        return targets

    def list(self, plugin: str, library: Path | None) -> list[Target]:
        """List the machines, those that only the library describes last."""
        configs = gpu_target_configs(library, self.embedded) if self.embedded and library else {}
        named = [
            each
            for each in self.known
            if each.device not in self.refused
            and (not self.embedded or library is None or each.config or each.device in configs)
        ]
        taken = {*self.refused, *(each.device for each in named)}
        more = [Target(name, device=name) for name in sorted(configs.keys() - taken)]
        return [each._replace(plugin=plugin) for each in (*named, *more)]

    def require(self, name: str, given: Mapping[str, object], *, plugin: str) -> None:
        """Raise TargetNotFoundError for an impossible name, as far as is known without the library.

        A possible name is that of a known machine or, except for GPUs, another shape of its kind.
        """
        if not self.known or not name or _CONFIG in given:
            return
        listed = self.list(plugin, None)
        if self.embedded:
            names = {each.name for each in listed} | {each.device for each in listed}
            is_known = name.casefold() in {each.casefold() for each in names}
        else:
            names = {each.name for each in listed}
            is_known = _kind(name) in {_kind(each) for each in names}
        if not is_known:
            meant = did_you_mean(name, names)
            raise TargetNotFoundError(
                f"{plugin} lists no machine {name!r}; it lists "
                + ", ".join(each.name for each in listed),
                hint=f"{meant} " * bool(meant)
                + f"nothing was fetched; after `pjrt-hub fetch {plugin}` the plugin is asked",
            )

    def resolve(
        self,
        name: str,
        given: Mapping[str, object],
        *,
        plugin: str,
        library: Path,
        api: ApiVersion | None = None,
    ) -> tuple[str, dict[str, OptionValue]]:
        """Return the topology's name and options for the plugin; the user's win over the machine's.

        A name that is not `known` goes to the plugin as it is. TargetNotFoundError means that
        GPUs are described, and this one is not, or is too old for the compiler; ValueError,
        that there is no such option, or no machine of such a shape.
        """
        options = option.check(self.options, given, plugin=plugin, what="topology option", api=api)
        known = {each.name.casefold(): each for each in self.known}
        target = known.get(name.casefold())
        if self.embedded and name and _CONFIG not in given:
            options[_CONFIG] = self._config(target or Target(name, device=name), plugin, library)
        spelled = target.name if target else name
        for text in (spelled, *options.values()):
            _check_size(text)
        return ("" if self.embedded else spelled), options

    def _config(self, target: Target, plugin: str, library: Path) -> str:
        configs = gpu_target_configs(library, self.embedded)
        names = [each.name for each in self.list(plugin, library)]
        if target.device.casefold() in {each.casefold() for each in self.refused}:
            raise TargetNotFoundError(
                f"{plugin} describes the target {target.name!r}, for which its compiler is too new",
                hint=f"an older plugin may compile for it; {plugin} does so for {', '.join(names)}",
            )
        for device, config in configs.items():
            if device.casefold() == target.device.casefold():
                return config
        if target.config:
            return target.config
        meant = did_you_mean(target.name, names)
        raise TargetNotFoundError(
            f"{plugin} has no description of the target {target.name!r}; it has "
            f"{', '.join(names) or 'none'}",
            hint=f"{meant} " * bool(meant)
            + f"name one of these, or give a GpuTargetConfigProto as text in {_CONFIG!r}",
        )


NO_TARGETS = Targets()


def _kind(name: str) -> str:
    """Return the text before the shape: "v5e" of "v5e:2x2"."""
    return name.partition(":")[0].casefold()


def _target(table: Table) -> Target:
    target = Target(
        table.text("name"),
        description=table.text("description", ""),
        device=table.text("device", ""),
        config=table.text("config", ""),
    )
    if not target.name:
        table.fail("name", "a name such as 'H100'")
    table.finish()
    return target


def _check_size(value: OptionValue) -> None:
    """Refuse sizes that some plugins divide by, or allocate for until the process is killed."""
    sizes: list[int] = []
    if isinstance(value, str):
        shape = _SHAPE.fullmatch(value)
        sizes = [int(size[:20]) for size in shape[1].split("x")] if shape else []
    elif isinstance(value, int) and not isinstance(value, bool):
        sizes = [value]
    elif isinstance(value, tuple):
        sizes = list(value)
    if any(size < 1 for size in sizes) or math.prod(sizes) > _MAX_DEVICES:
        raise ValueError(
            f"{value!r} is not a shape of a machine: each size is at least 1, and all together "
            f"are at most {_MAX_DEVICES} devices"
        )


def gpu_target_configs(library: Path, platform: str) -> dict[str, str]:
    """Read the descriptions of GPUs that a library embeds, by device ("NVIDIA H100 80GB HBM3").

    Only those of this `platform_name`, such as "CUDA", count; of equal names, the first. A library
    of 400 MB takes some 0.2 seconds. One that cannot be read raises PluginLoadError.
    """
    import mmap

    configs: dict[str, str] = {}
    try:
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            for match in _BEGIN.finditer(data):
                text = _text_around(data, match.start())
                device, of = _DEVICE.search(text), _PLATFORM.search(text)
                if device and of and of[1] == platform:
                    configs.setdefault(device[1], text)
    except (OSError, ValueError) as exc:  # An empty file is a ValueError.
        raise PluginLoadError(f"{library} cannot be read: {exc}", path=library) from None
    return configs


def _text_around(data: mmap.mmap, place: int) -> str:
    """Return the NUL-terminated string around `place`."""
    low, high = max(0, place - _MAX_NBYTES), min(len(data), place + _MAX_NBYTES)
    begin, end = data.rfind(b"\0", low, place), data.find(b"\0", place, high)
    return data[low if begin < 0 else begin + 1 : high if end < 0 else end].decode(
        "utf-8", "replace"
    )
