"""`pjrt-hub`: finds the command, and turns an error into text and an exit status.

A command's module is imported when the command runs, so that no command pays for another.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Any

import click

from pjrt_hub import errors
from pjrt_hub.cli.command import Group, verbose_option
from pjrt_hub.cli.status import FAILED, INTERRUPTED, status_of

#: The help groups the commands in the order in which a newcomer needs them.
SECTIONS = {
    "Find and run": ("list", "doctor", "run", "inspect", "compile", "export", "fits", "targets"),
    "Fetch and keep plugins": ("search", "info", "fetch", "lock", "bundle", "cache"),
    "Install for any program": ("install", "uninstall", "env"),
    "Make and examine plugins": ("new", "build", "pack", "lint", "check", "trace"),
    "This command": ("completion",),
}
#: Other names of commands and options, which the help leaves out.
ALIASES = {"plugins": "list", "diagnose": "doctor", "get": "fetch"}
ALIASES |= {"out": "output", "into": "output"}


class Commands(Group):
    """The group of all commands, which imports a command's module on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names in the order of the help."""
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the `command` of the module that has the command's name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        from importlib import import_module

        command: click.Command = import_module(f"pjrt_hub.cli.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; after a Ctrl-C, print in one line what is kept of its work, if known."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as exc:
            if not (notes := getattr(exc, "__notes__", ())):
                raise
            print("; ".join(notes), file=sys.stderr)
            return INTERRUPTED

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section's commands with their first lines."""
        for title, section in SECTIONS.items():
            commands = [(name, self.get_command(ctx, name)) for name in section]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, each.get_short_help_str(80)) for name, each in commands if each]
                )


@click.command(
    "pjrt-hub",
    cls=Commands,
    params=[verbose_option()],
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda word: ALIASES.get(word, word),
    },
)
@click.version_option(package_name="pjrt-hub", prog_name="pjrt-hub", message="%(prog)s %(version)s")
def program() -> None:
    """Find, check, fetch and run PJRT plugins."""


def main() -> None:
    """Run the command line of this process and exit with its status."""
    open_streams()
    sys.exit(run(sys.argv[1:]))


def open_streams() -> None:
    """Make the standard streams usable, even if the caller closed some of them.

    A descriptor that is closed would be given to the next file that is opened, and a plugin's log
    would go there. A path that the locale cannot encode is printed with escapes.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # A new descriptor takes the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def run(args: list[str]) -> int:
    """Run one command line and return its exit status, which docs/cli.md explains."""
    try:
        # Without standalone mode click returns the command's value and lets errors through.
        status = program.main(args, prog_name="pjrt-hub", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; the interpreter's own flush at exit must not fail as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as exc:
        return report(exc)
    return status if isinstance(status, int) else 0


def report(exc: Exception) -> int:
    """Print an error, its hint and, with PJRT_HUB_DEBUG, its traceback; return the exit status."""
    if os.environ.get("PJRT_HUB_DEBUG"):
        import traceback

        traceback.print_exception(exc)
    match exc:
        case errors.PjrtHubError():
            text = str(exc)
        case OSError():
            name = exc.filename
            where = f"{os.fsdecode(name)}: " if isinstance(name, str | bytes) else ""
            text = (
                f"{where}{exc.strerror or exc}\n\nhint: see that the place is there, has room, and "
                "that you may use it; PJRT_HUB_DEBUG=1 shows the traceback"
            )
        case _:
            text = (
                f"{type(exc).__name__}: {exc}\n\nhint: this is a defect of pjrt-hub; run it again "
                "with PJRT_HUB_DEBUG=1 and report the traceback"
            )
    print(f"error: {text}", file=sys.stderr)
    return status_of(exc)


if __name__ == "__main__":
    main()
