"""The small HTTP server: answers, refuses, and is bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from photon.config.tls import CannotListen
from photon.status import http
from photon.status.http import Answer, HttpServer


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    server = HttpServer(lambda path: Answer(b"yes", "text/plain") if path == "/a" else None)
    await server.start("127.0.0.1:0")
    yield server
    await server.stop()


async def _said(server: HttpServer, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        await _closed(writer)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        (b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", b"200", b"yes"),
        (b"GET /a?b=c HTTP/1.0\r\n\r\n", b"200", b"yes"),
        (b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n", b"200", b""),
        (b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n", b"404", None),
        (b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", b"405", b""),
        (b"GET /a HTTP/1.1\r\n\r\n", b"400", b""),
        (b"nonsense\r\n\r\n", b"400", b""),
        (b"GET /%ff\xff HTTP/1.1\r\nHost: x\r\n\r\n", b"400", b""),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nA: " + b"a" * (http.HEADERS_BYTES_MAX + 1), b"431", b""),
        (b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n" + b"x" * 99999, b"413", b""),
    ],
)
async def test_answers(server: HttpServer, request_: bytes, status: bytes, body: bytes | None) -> None:
    head, _, rest = (await _said(server, request_)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status), head
    if body is not None:
        assert rest == body


async def test_several_requests_on_one_connection(server: HttpServer) -> None:
    assert (await _said(server, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n" * 3)).count(b"200 ") == 3


async def test_an_answer_forbids_keeping_and_guessing(server: HttpServer) -> None:
    said = await _said(server, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"Cache-Control: no-store" in said
    assert b"X-Content-Type-Options: nosniff" in said


HALF, ASKED = b"GET /a HTTP/1.1\r\nHo", b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_slow_clients_give_way_to_those_that_ask(server: HttpServer) -> None:
    held = []
    for _ in range(2 * http.CONNECTIONS_MAX):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HALF)
        held.append((reader, writer))
        assert b"200 " in await _said(server, ASKED)
    assert len(server._open) <= http.CONNECTIONS_MAX
    async with asyncio.timeout(http.REQUEST_S / 2):
        with contextlib.suppress(OSError):  # it has been reset
            assert await held[0][0].read() == b""
    held[-1][1].write(b"st: x\r\n\r\n")  # the newest are served as ever
    assert b"200" in await held[-1][0].readline()
    for _, writer in held:
        await _closed(writer)


async def test_clients_that_do_not_take_their_answers_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 4)
    server = HttpServer(lambda path: Answer(b"yes" * (8 << 20), "text/plain"))
    await server.start("127.0.0.1:0")
    held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(4)]
    for reader, writer in held:
        writer.write(ASKED)
        assert b"200" in await reader.readline()
    assert b"yes" in await _said(server, ASKED)
    monkeypatch.setattr(http, "REQUEST_S", 0.05)
    await server.stop()
    assert not server._open
    for _, writer in held:
        await _closed(writer)


async def test_clients_that_never_take_their_answer_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.05)
    server = HttpServer(lambda path: Answer(b"yes" * (8 << 20), "text/plain"))
    await server.start("127.0.0.1:0")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(ASKED)
    assert b"200" in await reader.readline()
    async with asyncio.timeout(20):
        await asyncio.gather(*server._open)
    await _closed(writer)
    await server.stop()


async def test_those_being_answered_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)
    asked, answered = asyncio.Semaphore(0), asyncio.Event()

    async def thinks(query: str) -> Answer:
        asked.release()
        await answered.wait()
        return Answer(b"yes", "text/plain")

    server = HttpServer(lambda path: None, {"/a": thinks})
    await server.start("127.0.0.1:0")
    held = [asyncio.create_task(_said(server, ASKED)) for _ in range(2)]
    async with asyncio.timeout(20):
        await asked.acquire()
        await asked.acquire()
    with contextlib.suppress(OSError):  # closed in order, or reset
        assert await _said(server, ASKED) == b""
    answered.set()
    assert all(b"200 " in said for said in await asyncio.gather(*held))
    await server.stop()


async def test_an_answer_that_fails_is_said() -> None:
    server = HttpServer(lambda path: Answer(bytes([1 // (path != "/a")]), "text/plain"))
    await server.start("127.0.0.1:0")
    with capture_logs() as lines:
        said = await _said(server, ASKED + ASKED)
    assert said.count(b"HTTP/1.1 500 ") == 2
    assert [line["log_level"] for line in lines] == ["error"] * 2
    await server.stop()


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("", True),
        ("127.0.0.1:8080", True),
        ("10.1.2.3", True),
        ("[::1]:8080", True),
        ("[fe80::1]", True),
        ("localhost:8080", True),
        ("status-east", True),
        ("status-east:8081", True),
        ("photon-status.default.svc:8080", True),
        ("photon-status.default.svc.cluster.local", True),
        ("host.example.com:8080", True),
        ("HOST.example.com.", True),
        ("evil.example", False),
        ("evil.example:8080", False),
        ("127.0.0.1.evil.example", False),
        ("x.host.example.com", False),
        ("evil.local.example", False),
        ("[evil.example]", False),
        ("::1", False),
        ("a@b:1", True),
        ("evil.example, x", False),
    ],
)
async def test_other_hosts_are_refused(host: str, ours: bool) -> None:
    server = HttpServer(lambda path: Answer(b"yes", "text/plain"), names=["host.example.com"])
    await server.start("127.0.0.1:0")
    said = await _said(server, b"GET /a HTTP/1.1\r\nHost: %b\r\n\r\n" % host.encode())
    assert said.startswith(b"HTTP/1.1 200" if ours else b"HTTP/1.1 421"), said
    await server.stop()


async def test_who_says_nothing_is_closed(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    await _closed(writer)


async def test_a_port_in_use_is_said(server: HttpServer) -> None:
    second = HttpServer(lambda path: None)
    for address in (f"127.0.0.1:{server.port}", "127.0.0.1:x", "127.0.0.1:99999"):
        with pytest.raises(CannotListen):
            await second.start(address)
