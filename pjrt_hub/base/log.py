"""Log records of each step and its reason (imports nothing of ours).

Owns the areas that PJRT_HUB_DEBUG names. If nobody can listen, nothing is imported or formatted.
"""

from __future__ import annotations

import sys
from collections.abc import Collection

#: The areas that PJRT_HUB_DEBUG can name, and their loggers.
AREAS = {
    "discovery": "pjrt_hub.discovery",
    "store": "pjrt_hub.store",
    "probe": "pjrt_hub.contact",
    "runtime": "pjrt_hub.runtime",
}
_PRINTER = "PJRT_HUB_DEBUG"


def step(area: str, text: str, *args: object, **fields: object) -> None:
    """Log one step at DEBUG; `area` is a key of `AREAS`; `fields` get the prefix `pjrt_hub_`."""
    if "logging" not in sys.modules:
        return  # No logger can have been set to DEBUG.
    import logging

    extra = {f"pjrt_hub_{name}": value for name, value in fields.items()}
    logging.getLogger(AREAS[area]).debug(text, *args, extra=extra)


def warn(logger: str, text: str, *args: object) -> None:
    """Log a warning, by the logger of that name."""
    import logging

    logging.getLogger(logger).warning(text, *args)


def areas(text: str) -> tuple[str, ...]:
    """Return the areas that PJRT_HUB_DEBUG names: all for any other word, none for "" or "0"."""
    words = [word for word in text.lower().replace(" ", "").split(",") if word not in ("", "0")]
    if all(word in AREAS for word in words):
        return tuple(dict.fromkeys(words))
    return tuple(AREAS)


def show(chosen: Collection[str]) -> None:
    """Print the steps of these areas on stderr from now on, and those of no other area."""
    if not chosen and "logging" not in sys.modules:
        return
    import logging

    for area, name in AREAS.items():
        logger = logging.getLogger(name)
        printer = next((each for each in logger.handlers if each.get_name() == _PRINTER), None)
        if area in chosen and printer is None:
            printer = logging.StreamHandler(_Stderr())
            printer.set_name(_PRINTER)
            printer.setFormatter(logging.Formatter("pjrt-hub: %(message)s"))
            logger.addHandler(printer)
            logger.setLevel(logging.DEBUG)
        elif area not in chosen and printer is not None:
            logger.removeHandler(printer)
            logger.setLevel(logging.NOTSET)


class _Stderr:
    """A stream that writes to the current `sys.stderr`, which may be replaced, or None."""

    def write(self, text: str) -> None:
        if sys.stderr is not None:
            sys.stderr.write(text)

    def flush(self) -> None:
        if sys.stderr is not None:
            sys.stderr.flush()
