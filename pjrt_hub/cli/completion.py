"""`pjrt-hub completion`: the script with which a shell completes this command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from pjrt_hub.cli.command import Command


@click.command(
    "completion",
    cls=Command,
    is_text=True,
    examples=(
        "pjrt-hub completion bash > ~/.local/share/bash-completion/completions/pjrt-hub",
        "pjrt-hub completion fish > ~/.config/fish/completions/pjrt-hub.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete this command.

    For zsh, write it to a file `_pjrt-hub` in a folder of $fpath.
    """
    completion = get_completion_class(shell)
    assert completion is not None  # Click knows all three shells.
    program = ctx.find_root().command
    print(completion(program, {}, "pjrt-hub", "_PJRT_HUB_COMPLETE").source())
