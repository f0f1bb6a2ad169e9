"""Every server and channel bounds incoming and outgoing messages, including those that become large only when
decompressed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from photon.config.serving import REPLY_BYTES_MAX, REQUEST_BYTES_MAX, HealthyServer, listen, server_options
from photon.config.tls import channel_options, open_channel

ROOT = Path(__file__).parents[3]
ROOMS = ("adapters", "config", "dispatcher", "eventstore", "idregistry", "joiner", "spark", "src/photon")
BOUNDS = ("receive_message_length", "send_message_length")
ASK = "/test.Sizes/Ask"
FREE = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))  # a caller without limits


@pytest.fixture
async def server() -> AsyncIterator[HealthyServer]:
    """Answers with the number of bytes in the request."""

    async def ask(request: bytes, context: Any) -> bytes:
        return bytes(int(request.strip(b"\0") or b"0"))

    def add(to: grpc.aio.Server) -> None:
        handler = grpc.unary_unary_rpc_method_handler(ask)
        to.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Sizes", {"Ask": handler}),))

    made = await listen("127.0.0.1:0", "test", add)
    yield made
    await made.stop(0)


async def asked(server: HealthyServer, request: bytes, options: Any = FREE, **how: Any) -> grpc.StatusCode:
    async with open_channel(f"127.0.0.1:{server.port}", options) as channel:
        code: grpc.StatusCode = await channel.unary_unary(ASK)(request, timeout=30, **how).code()
        return code


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_request_is_bounded_as_it_is_and_as_it_becomes(
    server: HealthyServer, compression: grpc.Compression
) -> None:
    for size, code in ((REQUEST_BYTES_MAX, grpc.StatusCode.OK), (16 << 20, grpc.StatusCode.RESOURCE_EXHAUSTED)):
        assert await asked(server, bytes(size), compression=compression) is code


async def test_a_reply_is_bounded_by_who_sends_it(server: HealthyServer) -> None:
    assert await asked(server, str(REPLY_BYTES_MAX).encode()) is grpc.StatusCode.OK
    assert await asked(server, str(REPLY_BYTES_MAX + 1).encode()) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_reply_is_bounded_by_who_takes_it(server: HealthyServer) -> None:
    small = (("grpc.max_receive_message_length", 1000),)
    assert await asked(server, b"1000", small) is grpc.StatusCode.OK
    assert await asked(server, b"1001", small) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_sizes_are_explicit_everywhere() -> None:
    """tests/unit/config/test_authorisation.py shows that these two make all options that there are."""
    for options in (dict(server_options()), dict(channel_options())):
        assert all(0 < int(options[f"grpc.max_{bound}"]) <= 4 << 20 for bound in BOUNDS)
        assert 0 < int(options["grpc.absolute_max_metadata_size"]) <= 16 << 10
    unbounded = re.compile(r"grpc\.max_\w+_message_length\"?,?:? *-1")
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(sources) > 300
    assert [str(path) for path in sources if unbounded.search(path.read_text())] == []
