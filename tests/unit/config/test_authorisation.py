"""The check before every handler: all four kinds of calls, the log, and that no code makes servers without it."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from photon.config.authorisation import LOGGED_EACH_S, LOGGED_MAX, Said
from photon.config.certificate_files import begin, issue_missing, load
from photon.config.serving import listen
from photon.config.tls import open_channel

ROOT = Path(__file__).parents[3]
KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
SERVICES = {"photon.v1.RaftPeer": "Exchange", "photon.v1.Nobody": "Ask"}


class Handlers:
    """Handlers of every kind; notes the calls that reached it."""

    def __init__(self) -> None:
        self.reached = 0

    async def unary_unary(self, request: bytes, context: Any) -> bytes:
        self.reached += 1
        return request

    async def unary_stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        self.reached += 1
        yield request

    async def stream_unary(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        self.reached += 1
        return b"".join([request async for request in requests])

    async def stream_stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        self.reached += 1
        async for request in requests:
            yield request

    def add(self, server: grpc.aio.Server, service: str, method: str, kind: str) -> None:
        handler = getattr(grpc, f"{kind}_rpc_method_handler")(getattr(self, kind))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory, now = tmp_path_factory.mktemp("certs"), datetime.now(UTC)
    begin(directory, "test", now, days=2)
    issue_missing(directory, directory, ["registry-r1", "registry-r2", "datacentre-east"], now, days=2)
    return directory


async def silent() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def called(channel: grpc.aio.Channel, kind: str, method: str, *, sends: bool = True) -> bytes:
    """Result of the call, joined. Without ``sends`` a stream of requests has none: grpc calls it INTERNAL if one is
    sent while the refusal comes in."""
    call = getattr(channel, kind)(method)
    asked: Any = (iter([b"a", b"b"]) if sends else silent()) if kind.startswith("stream") else b"ab"
    if kind.endswith("unary"):
        answer: bytes = await call(asked)
        return answer
    return b"".join([part async for part in call(asked)])


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_of_every_kind_are_checked_before_their_handler(certificates: Path, kind: str) -> None:
    handlers, now = Handlers(), datetime.now(UTC)

    def add(server: grpc.aio.Server) -> None:
        for service, method in SERVICES.items():
            handlers.add(server, service, method, kind)

    server = await listen("127.0.0.1:0", "test", add, tls=load(certificates, "registry-r1", now))
    try:
        for who, allowed in (("registry-r2", True), ("datacentre-east", False)):
            to = load(certificates, who, now).to("registry-r1")
            async with open_channel(f"127.0.0.1:{server.port}", to=to) as channel:
                for service, method in SERVICES.items():
                    name = f"/{service}/{method}"
                    before = handlers.reached
                    if allowed and service != "photon.v1.Nobody":
                        assert await called(channel, kind, name) == b"ab"
                        assert handlers.reached == before + 1
                        continue
                    with capture_logs() as logged, pytest.raises(grpc.aio.AioRpcError) as refused:
                        await called(channel, kind, name, sends=False)
                    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
                    assert handlers.reached == before
                    [line] = logged
                    assert line["why"] == refused.value.details()
                    assert line["why"].startswith(f"{who} may not call {name[1:]}: it is for ")
                with pytest.raises(grpc.aio.AioRpcError) as unknown:
                    await called(channel, kind, "/photon.v1.RaftPeer/NoSuchMethod", sends=False)
                assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
    finally:
        await server.stop(0)


async def test_a_plain_connection_has_no_roles() -> None:
    handlers = Handlers()
    server = await listen(
        "127.0.0.1:0", "test", lambda to: handlers.add(to, "photon.v1.Nobody", "Ask", "unary_unary")
    )
    try:
        async with open_channel(f"127.0.0.1:{server.port}") as channel:
            assert await called(channel, "unary_unary", "/photon.v1.Nobody/Ask") == b"ab"
    finally:
        await server.stop(0)


def test_who_asks_again_and_again_is_logged_once_a_while() -> None:
    said = Said()
    assert said.refused("datacentre-east", "/a", 0.0) == 0
    assert [said.refused("datacentre-east", "/a", at) for at in (1.0, LOGGED_EACH_S - 1)] == [None, None]
    assert said.refused("datacentre-west", "/a", 2.0) == 2
    assert said.refused("datacentre-east", "/a", LOGGED_EACH_S) == 0


def test_many_callers_cost_a_bounded_memory_and_log() -> None:
    said = Said()
    logged = [said.refused(f"datacentre-{n}", "/a", 1.0) for n in range(10 * LOGGED_MAX)]
    assert sum(each is not None for each in logged) <= LOGGED_MAX + 1
    assert len(said._until) <= LOGGED_MAX + 1
    assert said.refused("datacentre-x", "/a", LOGGED_EACH_S + 2) == 9 * LOGGED_MAX - 1


# Makers of grpc and grpc.aio. Files that may use them: config/serving.py, config/tls.py.
MAKERS = {"server", "insecure_channel", "secure_channel"}


def test_servers_and_channels_are_made_in_one_place() -> None:
    """Otherwise there would be ports without the check, and messages without a limit."""
    made: dict[str, set[str]] = {}
    for path in sorted((ROOT / "src").glob("photon/**/*.py")):
        made |= {str(path.relative_to(ROOT / "src/photon")): names} if (names := _made(path)) else {}
    for room in ("adapters", "config", "dispatcher", "eventstore", "idregistry", "joiner", "spark"):
        for path in sorted((ROOT / room).rglob("*.py")):
            made |= {str(path.relative_to(ROOT)): names} if (names := _made(path)) else {}
    assert made == {"config/serving.py": {"server"}, "config/tls.py": {"insecure_channel", "secure_channel"}}


def _made(path: Path) -> set[str]:
    """Makers of gRPC that a file calls."""
    found, text = set(), path.read_text()
    for node in ast.walk(ast.parse(text)) if any(f".{name}(" in text for name in MAKERS) else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MAKERS:
            of = ast.unparse(node.func.value)
            found |= {node.func.attr} if of in {"grpc", "grpc.aio", "aio"} else set()
    return found
