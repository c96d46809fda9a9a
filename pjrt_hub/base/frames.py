"""Tracebacks without our own frames below a public function, unless PJRT_HUB_DEBUG is set.

Also finds the frame of the user that called us.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FrameType, TracebackType
from typing import ParamSpec, TypeVar

from pjrt_hub.errors import PjrtHubError

P = ParamSpec("P")
R = TypeVar("R")

#: Whether tracebacks keep all frames, which PJRT_HUB_DEBUG asks for.
shown = False


def hide_below(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function to cut our frames off tracebacks of mistakes that an error message explains.

    Other exceptions are defects, and keep all frames.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (PjrtHubError, ImportError, TypeError, ValueError) as exc:
            if not shown:
                exc.__traceback__ = _outside(exc.__traceback__)
            raise

    return call


def _outside(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this package; those of users' callbacks stay."""
    if traceback is None:
        return None
    rest = _outside(traceback.tb_next)
    frame = traceback.tb_frame
    if _is_ours(frame):
        return rest
    return TracebackType(rest, frame, traceback.tb_lasti, traceback.tb_lineno)


def outside(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame outside of this package that leads to `frame`, or None."""
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "pjrt_hub"
