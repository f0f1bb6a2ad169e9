from __future__ import annotations

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from photon.adapters.logs.elsewhere import hurried
from photon.objects.api import Meta, ObjectsFailed
from photon.objects.client import ObstoreBucket, _moment_ns
from photon.objects.ranges import PLACES_BYTES, READ_ON_BYTES, Chunks, ObjectFile, patience
from tests.unit.objects.fakes import MemoryBucket, unavailable

SIZE = 3 * PLACES_BYTES + 10


def file(bucket: MemoryBucket, chunks: Chunks, *, places: bool = True) -> ObjectFile:
    return ObjectFile(chunks, bucket.head("a"), (1, 2), places=places)


@pytest.fixture
def bucket() -> MemoryBucket:
    bucket = MemoryBucket()
    bucket.data["a"] = bytes(range(256)) * (SIZE // 256) + b"0123456789"
    return bucket


def test_a_key_that_no_listing_can_pass_is_an_error_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            entry = (
                "<Contents><Key>logs//a.log</Key><LastModified>2026-11-01T00:00:00.000Z</LastModified><Size>1</Size>"
            )
            body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entry}</Contents></ListBucketResult>".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            for name, value in (("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "y"), ("REGION", "us-east-1")):
                monkeypatch.setenv(f"AWS_{name}", value)
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
            with pytest.raises(ObjectsFailed, match="a key has a part that is empty") as failed:
                list(ObstoreBucket("s3://b").list("logs/", ""))
        finally:
            server.shutdown()
    assert not failed.value.again


@pytest.mark.parametrize("offset", [0, 1, PLACES_BYTES - 1, PLACES_BYTES, SIZE - 3, SIZE, SIZE + 5])
@pytest.mark.parametrize("length", [1, 5, PLACES_BYTES, PLACES_BYTES + 1, SIZE * 2])
def test_any_range(bucket: MemoryBucket, offset: int, length: int) -> None:
    for places in (True, False):
        read = file(bucket, Chunks(bucket), places=places).read(offset, length)
        assert read == bucket.data["a"][offset : offset + length]


def test_a_chunk_is_fetched_once_and_the_next_one_ahead() -> None:
    bucket = MemoryBucket()
    bucket.data["a"] = bytes(2 * READ_ON_BYTES)
    opened = file(bucket, Chunks(bucket), places=False)
    for offset in range(0, 2 * READ_ON_BYTES, 1 << 20):
        assert len(opened.read(offset, 1 << 20)) == 1 << 20
    reads = [f"read a 0 {READ_ON_BYTES}", f"read a {READ_ON_BYTES} {2 * READ_ON_BYTES}"]
    assert [each for each in bucket.asked if each.startswith("read")] == reads


def test_memory_is_bounded(bucket: MemoryBucket) -> None:
    chunks = Chunks(bucket, kept_bytes=PLACES_BYTES)
    opened = file(bucket, chunks)
    for number in (0, 1, 2, 0):
        opened.read(number * PLACES_BYTES, 1)
    assert chunks._bytes == PLACES_BYTES
    assert sum(each.startswith("read") for each in bucket.asked) == 4


def test_who_is_in_a_hurry_comes_back() -> None:
    go, failures = threading.Event(), [unavailable()]

    def fails(request: str) -> OSError | None:
        if not request.startswith("read"):
            return None
        go.wait(10)
        return failures.pop() if failures else None

    bucket = MemoryBucket(fails)
    bucket.data["a"] = b"12345"
    opened = file(bucket, Chunks(bucket))
    with hurried(), pytest.raises(BlockingIOError):
        opened.read(0, 5)
    go.set()
    with pytest.raises(OSError, match="503"):  # its outcome is told, once
        opened.read(0, 5)
    assert opened.read(0, 5) == b"12345"


def test_other_bytes_under_the_name_are_not_read(bucket: MemoryBucket) -> None:
    opened = file(bucket, Chunks(bucket))
    assert isinstance(opened.meta, Meta)
    bucket.data["a"] += b"more"
    with pytest.raises(OSError, match="has changed since it was listed"):
        opened.read(0, 5)


def test_a_read_that_is_larger_than_what_is_kept_comes_to_its_end(bucket: MemoryBucket) -> None:
    """By the reader that returns for it, while another one reads as much."""
    chunks = Chunks(bucket, kept_bytes=PLACES_BYTES)
    both = [file(bucket, chunks) for _ in range(2)]
    found: dict[int, bytes] = {}
    until = time.monotonic() + 60
    while len(found) < 2 and time.monotonic() < until:
        for number, opened in enumerate(both):
            with hurried(), contextlib.suppress(BlockingIOError):
                patience.until = 0.0
                found[number] = found.get(number) or opened.read(0, SIZE)
            time.sleep(0.001)
    assert found == {0: bucket.data["a"], 1: bucket.data["a"]}
    assert not any(opened._held for opened in both)


def test_other_bytes_of_the_same_second_have_another_time() -> None:
    times = {_moment_ns(1_700_000_000, etag) for etag in ("", '"a"', '"b"')}
    assert len(times) == 3
    assert {each // 10**9 for each in times} == {1_700_000_000}
