"""`pjrt-hub env`: what makes another program use a plugin."""

from __future__ import annotations

import shlex

import click

from pjrt_hub.cli import output
from pjrt_hub.cli.command import Command
from pjrt_hub.frameworks.hosts import HOSTS, tell


@click.command(
    "env",
    cls=Command,
    examples=('eval "$(pjrt-hub env cpu --for jax)"', "pjrt-hub env cuda --for exla"),
)
@click.argument("platform", required=False)
@click.option("--for", "host", type=click.Choice(list(HOSTS)), required=True, help="The program.")
def command(platform: str | None, host: str, as_json: bool) -> None:
    """Print the variables or lines that make another program use a plugin.

    The plugin is chosen, fetched if it is missing, and loaded once to see that it works. The first
    line, a comment, says which release of the program this is for.
    """
    told = tell(host, platform)
    if as_json:
        output.show_json({"host": host, **told._asdict(), "path": str(told.path)})
        return
    print(HOSTS[host].comment, told.note)
    for name, value in told.variables.items():
        # Lines are for a file of the host, in which a variable of the shell is a comment.
        print(HOSTS[host].comment if told.lines else "export", f"{name}={shlex.quote(value)}")
    for line in told.lines:
        print(line)
