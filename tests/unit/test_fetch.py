"""Downloads from a misbehaving server; tests/faults/test_http.py has a table of such faults."""

import hashlib
import os
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate

import fetching
import httpx
import pytest
from fetching import FILE, PIN, WHEEL, assert_empty, assert_whole, env, get, leave_partial
from loopback import Answer, Loopback, partial

from pjrt_hub.base.listing import size_text
from pjrt_hub.errors import DigestMismatchError, DownloadError, OfflineError, StoreError
from pjrt_hub.finding.store.transfer import flight
from pjrt_hub.finding.store.transfer.credentials import redact
from pjrt_hub.finding.store.transfer.fetch import obtain
from pjrt_hub.finding.store.transfer.transport import Patience, forbidden

pytestmark = pytest.mark.filterwarnings("ignore:This process .*fork:DeprecationWarning")
HALF = len(WHEEL) // 2
TAGGED = {"ETag": '"one"'}


def test_a_miss_is_fetched_and_published(server, cache, slept):
    steps = fetching.Steps()
    entry = get(server, cache, slept, progress=steps)
    assert entry.artifact == PIN
    assert (steps.starts, steps.nbytes, steps.finished) == ([(len(WHEEL), 0)], len(WHEEL), 1)
    (request,) = server.asked(FILE)
    assert request.headers["accept-encoding"] == "identity"
    assert slept == []
    assert list((cache.root / "v1/partial").iterdir()) == []


def test_a_body_that_is_cut_is_resumed(server, cache, slept):
    chunk = f"{len(WHEEL):x}\r\n".encode() + WHEEL[:HALF]
    cut = Answer(chunk, headers={"Transfer-Encoding": "chunked", **TAGGED}, bare=True)
    server.script(FILE, cut, server.routes[FILE])
    get(server, cache, slept)
    assert len(slept) == 1
    _, again = server.asked(FILE)
    assert 0 < again.start <= HALF
    assert again.headers["if-range"] == '"one"'


NO_RANGE, HONEST_416 = Answer(WHEEL[HALF:], "206 Partial"), Answer(b"", "416 Not Satisfiable")


@pytest.mark.parametrize("wrong", [[], [NO_RANGE], [HONEST_416]], ids=["whole", "no range", "416"])
def test_a_wrong_answer_to_a_range_starts_over(server, cache, slept, wrong):
    server.script(FILE, Answer(WHEEL[:HALF], bare=True), *wrong, Answer(WHEEL))
    steps = fetching.Steps()
    get(server, cache, slept, progress=steps)
    assert ["range" in each.headers for each in server.asked(FILE)[2:]] == [False] * len(wrong)
    assert (steps.starts[-1], steps.nbytes) == ((len(WHEEL), 0), len(WHEEL))


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        (Answer(b"<html>", headers={"Content-Type": "text/html"}), "perhaps of a proxy or a login"),
        (Answer(WHEEL, headers={"Content-Length": "9999999"}), f"pin says {len(WHEEL):,} bytes"),
        (Answer(WHEEL + b"!", bare=True), f"it sends more than the pinned {len(WHEEL):,} bytes"),
        (Answer(b"", "404 Not Found"), "the server answered 404 Not Found"),
    ],
    ids=["page", "length", "more", "404"],
)
def test_a_lie_is_refused_at_once(server, cache, slept, lie, told):
    server.script(FILE, lie)
    steps = fetching.Phases()
    with pytest.raises(DownloadError) as caught:
        get(server, cache, slept, progress=steps)
    # The download only begins if the body has no length.
    begun = ["fetching"] if lie.bare else []
    assert (steps.phases, steps.finished) == (["looking", *begun, "looking"], 1)
    assert told in str(caught.value)
    assert f"no source gave {PIN.file_name} (Toy.Plugin 1.0" in str(caught.value)
    assert "PJRT_HUB_MIRRORS" in caught.value.hint
    assert caught.value.url == server.url(FILE)
    assert slept == []
    assert_empty(cache)
    assert list((cache.root / "v1/partial").iterdir()) == []


def test_wrong_bytes_of_the_right_size_are_asked_for_once_and_dropped(server, cache, slept):
    server.file(FILE, bytes([WHEEL[0] ^ 1]) + WHEEL[1:])
    with pytest.raises(DigestMismatchError):
        get(server, cache, slept)
    assert len(server.asked(FILE)) == 1
    assert_empty(cache)
    assert list((cache.root / "v1/partial").iterdir()) == []


def test_a_page_of_the_right_size_is_told_by_the_digests(cache, tmp_path):
    page = b"<html>Sign in</html>".ljust(len(WHEEL))
    (tmp_path / PIN.file_name).write_bytes(page)
    with pytest.raises(DigestMismatchError) as caught:
        obtain(PIN, cache, env={"PJRT_HUB_MIRRORS": tmp_path.as_uri(), "PIP_NO_INDEX": "1"})
    actual = hashlib.sha256(page).hexdigest()
    assert str(caught.value) == (
        f"Toy.Plugin 1.0, of the plugin 'toy', from {(tmp_path / PIN.file_name).as_uri()} is not "
        f"the pinned file: {len(WHEEL):,} bytes came with sha256 {actual}, the pin of "
        f"{PIN.file_name} says {len(WHEEL):,} bytes with sha256 {PIN.sha256}; nothing was kept\n\n"
        "hint: it is a page, perhaps of a proxy or a login: set PJRT_HUB_MIRRORS to a place that "
        "holds the original, and run `pjrt-hub fetch toy` again"
    )
    assert caught.value.expected == f"sha256:{PIN.sha256}"
    assert caught.value.actual == f"sha256:{actual}"
    assert_empty(cache)


def test_five_tries_without_progress_are_the_end_and_keep_the_partial(server, cache, slept):
    server.script(FILE, Answer(WHEEL[:4000], bare=True), Answer(b"", "503 Busy"))
    with pytest.raises(DownloadError, match=f"5 times in a row, at 4,000 of {len(WHEEL):,}"):
        get(server, cache, slept)
    assert len(server.asked(FILE)) == 5
    assert len(slept) == 4
    assert slept == sorted(slept)
    server.file(FILE, WHEEL)
    server.requests.clear()
    steps = fetching.Steps()
    get(server, cache, slept, progress=steps)
    assert [request.start for request in server.asked(FILE)] == [4000]
    assert steps.starts == [(len(WHEEL), 4000)]


def test_useful_progress_starts_the_count_again(server, cache, slept):
    step = len(WHEEL) // 9

    def piecewise(request):
        body = WHEEL[request.start : request.start + step]
        if not request.start:
            return Answer(body, bare=True)
        return Answer(body, "206 Partial Content", partial(request.start, WHEEL), bare=True)

    server.routes[FILE] = piecewise
    get(server, cache, slept, patience=Patience(sleep=slept, useful_nbytes=step))
    assert len(server.asked(FILE)) == -(-len(WHEEL) // step)


RETRY_AFTER = {
    "7": 7.0,
    "100000": 60.0,
    "-5": None,
    "soon": None,
    "": None,
    formatdate(1_000_000_030, usegmt=True): 30.0,
    formatdate(999_000_000, usegmt=True): 0.0,
}


@pytest.mark.parametrize("text", RETRY_AFTER)
@pytest.mark.parametrize("status", ["429 Slow Down", "503 Busy"])
def test_retry_after_is_honoured_up_to_a_minute(server, cache, slept, text, status):
    server.script(FILE, Answer(b"", status, {"Retry-After": text}), Answer(WHEEL))
    get(server, cache, slept, patience=Patience(sleep=slept, now=lambda: 1_000_000_000.0))
    (waited,) = slept
    if RETRY_AFTER[text] is None:
        assert 0.2 <= waited <= 0.3
    else:
        assert waited == RETRY_AFTER[text]


def test_a_drip_is_a_drop(server, cache, slept):
    ticks = iter(range(0, 10_000, 10))
    server.script(FILE, Answer(WHEEL))
    limits = Patience(sleep=slept, clock=lambda: float(next(ticks)), floor_nbytes=1 << 40, tries=2)
    with pytest.raises(DownloadError, match=r"fewer than .* bytes came in 30 s, 2 times"):
        get(server, cache, slept, patience=limits)


def test_redirects_are_followed_five_times(server, cache, slept):
    server.script(FILE, Answer(b"", "302 Found", {"Location": FILE}))
    with pytest.raises(DownloadError, match="more than 5 redirects"):
        get(server, cache, slept)
    assert len(server.asked(FILE)) == 6
    server.file("/real/" + PIN.file_name, WHEEL)
    server.script(FILE, Answer(b"", "302 Found", {"Location": "/real/" + PIN.file_name}))
    get(server, cache, slept)


def test_plain_http_elsewhere_and_secrets():
    assert forbidden("https://host/simple/") == ""
    assert forbidden("http://[::1]/") == ""
    assert "give its https address" in forbidden("http://host.example/simple")
    assert "ftp://host/x" in forbidden("ftp://u:p@host/x")
    assert redact("https://me:token@h:8/a/b?sig=token#x") == "https://h:8/a/b?***"


@pytest.mark.parametrize("variable", ["", "SSL_CERT_FILE", "PIP_CERT"])
def test_only_a_trusted_server_is_heard(certificate, cache, slept, variable):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Loopback(context) as server:
        server.file(FILE, WHEEL)
        if variable:
            get(server, cache, slept, env=env(server, **{variable: str(certificate)}))
        else:
            with pytest.raises(DownloadError, match=r"certificate is not trusted.*SSL_CERT_FILE"):
                get(server, cache, slept)
            assert server.requests == []
            assert slept == []


def test_certificates_that_cannot_be_read_are_named(server, cache, slept, monkeypatch):
    with pytest.raises(StoreError, match=r"cannot read the certificates /no/such\.pem") as caught:
        get(server, cache, slept, env=env(server, PIP_CERT="/no/such.pem"))
    assert "PIP_CERT" in caught.value.hint

    def missing(**_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(httpx, "create_ssl_context", missing)
    with pytest.raises(StoreError, match="cannot read the certificates of this machine") as caught:
        get(server, cache, slept)
    assert "SSL_CERT_FILE" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "ranges"),
    [
        (bytes(len(WHEEL)), [None]),  # the server is not blamed for it
        (bytes(1000), ["bytes=1000-", None]),
        (WHEEL, []),
    ],
    ids=["wrong", "wrong prefix", "complete"],
)
def test_a_partial_that_was_left_is_continued_or_dropped(server, cache, slept, content, ranges):
    leave_partial(cache, content)
    get(server, cache, slept)
    assert [request.headers.get("range") for request in server.requests] == ranges


def test_offline_asks_nobody(server, cache, slept):
    with pytest.raises(OfflineError, match="the network is forbidden") as caught:
        get(server, cache, slept, offline=True)
    assert "pjrt-hub fetch toy" in caught.value.hint
    with pytest.raises(OfflineError, match="the network is forbidden"):
        get(server, cache, slept, env=env(server, PJRT_HUB_OFFLINE="1"))
    assert server.requests == []
    assert not cache.root.exists()
    get(server, cache, slept)
    assert get(server, cache, slept, offline=True).root == cache.layout.entry_root(PIN)


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "inf"])
def test_a_deadline_that_is_none_is_told(cache, text):
    with pytest.raises(StoreError, match="PJRT_HUB_DOWNLOAD_SECONDS is") as caught:
        obtain(PIN, cache, env={"PJRT_HUB_DOWNLOAD_SECONDS": text})
    assert "unset it" in caught.value.hint


def test_the_deadline_of_the_environment_keeps_the_partial(server, cache, slept):
    head = {"Content-Length": str(len(WHEEL)), **TAGGED}
    server.script(FILE, Answer(WHEEL[:5000], headers=head, stall_seconds=60))
    late = env(server, PJRT_HUB_DOWNLOAD_SECONDS="2.5")
    with pytest.raises(DownloadError, match=r"longer than the 2\.5 s of PJRT_HUB_DOWNLOAD_SECONDS"):
        obtain(PIN, cache, env=late)
    (partial_file,) = cache.root.glob("v1/partial/*/archive")
    assert partial_file.read_bytes() == WHEEL[:5000]


def test_back_off_has_jitter():
    limits = Patience(sleep=(slept := fetching.Slept()))
    for _ in range(50):
        limits.wait(1, None)
    assert len(set(slept)) > 40
    assert 0.2 <= min(slept) < max(slept) <= 0.3


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_an_address_of_the_row_is_tried(server, cache, tmp_path, slept, scheme):
    (tmp_path / "toy.whl").write_bytes(WHEEL)
    url = server.url(FILE) if scheme == "http" else (tmp_path / "toy.whl").as_uri()
    obtain(PIN._replace(urls=(url,)), cache, env={}, patience=Patience(sleep=slept))
    assert_whole(cache)
    assert len(server.requests) == (scheme == "http")


def test_a_pipe_is_no_file(cache, tmp_path):
    os.mkfifo(tmp_path / "toy.whl")
    row = PIN._replace(urls=((tmp_path / "toy.whl").as_uri(),))
    with pytest.raises(DownloadError, match="it is not a file"):
        obtain(row, cache, env={"PIP_NO_INDEX": "1", "PATH": ""})


def test_who_listens_hears_what_is_done(server, cache, slept):
    server.script(FILE, Answer(WHEEL, headers=TAGGED, cut=9000), server.routes[FILE])
    steps = fetching.Phases()
    get(server, cache, slept, progress=steps)
    assert steps.phases == [
        *("looking", "fetching", "waiting", "looking", "fetching"),
        *("checking", "unpacking", "done"),
    ]
    assert (steps.starts, steps.nbytes, steps.finished) == ([(len(WHEEL), 0)], len(WHEEL), 1)


FRESH = ["looking", "fetching", "checking", "unpacking", "done"]


@pytest.mark.parametrize(
    ("phase", "nbytes", "next_phases"),
    [
        ("looking", 0, FRESH),
        ("", 1 << 20, ["checking", *FRESH]),
        ("unpacking", len(WHEEL), ["checking", "unpacking", "done"]),
    ],
    ids=["looking", "fetching", "unpacking"],
)
@pytest.mark.parametrize("kind", ["http", "folder"])
def test_ctrl_c_says_what_is_kept_and_the_next_call_continues_it(
    server, cache, slept, tmp_path, kind, phase, nbytes, next_phases
):
    (tmp_path / PIN.file_name).write_bytes(WHEEL)
    mirror = {"folder": str(tmp_path), "http": server.url("/files")}[kind]
    given = {"env": env(server, PJRT_HUB_MIRRORS=mirror)}
    ending = fetching.Interrupting(phase, nbytes or len(WHEEL))
    with pytest.raises(KeyboardInterrupt) as caught:
        get(server, cache, slept, progress=ending, **given)
    assert nbytes <= ending.nbytes < nbytes + (1 << 20)
    kept = f"{size_text(ending.nbytes)} of 3.15 MB of Toy.Plugin are kept; run it again to continue"
    told = kept if nbytes else "none of the 3.15 MB of Toy.Plugin had come"
    assert caught.value.__notes__ == [f"interrupted: {told}"]
    assert ending.finished == 1
    assert_empty(cache)
    steps = fetching.Phases()
    get(server, cache, slept, progress=steps, **given)
    assert (steps.starts, steps.phases) == ([(len(WHEEL), ending.nbytes)], next_phases)


def test_64_threads_make_one_download(server, cache, slept):
    gate = threading.Barrier(64)

    def ask() -> object:
        gate.wait(60)
        return get(server, cache, slept)

    with ThreadPoolExecutor(64) as pool:
        found = [pool.submit(ask) for _ in range(64)]
    assert {each.result().root for each in found} == {cache.layout.entry_root(PIN)}
    assert len(server.asked(FILE)) == 1


def test_a_failure_is_everybodys(server, cache, slept):
    server.script(FILE, Answer(b"", "404 Not Found"))
    gate = threading.Barrier(8)

    def ask() -> None:
        gate.wait(60)
        with pytest.raises(DownloadError):
            get(server, cache, slept)

    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(ask) for _ in range(8)]
    assert [each.result() for each in found] == [None] * 8


def test_after_ctrl_c_the_next_thread_starts_over():
    begun, go, works = threading.Event(), threading.Event(), []

    def interrupted() -> int:
        begun.set()
        assert go.wait(60)
        raise KeyboardInterrupt

    def work() -> int:
        works.append(1)
        return 7

    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(flight.share, "a", interrupted, patience_seconds=60)
        assert begun.wait(60)
        others = [pool.submit(flight.share, "a", work, patience_seconds=60) for _ in range(4)]
        go.set()
    assert isinstance(first.exception(), KeyboardInterrupt)
    assert [each.result() for each in others] == [7] * 4
    assert works


@pytest.fixture
def hanging():
    """A thread that is inside a shared download of the key "b", and ends after the test."""
    begun, go = threading.Event(), threading.Event()

    def hang() -> int:
        begun.set()
        assert go.wait(60)
        return 1

    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(flight.share, "b", hang, patience_seconds=60)
        assert begun.wait(60)
        yield
        go.set()
    assert told.result() == 1


def test_a_thread_that_hangs_is_waited_for_to_the_deadline(hanging):
    assert flight.share("b", lambda: 2, patience_seconds=0.1) == 2


def test_a_fork_does_not_wait_for_threads_that_it_does_not_have(hanging):
    child = os.fork()
    if child == 0:
        os._exit(flight.share("b", lambda: 5, patience_seconds=60))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5


def test_a_fork_in_a_download_publishes_nothing_for_its_parent(server, cache, slept):
    children: list[int] = []

    class Forking(fetching.Steps):
        def advance(self, n: int) -> None:
            if not children:
                children.append(os.fork())
                if children == [0]:
                    raise SystemExit  # this unwinds through the workspace and the lock

    try:
        entry = get(server, cache, slept, progress=Forking())
    except SystemExit:
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 3
    assert entry.library_path.exists()
    assert list(cache.root.glob("v1/partial/*")) == []


def test_a_key_is_free_after_its_flight():
    def fail() -> int:
        raise DownloadError("no", url="")

    with pytest.raises(DownloadError):
        flight.share("d", fail, patience_seconds=1)
    assert flight.share("d", lambda: 1, patience_seconds=1) == 1
    assert flight.share("d", lambda: 2, patience_seconds=1) == 2
