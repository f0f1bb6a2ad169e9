"""The small HTTP server: answers, refuses, and is bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

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


async def test_connections_beyond_the_bound_are_closed(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)
    held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
    for reader, writer in held:  # an answer each: they are open by now
        writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in await reader.readline()
    refused = b""
    with contextlib.suppress(OSError):  # closed in order, or reset
        refused = await _said(server, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    assert refused == b""
    for _, writer in held:
        await _closed(writer)


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
