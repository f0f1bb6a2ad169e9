"""Handlers and stubs from descriptors: all four kinds of calls, unchanged on the wire, bounded and audited; and that
nothing is served without them."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from structlog.testing import capture_logs

from photon.config.message_bounds import FREE_BYTES
from photon.config.rpc import Service, WireError, abort, seconds_left
from photon.config.serving import HealthyServer, listen_for
from photon.config.tls import open_blocking_channel, open_channel
from photon.idregistry import registry_pb2
from photon.idregistry.client.channels import REGISTRY

ROOT = Path(__file__).parents[3]
KINDS = {"Ask": (False, False), "Pour": (False, True), "Gather": (True, False), "Talk": (True, True)}
BYTES_MAX = 4 << 20


def service_file() -> Any:
    """A .proto with a method of each kind: test.Kinds, whose messages have one repeated field of bytes."""
    file = FileDescriptorProto(name="test_kinds.proto", package="test", syntax="proto3")
    message = file.message_type.add(name="Parts")
    message.field.add(
        name="parts", number=1, type=FieldDescriptorProto.TYPE_BYTES, label=FieldDescriptorProto.LABEL_REPEATED
    )
    service = file.service.add(name="Kinds")
    for name, (many_in, many_out) in KINDS.items():
        service.method.add(
            name=name,
            input_type=".test.Parts",
            output_type=".test.Parts",
            client_streaming=many_in,
            server_streaming=many_out,
        )
    pool = DescriptorPool()
    pool.Add(file)
    return pool.FindFileByName("test_kinds.proto")


FILE = service_file()
PARTS: Any = GetMessageClass(FILE.message_types_by_name["Parts"])
SERVICE = Service(FILE, "Kinds", bytes_max=BYTES_MAX, fields_max=3)


class Servicer:
    """Returns its input."""

    async def Ask(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.parts == [b"unreadable"]:
            raise WireError("no such parts")
        if request.parts == [b"nobody"]:
            await abort(context, grpc.StatusCode.NOT_FOUND, "not here")
        return request

    async def Pour(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        for part in request.parts:
            yield PARTS(parts=[part])

    async def Gather(self, requests: AsyncIterator[Any], context: Any) -> Any:  # noqa: N802
        return PARTS(parts=[part async for request in requests for part in request.parts])

    async def Talk(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for request in requests:
            yield request


@pytest.fixture
async def served() -> AsyncIterator[HealthyServer]:
    server = await listen_for("127.0.0.1:0", SERVICE, Servicer())
    yield server
    await server.stop(0)


@pytest.fixture
async def channel(served: HealthyServer) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(f"127.0.0.1:{served.port}", SERVICE.sizes) as made:
        yield made


async def test_calls_of_every_kind(channel: grpc.aio.Channel) -> None:
    stub, both = SERVICE.stub(channel), PARTS(parts=[b"a", b"b"])
    assert await stub.Ask(both) == both
    assert [part.parts[0] async for part in stub.Pour(both)] == [b"a", b"b"]
    assert await stub.Gather(iter([PARTS(parts=[b"a"]), PARTS(parts=[b"b"])])) == both
    assert [part async for part in stub.Talk(iter([both, both]))] == [both, both]
    with pytest.raises(AttributeError, match=r"test\.Kinds has no method Shout"):
        stub.Shout  # noqa: B018


async def test_the_wire_is_grpcs_and_protobufs(channel: grpc.aio.Channel) -> None:
    """A client that knows the method's name and writes bytes by hand."""
    message = b"\x0a\x01a\x0a\x01b"
    assert await channel.unary_unary("/test.Kinds/Ask")(message) == message
    answer = await SERVICE.stub(channel, encoded=True).Ask(message)
    assert answer == PARTS(parts=[b"a", b"b"])


async def test_threads_call_as_well(served: HealthyServer) -> None:
    with open_blocking_channel(f"127.0.0.1:{served.port}", SERVICE.sizes) as channel:
        call = SERVICE.stub(channel).Ask.future(PARTS(parts=[b"a"]))
        answer = PARTS()
        assert await SERVICE.stub(open_channel(f"127.0.0.1:{served.port}")).Ask(answer) == answer
        found = await asyncio.to_thread(call.result, timeout=60)  # the server answers from this loop
        assert found.parts == [b"a"]


@pytest.mark.parametrize(
    ("part", "code", "why"),
    [
        (b"unreadable", grpc.StatusCode.INVALID_ARGUMENT, "no such parts"),
        (b"nobody", grpc.StatusCode.NOT_FOUND, "not here"),
    ],
)
async def test_a_handler_refuses(channel: grpc.aio.Channel, part: bytes, code: grpc.StatusCode, why: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await SERVICE.stub(channel).Ask(PARTS(parts=[part]))
    assert (refused.value.code(), refused.value.details()) == (code, why)


async def test_requests_are_bounded_in_fields_and_bytes(served: HealthyServer) -> None:
    free = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
    async with open_channel(f"127.0.0.1:{served.port}", free) as channel:
        ask, large = SERVICE.stub(channel).Ask, bytes(FREE_BYTES)
        assert len((await ask(PARTS(parts=[large, b"b", b"c"]))).parts) == 3
        for parts, code in (
            ([large, b"b", b"c", b"d"], grpc.StatusCode.UNKNOWN),
            ([bytes(BYTES_MAX)], grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask(PARTS(parts=parts))
            assert refused.value.code() is code


async def test_an_operators_change_leaves_a_line() -> None:
    class Registry:
        """Answers every method with an empty reply."""

        def __getattr__(self, name: str) -> Any:
            method = registry_pb2.DESCRIPTOR.services_by_name["Registry"].methods_by_name[name]

            async def answer(request: Any, context: Any) -> Any:
                return GetMessageClass(method.output_type)()

            return answer

    server = await listen_for("127.0.0.1:0", REGISTRY, Registry())
    try:
        async with open_channel(f"127.0.0.1:{server.port}") as channel:
            stub = REGISTRY.stub(channel)
            with capture_logs() as lines:
                await stub.Describe(registry_pb2.DescribeRequest())
                await stub.RetireSlot(registry_pb2.RetireSlotRequest())
        assert [(line["event"], line["method"], line["outcome"]) for line in lines] == [
            ("audit", "photon.v1.Registry/RetireSlot", "done")
        ]
    finally:
        await server.stop(0)


async def test_a_method_without_a_handler_is_noticed_at_the_start() -> None:
    with pytest.raises(AttributeError, match="Ask"):
        await listen_for("127.0.0.1:0", SERVICE, object())


@pytest.mark.parametrize(("left", "expected"), [(None, 5.0), (1.0, 0.75), (0.1, 0.0), (60.0, 30.0)])
def test_a_handler_answers_before_its_caller_gives_up(left: float | None, expected: float) -> None:
    context: Any = SimpleNamespace(time_remaining=lambda: left)
    assert seconds_left(context, default=5.0, margin=0.25, most=30.0) == expected


MAKERS = {"method_handlers_generic_handler", "add_generic_rpc_handlers", "add_registered_method_handlers"}


def test_nothing_is_served_past_the_bounds() -> None:
    rooms = ("adapters", "config", "dispatcher", "eventstore", "idregistry", "joiner", "spark", "src/photon")
    found = {
        str(path.relative_to(ROOT))
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        if any(name in path.read_text() for name in MAKERS)
        if any(
            isinstance(node, ast.Attribute) and node.attr in MAKERS for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    assert found == {"config/rpc.py", "config/serving.py"}  # the latter hands on what the former has made


async def test_a_servicer_in_this_process_answers_as_over_a_channel() -> None:
    class Local(Servicer):
        async def Ask(self, request: Any, context: Any) -> Any:  # noqa: N802
            if request.parts == [b"slow"]:
                await asyncio.sleep(60.0)
            if request.parts == [b"broken"]:
                raise ZeroDivisionError
            left = seconds_left(context, default=0.0, margin=0.0)
            assert 50.0 < left <= 60.0 or request.parts == [b"slow"]
            return await super().Ask(request, context)

    stub = SERVICE.here(Local())
    request = PARTS(parts=[b"a"])
    assert await stub.Ask(request, timeout=60.0) is request
    for part, timeout, code in (
        (b"unreadable", 60.0, grpc.StatusCode.INVALID_ARGUMENT),
        (b"nobody", 60.0, grpc.StatusCode.NOT_FOUND),
        (b"broken", 60.0, grpc.StatusCode.UNKNOWN),
        (b"slow", 0.0, grpc.StatusCode.DEADLINE_EXCEEDED),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.Ask(PARTS(parts=[part]), timeout=timeout)
        assert failed.value.code() is code
    with pytest.raises(AttributeError, match="no method Fly"):
        stub.Fly  # noqa: B018
