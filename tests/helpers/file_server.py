"""A web server of files on loopback, which can be told to misbehave."""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from helpers.certificates import CertificateFiles

# Answers a request for a file. It gets what sends the answer, and the content of the file.
Behaviour = Callable[["Handler", bytes], None]


class FileServer(ThreadingHTTPServer):
    """Serves `files`, by their paths without a slash in front, in a `with` statement. It answers requests for ranges.

    Attributes:
        behaviours: how requests for a path are answered instead: one behaviour for each request, the last one for ever.
    """

    daemon_threads = True

    def __init__(
        self,
        files: Mapping[str, bytes] | None = None,
        certificate: CertificateFiles | None = None,
        handler: type[Handler] | None = None,
    ) -> None:
        super().__init__(("127.0.0.1", 0), handler or Handler)
        self.scheme = "http" if certificate is None else "https"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.cert, certificate.key)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.files = dict(files or {})
        self.behaviours: dict[str, list[Behaviour]] = {}
        self.asked: list[str] = []  # the paths of all requests, in their order
        self.headers: list[Mapping[str, str]] = []  # the headers of all requests
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def put(self, folder: Path, place: str) -> None:
        """Serve all files of `folder` below the path `place`."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.files[f"{place}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()

    def behave(self, path: str, *behaviours: Behaviour) -> None:
        self.behaviours[path] = list(behaviours)

    def times(self, path: str) -> int:
        """How often a file was asked for."""
        return self.asked.count(path)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that close their connection."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: FileServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].lstrip("/")
        self.server.asked.append(path)
        self.server.headers.append(dict(self.headers))
        behaviours = self.server.behaviours.get(path, [])
        behaviour = (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0]) if behaviours else whole
        if path in self.server.files or behaviours:
            behaviour(self, self.server.files.get(path, b""))
        else:
            self.answer(404, b"")

    def answer(self, status: int, content: bytes, length: int | None = None, **headers: str) -> None:
        """Send an answer. Its header names `length`, or none if that is negative."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if length is None or length >= 0:
            self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


def whole(handler: Handler, content: bytes, **headers: str) -> None:
    """The file, or the range of it that is asked for."""
    asked = re.fullmatch("bytes=([0-9]+)-", handler.headers.get("Range", ""))
    if asked is None:
        handler.answer(200, content, None, **headers)
    elif (start := int(asked[1])) >= len(content):
        handler.answer(416, b"")
    else:
        headers["Content_Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        handler.answer(206, content[start:], None, **headers)


def without_ranges(handler: Handler, content: bytes) -> None:
    handler.answer(200, content)


def status(code: int) -> Behaviour:
    return lambda handler, content: handler.answer(code, b"an error")


def cut(size: int) -> Behaviour:
    """The answer promises the whole file, and ends after `size` bytes."""
    return lambda handler, content: handler.answer(200, content[:size], len(content))


def other(content: bytes) -> Behaviour:
    return lambda handler, _: handler.answer(200, content)


def redirect(target: str) -> Behaviour:
    return lambda handler, content: handler.answer(302, b"moved", Location=target)


def endless(handler: Handler, content: bytes) -> None:
    handler.answer(200, b"", -1)
    while not handler.server.stopping.is_set():
        handler.wfile.write(bytes(4096))


def dripping(after: int, pause: float) -> Behaviour:
    """Send `after` bytes at once, and then one byte at a time."""

    def drip(handler: Handler, content: bytes) -> None:
        handler.answer(200, content[:after], len(content))
        for byte in content[after:]:
            if handler.server.stopping.wait(pause):
                return
            handler.wfile.write(bytes([byte]))

    return drip


def endless_header(handler: Handler, content: bytes) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nX-Header: ")
    while not handler.server.stopping.wait(0.01):
        handler.wfile.write(b"x")


def silent(handler: Handler, content: bytes) -> None:
    handler.server.stopping.wait(60)


def wait_until(condition: Callable[[], object], patience: float = 30) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
