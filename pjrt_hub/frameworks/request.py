"""What is asked for a framework's device: a plugin, and from a variable create options as texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.manifest import Manifest
    from pjrt_hub.finding.contract.option import OptionValue
    from pjrt_hub.running.client.plugin import Plugin


def open_asked(
    platform: str | None, *, to_run: bool = True, origin: str = "the argument"
) -> tuple[Plugin, Manifest]:
    """Choose and load the plugin for a platform, as `pjrt_hub.client` does; return its manifest.

    `origin` is what asks for it: the argument of a function, or a variable.
    """
    from pjrt_hub.door.client import choose, load
    from pjrt_hub.door.plugin import open_plugin

    choice = choose(platform, to_run=to_run, origin=origin)
    return open_plugin(choice, reload=load), choice.candidate.manifest


def release(distribution: str) -> tuple[int, int]:
    """Return the installed release of a framework: (2, 9)."""
    from importlib.metadata import version

    major, minor = version(distribution).split(".")[:2]
    return int(major), int(minor)


class DeviceRequest(NamedTuple):
    """A platform, or None to let pjrt-hub choose, and create options as texts."""

    platform: str | None
    options: dict[str, str]

    @classmethod
    def read(cls, text: str, variable: str) -> DeviceRequest:
        """Read "cpu" or "cpu;cpu_device_count=4": a platform and create options of its client.

        An option without a name or a value raises ValueError, which names the variable.
        """
        platform, *items = (item.strip() for item in text.split(";"))
        options = {}
        for item in filter(None, items):
            name, equals, value = (part.strip() for part in item.partition("="))
            if not (name and equals):
                raise ValueError(
                    f"{variable} is {text!r}, in which {item!r} is not an option\n\nhint: "
                    "write a platform and its create options, as in `cpu;cpu_device_count=4`"
                )
            options[name] = value
        return cls(platform or None, options)

    def typed(self, manifest: Manifest) -> dict[str, OptionValue]:
        """Return the options with the manifest's types; those that it does not have stay text."""
        known = {option.name: option for option in manifest.options}
        return {
            name: known[name].parse(text) if name in known else text
            for name, text in self.options.items()
        }
