"""A small HTTP server on the loopback interface that lets tests decide every byte."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """A received request: the path with its query, and headers with lower-case names."""

    path: str
    headers: dict[str, str]

    @property
    def start(self) -> int:
        """The start of the requested range, or 0 without a range."""
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        return int(found.group(1)) if found else 0


@dataclass(frozen=True)
class Answer:
    """The exact bytes to send, and how to send them."""

    body: bytes = b""  # it is sent unchanged after the head
    status: str = "200 OK"
    #: Headers, to which a Content-Length is added unless they have one or `bare` is set.
    headers: dict[str, str] = field(default_factory=dict)
    bare: bool = False  # no Content-Length: the end of the connection ends the body
    cut: int | None = None  # a reset closes the connection after that many bytes of the body
    stall_seconds: float = 0.0  # the server falls silent before the end of the body
    raw: bytes | None = None  # these bytes are sent instead of the head and the body
    drip_seconds: float = 0.0  # the head is sent byte by byte with such pauses


Handler = Callable[[Request], Answer]


class Loopback:
    """Answers each request with the handler of its path, by https if `tls` is given; a context."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.pace_seconds = 0.0  # the pause after each 64 KiB of a body
        self.routes: dict[str, Handler] = {}
        self.requests: list[Request] = []  # all requests in order
        self.sent = 0  # the number of bytes sent in bodies
        self._mutex = threading.Lock()
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listener.settimeout(0.1)
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join(timeout=10)
        self._listener.close()

    def url(self, path: str = "") -> str:
        """An address on this server."""
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}{path}"

    def asked(self, path: str) -> list[Request]:
        """The requests for one path."""
        return [request for request in self.requests if request.path == path]

    def file(self, path: str, body: bytes, *, etag: str = '"one"') -> None:
        """Serve a file correctly, with support of ranges."""

        def answer(request: Request) -> Answer:
            matches = request.headers.get("if-range", etag) == etag
            if "range" not in request.headers or not matches:
                return Answer(body, headers={"ETag": etag})
            rest = body[request.start :]
            return Answer(rest, "206 Partial Content", partial(request.start, body, etag))

        self.routes[path] = answer

    def script(self, path: str, *answers: Answer | Handler) -> None:
        """Serve one answer after another, and then repeat the last one."""
        left = list(answers)

        def answer(request: Request) -> Answer:
            with self._mutex:
                step = left.pop(0) if len(left) > 1 else left[0]
            return step if isinstance(step, Answer) else step(request)

        self.routes[path] = answer

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            thread = threading.Thread(target=self._answer, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _answer(self, plain: socket.socket) -> None:
        plain.settimeout(10)
        try:
            with plain, self._wrapped(plain) as connection:
                request = _read_request(connection)
                if request is None:
                    return
                with self._mutex:
                    self.requests.append(request)
                handler = self.routes.get(request.path)
                answer = handler(request) if handler else Answer(b"", "404 Not Found")
                self._send(connection, answer)
        except OSError:
            return  # in some tests the client disconnects

    def _wrapped(self, plain: socket.socket) -> socket.socket:
        return self._tls.wrap_socket(plain, server_side=True) if self._tls else plain

    def _send(self, connection: socket.socket, answer: Answer) -> None:
        headers = {"Connection": "close", **answer.headers}
        if not answer.bare and "Content-Length" not in headers:
            headers["Content-Length"] = str(len(answer.body))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {answer.status}\r\n{head}\r\n"
        pieces = [answer.raw if answer.raw is not None else head.encode()]
        if answer.drip_seconds:
            pieces = [bytes([byte]) for byte in pieces[0]]
        for piece in pieces:
            connection.sendall(piece)
            if answer.drip_seconds and self._closing.wait(answer.drip_seconds):
                return
        body = answer.body if answer.cut is None else answer.body[: answer.cut]
        for at in range(0, len(body), 1 << 16):
            chunk = body[at : at + (1 << 16)]
            connection.sendall(chunk)
            with self._mutex:
                self.sent += len(chunk)
            time.sleep(self.pace_seconds)
        self._closing.wait(answer.stall_seconds)
        if answer.cut is not None:
            # A close that discards unsent data sends a reset instead of a normal end.
            time.sleep(0.02)
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


class Socks:
    """A SOCKS proxy that sends the same answers on each connection and then closes it."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connections = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Socks:
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # this wakes the thread
        self._listener.close()

    def url(self, login: str = "") -> str:
        """The proxy's address, with "user:password@" if given."""
        return f"socks5://{login}127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                with connection, suppress(OSError):
                    connection.settimeout(10)
                    for answer in self._answers:
                        connection.recv(4096)
                        connection.sendall(answer)


def partial(start: int, body: bytes, etag: str = '"one"') -> dict[str, str]:
    """The headers of a correct 206 response."""
    return {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}", "ETag": etag}


def _read_request(connection: socket.socket) -> Request | None:
    head = b""
    while b"\r\n\r\n" not in head:
        received = connection.recv(65536)
        if not received:
            return None
        head += received
    first, *lines = head.decode("latin-1").split("\r\n\r\n")[0].split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return Request(first.split()[1], {name.lower(): value.strip() for name, _, value in pairs})
