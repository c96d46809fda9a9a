"""Tracebacks of users' mistakes only show users' frames, while those of bugs show all."""

import sys
import traceback

import pytest

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.base import frames


def names(caught):
    return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_a_mistake_shows_no_frame_of_ours(monkeypatch):
    monkeypatch.setattr(frames, "shown", False)
    with pytest.raises(errors.PluginNotFoundError) as caught:
        pjrt_hub.client("nosuch", offline=True)
    assert names(caught)[1:] == []
    assert "nosuch" in caught.value.message


def test_who_debugs_sees_all(monkeypatch):
    monkeypatch.setenv("PJRT_HUB_DEBUG", "store")
    with pytest.raises(errors.PluginNotFoundError) as caught:
        pjrt_hub.client("nosuch", offline=True)
    assert len(names(caught)) > 5


@pytest.mark.parametrize(("kind", "count"), [(ValueError, 2), (KeyError, 4)])
def test_frames_of_a_users_callback_stay(monkeypatch, kind, count):
    monkeypatch.setattr(frames, "shown", False)

    def fail():
        raise kind("mine")

    space = {"__name__": "pjrt_hub.somewhere"}
    exec("def ours(callback): callback()", space)
    public = frames.hide_below(space["ours"])
    with pytest.raises(kind) as caught:
        public(fail)
    # A ValueError has the frames of the test and the callback; a KeyError, a bug, also has ours.
    assert len(names(caught)) == count
    assert names(caught)[-1] == "fail"


def test_the_users_frame_is_the_innermost_that_is_not_ours():
    space = {"__name__": "pjrt_hub.somewhere", "frames": frames, "sys": sys}
    exec("def ours(): return frames.outside(sys._getframe())", space)
    assert (
        space["ours"]().f_code.co_name == "test_the_users_frame_is_the_innermost_that_is_not_ours"
    )
    assert frames.outside(None) is None
