"""Default compile flags: a plugin's own, beside those of a user's options.

Owns what happens where a build of the plugin has no such flag; must not know any flag, nor which
one gives way to which: manifests say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from pjrt_hub.base.frozen import replace
from pjrt_hub.errors import PjrtError
from pjrt_hub.running.program.compile_options import CompileOptions
from pjrt_hub.running.program.option import Flag

Executable = TypeVar("Executable")


class CompileFlags:
    """The flags that one plugin's compilations get where their options say nothing of them.

    XLA drops and renames its flags between versions, and no table of a plugin says which ones it
    has: what was refused once is not tried again.

    Args:
        choose: takes the flags of a user's options and a program, gives those to add to them.
    """

    def __init__(self, choose: Callable[[Mapping[str, Flag], bytes], Mapping[str, Flag]]) -> None:
        self._choose = choose
        self._refused: set[str] = set()

    def beside(self, given: Mapping[str, Flag], code: bytes = b"") -> dict[str, Flag]:
        """Those to add to the flags `given`, for a program."""
        chosen = self._choose(given, code).items()
        taken = self._refused | given.keys()
        return {name: value for name, value in chosen if name not in taken}

    def over(self, options: CompileOptions, code: bytes) -> CompileOptions:
        """Gives `options` with those to add to them, for a program."""
        added = self.beside(options.flags, code)
        return replace(options, flags={**added, **options.flags}) if added else options

    def compiled(
        self,
        options: CompileOptions,
        code: bytes,
        compile_: Callable[[CompileOptions], Executable],
    ) -> tuple[Executable, CompileOptions]:
        """Compiles with the default flags, less those that the plugin refuses.

        A flag that the user gave is never left out.

        Args:
            options: the user's.
            code: the program.
            compile_: compiles with the options that it gets.

        Returns:
            The executable, and the options that it was compiled with.

        Raises:
            PjrtError: the plugin cannot compile it.
        """
        while True:
            sent = self.over(options, code)
            try:
                return compile_(sent), sent
            except PjrtError as exc:
                from pjrt_hub.running.program import compile_error

                refused = compile_error.refused_flag(exc)
                if refused not in sent.flags or refused in options.flags:
                    raise
                self._refused.add(refused)
                _log(f"compiling without the default flag {refused}: {exc.message}")


def _log(text: str) -> None:
    import logging

    logging.getLogger("pjrt_hub.compile_flags").warning(text)
