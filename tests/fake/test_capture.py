"""What a plugin writes to stderr, as records of `pjrt_hub.native`, where that is asked for."""

from __future__ import annotations

import logging

from stubbed import path

import pjrt_hub
from pjrt_hub.base import native_log

NOISE = r'ON_INITIALIZE=dprintf(2, "W0000 00:00:1.1 7 stub.cc:12] it is old\nplain\n")'


def load_and_hear(captures):
    native_log._PATIENCE = 60
    heard = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append((record.levelname, record.getMessage()))
    logger = logging.getLogger("pjrt_hub.native")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    pjrt_hub.load(path).client().close()
    if captures:
        pjrt_hub.capture_native_logs().close()
    print(heard)


def test_the_variable_turns_words_into_records(stub, run) -> None:
    ended = run(stub(NOISE), load_and_hear, True, env={"PJRT_HUB_CAPTURE": "1"})
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "[('WARNING', 'it is old'), ('INFO', 'plain')]"
    assert "it is old" in ended.stderr  # the former stderr has it, too


def test_without_it_nothing_is_captured(stub, run) -> None:
    ended = run(stub(NOISE), load_and_hear, False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "[]")
    assert "it is old" in ended.stderr
