"""Spans: the traced share, one trace over tasks and calls, nothing where nothing is traced."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from photon.config.serving import listen_for
from photon.config.telemetry import spans
from photon.config.telemetry.otlp import OtlpTracer
from photon.config.tls import open_blocking_channel, open_channel
from tests.unit.config import test_rpc
from tests.unit.config.test_rpc import PARTS, SERVICE


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Ended spans of a process that traces everything."""
    found = InMemorySpanExporter()
    monkeypatch.setattr(spans, "tracer", OtlpTracer(1.0, Resource.get_empty(), SimpleSpanProcessor(found)))
    yield found
    assert spans.current.get() is None


@pytest.mark.parametrize(("share", "of_1000"), [(0.0, 0), (0.01, 10), (0.3, 300), (1.0, 1000)])
def test_each_so_many_th_batch_is_traced(
    ended: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, share: float, of_1000: int
) -> None:
    monkeypatch.setattr(spans.tracer, "share", share)
    traced = []
    for number in range(1, 1001):
        with spans.root("batch", number) as span:
            if span is not None:
                traced.append(number)
    assert len(traced) == len(ended.get_finished_spans()) == of_1000
    assert len({later - number for number, later in itertools.pairwise(traced)}) <= 2, "evenly"


def test_nothing_is_made_below_nothing(ended: InMemorySpanExporter) -> None:
    with spans.span("joiner.join", events=1) as span:
        assert span is None
    assert spans.begin("joiner.write") is None
    spans.received([("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"), ("other", b"x")])
    assert spans.current.get() is None, "its caller does not trace it"
    spans.received([("traceparent", "nonsense")])
    assert spans.current.get() is None
    assert ended.get_finished_spans() == ()


def test_a_failure_ends_the_span_and_is_noted(ended: InMemorySpanExporter) -> None:
    with pytest.raises(OSError, match="full"), spans.root("batch", 1, events=3):
        raise OSError("full")
    (span,) = ended.get_finished_spans()
    assert span.attributes == {"photon.events": 3}
    assert (span.status.status_code.name, span.status.description) == ("ERROR", "OSError: full")


class Servicer(test_rpc.Servicer):
    """Says in which span it answers."""

    async def Ask(self, request: Any, context: Any) -> Any:  # noqa: N802
        with spans.span("answer") as span:
            return PARTS(parts=[b"" if span is None else span.header().encode()])


async def test_a_trace_goes_along_with_a_call_and_ends_with_it(ended: InMemorySpanExporter) -> None:
    server = await listen_for("127.0.0.1:0", SERVICE, Servicer())
    channel = open_channel(f"127.0.0.1:{server.port}")
    try:
        stub, here = SERVICE.stub(channel), SERVICE.here(Servicer())
        for ask in (stub.Ask, here.Ask):
            ended.clear()
            with spans.root("batch", 1) as root:
                assert root is not None
                (said,) = (await ask(PARTS(), timeout=20.0)).parts
            answer, batch = ended.get_finished_spans()
            assert answer.context is not None
            assert batch.context is not None
            assert answer.parent is not None
            assert answer.parent.span_id == batch.context.span_id
            assert answer.context.trace_id == batch.context.trace_id
            assert said.decode().split("-")[1:3] == [
                f"{answer.context.trace_id:032x}",
                f"{answer.context.span_id:016x}",
            ]
            assert (await ask(PARTS(), timeout=20.0)).parts == [b""], "the next call is not of this trace"
    finally:
        await channel.close(None)
        await server.stop()


async def test_calls_that_take_no_trace_along_are_as_ever(ended: InMemorySpanExporter) -> None:
    """Replicas send each other a stream from a thread, by ``future``."""
    server = await listen_for("127.0.0.1:0", SERVICE, Servicer())
    channel, blocking = open_channel(f"127.0.0.1:{server.port}"), open_blocking_channel(f"127.0.0.1:{server.port}")
    try:
        stub, of_threads = SERVICE.stub(channel), SERVICE.stub(blocking)
        with spans.root("batch", 1):
            assert (await stub.Gather(iter([PARTS()]), timeout=20.0)) == PARTS()
            assert [each async for each in stub.Pour(PARTS(parts=[b"a"]), timeout=20.0)] == [PARTS(parts=[b"a"])]
            for call in (of_threads.Gather.future(iter([PARTS()]), timeout=20.0), of_threads.Ask.future(PARTS())):
                assert await asyncio.to_thread(call.result)
    finally:
        await channel.close(None)
        blocking.close()
        await server.stop()
