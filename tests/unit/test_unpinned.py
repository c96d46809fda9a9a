"""A download without a pin continues only if its server vouches for the file, or starts anew."""

from pathlib import Path

import pytest
from fetching import MEMBERS, WHEEL, Phases, Slept, Steps
from loopback import Answer, Loopback, partial

from pjrt_hub.errors import DownloadError
from pjrt_hub.finding.store.transfer import installers
from pjrt_hub.finding.store.transfer.transport import Patience
from pjrt_hub.finding.store.transfer.unpinned import receive

URL = "/a.whl"
TAGGED = {"ETag": '"one"'}


@pytest.fixture(autouse=True)
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the installers, which would take a second to report that they have no index."""
    monkeypatch.setattr(installers, "read_sources", installers.read_mirror_sources)


def get(server: Loopback, folder: Path, **more: object) -> bytes:
    limits = Patience(sleep=Slept(), read_seconds=5)
    path = receive(server.url(URL), folder, **{"env": {}, "patience": limits, **more})
    return path.read_bytes()


def test_what_comes_is_shown_and_continued(server: Loopback, tmp_path: Path) -> None:
    rest = Answer(WHEEL[4000:], "206 Partial Content", partial(4000, WHEEL))
    server.script(URL, Answer(WHEEL, headers=TAGGED, cut=4000), rest)
    steps = Steps()
    assert get(server, tmp_path, progress=steps) == WHEEL
    assert [request.start for request in server.requests] == [0, 4000]
    assert server.requests[1].headers["if-range"] == '"one"'
    assert steps.starts == [(len(WHEEL), 0)]
    assert (steps.nbytes, steps.finished) == (len(WHEEL), 0)  # the caller finishes it


def test_without_a_validator_it_begins_anew(server: Loopback, tmp_path: Path) -> None:
    """Without one, two versions of the file could not be told apart."""
    server.script(URL, Answer(WHEEL, cut=4000), Answer(WHEEL))
    assert get(server, tmp_path) == WHEEL
    assert [request.start for request in server.requests] == [0, 0]


def test_a_file_that_changed_meanwhile_is_another_one(server: Loopback, tmp_path: Path) -> None:
    old = b"x" * 9000
    server.script(URL, Answer(old, headers=TAGGED, cut=4000), Answer(WHEEL, headers=TAGGED))
    steps = Steps()
    assert get(server, tmp_path, progress=steps) == WHEEL
    assert steps.starts[-1] == (len(WHEEL), 0)


def test_a_file_of_unknown_length(server: Loopback, tmp_path: Path) -> None:
    """A progress object without phases is not told about an unknown length."""
    chunks = f"{len(WHEEL):x}\r\n".encode() + WHEEL + b"\r\n0\r\n\r\n"
    head = {"Transfer-Encoding": "chunked", **TAGGED}
    begun, all_ = (Answer(body, headers=head, bare=True) for body in (chunks[:5000], chunks))
    server.script(URL, begun, all_)
    steps = Phases()
    assert get(server, tmp_path, progress=steps) == WHEEL
    assert [request.start for request in server.requests] == [0, 0]
    assert steps.starts[0] == (None, 0)
    assert steps.starts[-1] == (len(WHEEL), len(WHEEL))
    assert steps.phases == ["looking", "fetching", "waiting", "looking", "fetching"]
    deaf = Steps()
    assert get(server, tmp_path, progress=deaf) == WHEEL
    assert deaf.starts == [(len(WHEEL), len(WHEEL))]


def test_a_file_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"".join(MEMBERS.values()))
    folder = tmp_path / "private"
    folder.mkdir()
    path = receive((tmp_path / "here").as_uri(), folder, env={})
    assert path.read_bytes() == (tmp_path / "here").read_bytes()
    with pytest.raises(DownloadError, match="it is not a file"):
        receive(tmp_path.as_uri(), folder, env={})


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(b"<html>log in</html>"), "a page and no archive"),
        (Answer(b"x", headers={"Content-Length": str(9 << 30)}), "9,663,676,416 bytes"),
    ],
)
def test_a_page_and_more_than_anybody_wants_are_refused(server, tmp_path, answer, why) -> None:
    server.script(URL, answer)
    with pytest.raises(DownloadError, match=why):
        get(server, tmp_path)
