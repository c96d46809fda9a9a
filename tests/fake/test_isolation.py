"""Isolated compilations on plugins that cannot hand over what they compiled."""

from __future__ import annotations

import logging

from stubbed import ONE_TO_FOUR, func, path, raises, with_stub

import pjrt_hub
from pjrt_hub import errors


def hear():
    """What is logged of isolated compilations from now on."""
    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger("pjrt_hub.isolation").addHandler(handler)
    return told


def connect():
    return pjrt_hub.load(path, offline=True).client()


@with_stub()
def test_what_cannot_be_serialized_is_compiled_again_here():
    told, client = hear(), connect()
    exe = client.compile(func("add"), isolated=True)
    a = client.buffer_from_host(ONE_TO_FOUR)
    assert exe(a, a).to_numpy().tolist() == [2, 4, 6, 8]
    assert len(told) == 1, told
    assert "lacks PJRT_Executable_Serialize" in told[0], told


@with_stub(env={"PJRT_HUB_ISOLATE_SECONDS": "soon"})
def test_a_deadline_that_is_no_number():
    error = raises(errors.PjrtHubError, connect().compile, func("add"), isolated=True)
    assert "PJRT_HUB_ISOLATE_SECONDS is 'soon', which is not a number" in error.message
