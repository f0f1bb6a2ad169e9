"""A real S3 server, VersityGW over a directory, and a proxy before it that breaks things.

The server is one Go program, built from its module by ``make test-objects``; it checks signatures, conditions and
ranges as S3 does, and lists from the directory's real state.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import re
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from photon.objects.client import ObstoreBucket
from photon.supervision.ports import free_ports

PROGRAM = Path(__file__).parents[2] / "build" / "objects" / "versitygw"
KEY, SECRET, REGION = "photon", "photon-secret", "us-east-1"
START_S = 30.0


def environment(port: int) -> dict[str, str]:
    """What every client of it needs, Photon's processes too."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }


@contextlib.contextmanager
def running(directory: Path) -> Iterator[int]:
    """The port of a server whose buckets are the folders of a directory."""
    (port,) = free_ports(1)
    given = ["--access", KEY, "--secret", SECRET, "--region", REGION, "--port", f"127.0.0.1:{port}", "--quiet"]
    with (directory.parent / "server.log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, *given, "posix", directory], stdout=log, stderr=log)
        try:
            until = time.monotonic() + START_S
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                    break
                said = (directory.parent / "server.log").read_text()
                assert process.poll() is None, said
                assert time.monotonic() < until, said
                time.sleep(0.05)
            yield port
        finally:
            process.kill()
            process.wait()


class Faults:
    """What the proxy does to requests; each share is from 0 to 1."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.refused = 0.0  # 503
        self.unwritable = ""  # 503 for what is written to keys that end so
        self.cut = 0.0  # the connection is reset in the middle of the answer
        self.forgets = 0  # number of uploads that are unknown once their parts are there
        self.unsorted = False  # listings show their keys in any order
        self.slow_s = 0.0  # before a listing's answer
        self.late: dict[str, float] = {}  # key -> listings do not show it before this moment (monotonic)
        self.seen: Counter[str] = Counter()  # requests by what was done to them
        self._lock = threading.Lock()

    def draw(self) -> str:
        with self._lock:
            at = self.random.random()
            what = "refused" if at < self.refused else "cut" if at < self.refused + self.cut else "passed"
            self.seen[what] += 1
            return what

    def listing(self, body: bytes) -> bytes:
        """A page as the client is to see it."""
        parts = re.split(rb"(<Contents>.*?</Contents>)", body)
        shown = []
        for each in parts[1::2]:
            key = re.search(rb"<Key>(.*?)</Key>", each)
            assert key is not None
            if self.late.get(key[1].decode(), 0.0) <= time.monotonic():
                shown.append(each)
        if self.unsorted:
            with self._lock:
                self.random.shuffle(shown)
        return parts[0] + b"".join(shown) + b"".join(parts[2::2])


@contextlib.contextmanager
def proxy(port: int, faults: Faults) -> Iterator[int]:
    """The port of a proxy before the server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            what = faults.draw()
            writes = self.command in ("PUT", "POST") and faults.unwritable
            if what == "refused" or (writes and urlsplit(self.path).path.endswith(faults.unwritable)):
                self._answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
                return
            if faults.forgets and self.command == "POST" and "uploadId=" in self.path:
                faults.forgets -= 1
                self._answer(404, {}, b"<Error><Code>NoSuchUpload</Code></Error>")
                return
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                upstream.request(self.command, self.path, body, dict(self.headers.items()))
                answer = upstream.getresponse()
                data = answer.read()
            finally:
                upstream.close()
            if "list-type=2" in self.path:
                time.sleep(faults.slow_s)
                data = faults.listing(data)
            headers = {k: v for k, v in answer.getheaders() if k.lower() not in ("content-length", "connection")}
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self._answer(answer.status, headers, data, cut=what == "cut", length=length)

        def _answer(
            self, status: int, headers: dict[str, str], data: bytes, *, cut: bool = False, length: str | None = None
        ) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", length or str(len(data)))
            self.end_headers()
            if not cut:
                self.wfile.write(data)
                return
            with contextlib.suppress(OSError):
                self.wfile.write(data[: len(data) // 2])
                self.wfile.flush()
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            self.close_connection = True

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            return None

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            return None  # clients are killed, and connections cut

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Site:
    """A bucket of its own for one test, reached past the proxy by who fills it."""

    def __init__(self, name: str, port: int, faults: Faults) -> None:
        self.url = f"s3://{name}"
        self.faults = faults
        with _environment(environment(port)):
            self._bucket = ObstoreBucket(self.url)

    def put(self, key: str, data: bytes) -> None:
        """Writes an object."""
        self._bucket.write(key, [data])

    def get(self, key: str) -> bytes:
        """All of an object."""
        meta = self._bucket.head(key)
        return self._bucket.read(meta, 0, meta.size) if meta.size else b""

    def keys(self, prefix: str) -> list[str]:
        """What is there."""
        return [meta.key for page in self._bucket.list(prefix, "") for meta in page]


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
