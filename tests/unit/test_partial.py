"""What a download tells of itself, what Ctrl-C leaves of it, and how the next one goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from fetching import (
    FILE,
    PIN,
    WHEEL,
    Interrupting,
    Phases,
    Slept,
    assert_empty,
    assert_whole,
    env,
    get,
)
from loopback import Answer, Loopback

from pjrt_hub.base.listing import size_text
from pjrt_hub.errors import DownloadError
from pjrt_hub.finding.store.cache.cache import Cache


def test_who_listens_hears_what_is_done(server: Loopback, cache: Cache, slept: Slept) -> None:
    server.file(FILE, WHEEL)
    honest = server.routes[FILE]
    server.script(FILE, Answer(WHEEL, headers={"ETag": '"one"'}, cut=9000), honest)
    steps = Phases()
    get(server, cache, slept, progress=steps)
    assert steps.phases == [
        *("looking", "fetching", "waiting", "looking", "fetching"),
        *("checking", "unpacking", "done"),
    ]
    assert (steps.starts, steps.nbytes, steps.finished) == ([(len(WHEEL), 0)], len(WHEEL), 1)


def test_what_fails_is_not_done(server: Loopback, cache: Cache, slept: Slept) -> None:
    server.script(FILE, Answer(b"", "404 Not Found"))
    steps = Phases()
    with pytest.raises(DownloadError):
        get(server, cache, slept, progress=steps)
    assert (steps.phases, steps.finished) == (["looking", "looking"], 1)


FRESH = ["looking", "fetching", "checking", "unpacking", "done"]


@pytest.mark.parametrize(
    ("phase", "nbytes", "next_phases"),
    [
        ("looking", 0, FRESH),
        ("", 1 << 20, ["checking", *FRESH]),
        ("unpacking", len(WHEEL), ["checking", *FRESH[-2:]]),
    ],
    ids=["looking", "fetching", "unpacking"],
)
@pytest.mark.parametrize("kind", ["http", "folder"])
def test_ctrl_c_says_what_is_kept_and_the_next_call_continues_it(
    server: Loopback,
    cache: Cache,
    slept: Slept,
    tmp_path: Path,
    kind: str,
    phase: str,
    nbytes: int,
    next_phases: list[str],
) -> None:
    server.file(FILE, WHEEL)
    folder = tmp_path / "mirror"
    folder.mkdir()
    (folder / PIN.file_name).write_bytes(WHEEL)
    mirror = {"folder": str(folder), "http": server.url("/files")}[kind]
    given = {"env": env(server, PJRT_HUB_MIRRORS=mirror)}
    ending = Interrupting(phase, nbytes or len(WHEEL))
    with pytest.raises(KeyboardInterrupt) as caught:
        get(server, cache, slept, progress=ending, **given)
    assert nbytes <= ending.nbytes < nbytes + (1 << 20)
    kept = f"{size_text(ending.nbytes)} of 3.15 MB of Toy.Plugin are kept; run it again to continue"
    none = "none of the 3.15 MB of Toy.Plugin had come"
    assert caught.value.__notes__ == [f"interrupted: {kept if nbytes else none}"]
    assert ending.finished == 1
    assert_empty(cache)
    steps = Phases()
    get(server, cache, slept, progress=steps, **given)
    assert (steps.starts, steps.phases) == ([(len(WHEEL), ending.nbytes)], next_phases)
    assert_whole(cache)


def test_the_rest_of_another_file_is_begun_anew(
    server: Loopback, cache: Cache, slept: Slept, tmp_path: Path
) -> None:
    """What one place gave before a Ctrl-C was wrong: with the rest of the right file it is both."""
    server.file(FILE, bytes(len(WHEEL)))
    with pytest.raises(KeyboardInterrupt):
        get(server, cache, slept, progress=Interrupting(nbytes=1 << 20))
    (tmp_path / PIN.file_name).write_bytes(WHEEL)
    steps = Phases()
    get(server, cache, slept, progress=steps, env=env(server, PJRT_HUB_MIRRORS=str(tmp_path)))
    assert steps.starts[0][1] >= 1 << 20
    assert steps.starts[-1] == (len(WHEEL), 0)
    assert_whole(cache)
