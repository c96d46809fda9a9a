"""The exit statuses, and which error gives which (docs/cli.md documents them)."""

from __future__ import annotations

from pjrt_hub import errors

#: The work itself failed.
FAILED = 1
#: The command line is wrong; click uses it too.
MISUSED = 2
#: No plugin was chosen: none was found, or several compete.
NOT_CHOSEN = 3
#: Nothing was fetched or kept: a download, stored bytes, the cache, its variables, or a licence.
NOT_FETCHED = 4
#: The chosen plugin is malformed, does not fit, does not load, or crashed.
NOT_USABLE = 5
#: Ctrl-C gives 128 + SIGINT, as in shells.
INTERRUPTED = 130


def status_of(exc: Exception) -> int:
    """Return the exit status of an error."""
    match exc:
        case errors.PluginNotFoundError() | errors.AmbiguousPluginError():
            return NOT_CHOSEN
        case errors.TargetNotFoundError():
            return MISUSED
        case errors.LockFileError():
            return FAILED  # The lock file is checked before anything is fetched.
        case errors.StoreError():
            return NOT_FETCHED
        case errors.PluginError():
            return NOT_USABLE
        case _:
            return FAILED
