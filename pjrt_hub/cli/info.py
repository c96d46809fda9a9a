"""`pjrt-hub info`: all that is known of one plugin before it is fetched."""

from __future__ import annotations

import click

import pjrt_hub
from pjrt_hub.base.listing import size_text
from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command
from pjrt_hub.cli.search import as_dict
from pjrt_hub.errors import PluginNotFoundError


@click.command("info", cls=Command, examples=("pjrt-hub info cuda13", "pjrt-hub info gpu --json"))
@click.argument("name")
def command(name: str, as_json: bool) -> None:
    """Show what a plugin is and where it comes from.

    NAME is a plugin, a platform, an alias or a package. Each build is shown, and the manifests by
    which it is installed.
    """
    offers = [each for each in pjrt_hub.search(name) if name in each.names]
    if not offers:
        raise PluginNotFoundError(
            f"nothing is named {name!r}",
            hint="`pjrt-hub search --all` lists everything, and `pjrt-hub list` what is here",
        )
    told = list(map(as_dict, offers))
    if as_json:
        output.show_json(told)
        return
    for each in told:
        lines = {**each, "size": size_text(each["size"]), "fits": "yes" if each["fits"] else "no"}
        for key, value in lines.items():
            text = value if isinstance(value, str) else ", ".join(value or ())
            if text:
                print(f"{key.replace('_', ' '):12} {text}")
        print()
