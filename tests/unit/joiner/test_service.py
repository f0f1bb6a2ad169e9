"""The joiner over gRPC, and as a process that stops."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from photon.adapters.contract import LogFile
from photon.batch.events import Events
from photon.config.disk import RealDisk
from photon.config.serving import CannotListen, HealthyServer
from photon.idregistry.api import Kind
from photon.joiner import wire
from photon.joiner.api import WAIT_NS, ForeignEvent, JoinAnswers, Outcome
from photon.joiner.client import JoinerClient
from photon.joiner.process import JoinerFailed, Served, serve
from photon.joiner.service import start_server
from photon.verifier.verifier import Verifier, VerifierLimits
from tests.unit.joiner.helpers import DIGESTER, FakeRegistry, FakeStore, engine_at, event, lines_under
from tests.unit.joiner.told import TakenBy, answers_of, by_row, outcomes_of, owners_of


class Recorder:
    """Gives the answers it was told to."""

    def __init__(self, answers: JoinAnswers) -> None:
        self.answers = answers
        self.asked: list[list[ForeignEvent]] = []
        self.timeouts: list[float] = []

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        self.asked.append(events.rows())
        self.timeouts.append(timeout)
        return self.answers

    async def close(self) -> None:
        return None


ROWS = [
    ForeignEvent(b"\xffa", bytes(16), -5, b"", b"raw \x00\xff", LogFile("a.csv", b"x,y"), 2**40, WAIT_NS, 3),
    ForeignEvent(b"b", bytes(range(16)), 2**62, b"k", b"", LogFile("b.log"), 0, 7),
    ForeignEvent(b"c", b"c" * 16, 0, b"k", b"r", LogFile("a.csv", b"x,y"), 1, 0),
]
EVENTS = Events.of(ROWS)
ANSWERS = answers_of(
    [Outcome.TAKEN, Outcome.REJECTED, Outcome.TAKEN],
    {0: TakenBy("dc1", Kind.UNMATCHED, False, -7, 1 << 63), 2: TakenBy("dc0", Kind.JOINED, True)},
    {1: "why — ünicode"},
    ambiguous=(1,),
    unpaired=(2,),
)


def test_the_owners_of_a_reply() -> None:
    message = wire.reply(ANSWERS)
    assert list(message.owner_of) == [0, 2]
    assert list(message.owner_datacentres) == ["dc1", "dc0"]
    assert (message.kinds[0], message.kinds[2]) == (Kind.UNMATCHED, Kind.JOINED)
    assert message.same_lines == bytes([0, 1])
    assert struct.unpack("<2q", message.owner_times) == (-7, -(2**63))
    assert struct.unpack("<2Q", message.owner_tokens) == (1 << 63, 0)


def test_a_strange_outcome_or_verdict_is_refused() -> None:
    message = wire.reply(ANSWERS)
    message.outcomes = bytes([Outcome.TAKEN, 200, Outcome.TAKEN])
    with pytest.raises(wire.WireError, match="outcome 200"):
        wire.answered(message, 3)
    message = wire.reply(ANSWERS)
    message.kinds = bytes([9, 0, 9])
    with pytest.raises(wire.WireError, match="verdict 9"):
        wire.answered(message, 3)


def test_an_outcome_has_the_number_of_its_kind() -> None:
    assert {kind.name: int(kind) for kind in Kind} == {kind.name: int(Outcome[kind.name]) for kind in Kind}


def test_a_file_name_that_is_not_text_arrives_as_the_output_shows_it() -> None:
    odd = event(b"a", b"k").__class__(b"a", bytes(16), 0, b"k", b"r", LogFile("clicks\udcff.log"), 0, 0)
    (back,) = wire.asked(wire.request("clicks", Events.of([odd]))).rows()
    assert back.file.path == "clicks\\xff.log"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("digests", b"short"),
        ("times", b"short"),
        ("keys", []),
        ("file_indexes", bytes([9, 0, 0, 0] * 3)),
        ("generations", b"x"),
    ],
)
def test_columns_that_do_not_fit_are_refused(field: str, value: object) -> None:
    message = wire.request("clicks", EVENTS)
    message.ClearField(field)
    if isinstance(value, bytes):
        setattr(message, field, value)
    with pytest.raises(wire.WireError):
        wire.asked(message)


def test_replies_that_do_not_fit_are_refused() -> None:
    wrong = [(wire.reply(ANSWERS), 2), (wire.reply(ANSWERS), 4)]
    wrong += [(wire.reply(replace(ANSWERS, **{name: (3,)})), 3) for name in ("ambiguous", "unpaired")]
    for field in ("owner_of", "owner_datacentres", "same_lines", "kinds", "reasons"):
        wrong.append((wire.reply(ANSWERS), 3))
        wrong[-1][0].ClearField(field)
    of_nothing = wire.reply(answers_of([Outcome.JOINED]))
    of_nothing.owner_datacentres.append("dc1")
    for message, n in (*wrong, (of_nothing, 1)):
        with pytest.raises(wire.WireError):
            wire.answered(message, n)


def test_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "EVENTS_MAX", 2)
    with pytest.raises(wire.WireError, match="at most 2"):
        wire.asked(wire.request("clicks", EVENTS))


@pytest.mark.parametrize(("rows", "size"), [(2, 99), (99, 3), (99, 1), (1, 99), (3, 99), (3, 9)])
def test_a_large_batch_goes_in_parts(rows: int, size: int) -> None:
    """Ids, keys and records of the three events have 7, 2 and 3 bytes."""
    parts = [part.rows() for part in EVENTS.parts(rows, size)]
    assert [row for part in parts for row in part] == ROWS
    for at, part in enumerate(parts):
        sizes = [len(row.event_id + row.key + row.record) for row in part]
        assert len(part) == 1 or (len(part) <= rows and sum(sizes) <= size)
        following = parts[at + 1][0] if at + 1 < len(parts) else None
        if following is not None:
            more = sum(sizes) + len(following.event_id + following.key + following.record)
            assert len(part) == rows or more > size


@asynccontextmanager
async def serving(joiner: Any) -> AsyncIterator[tuple[JoinerClient, HealthyServer]]:
    """A client of it, over gRPC."""
    server = await start_server({"clicks": joiner}, "127.0.0.1:0")
    client = JoinerClient(f"127.0.0.1:{server.port}", "clicks")
    try:
        yield client, server
    finally:
        await client.close()
        await server.stop(0.0)


async def test_a_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(ANSWERS)
    async with serving(recorder) as (client, server):
        assert by_row(await client.join(EVENTS, timeout=20.0)) == by_row(ANSWERS)
        assert recorder.asked == [ROWS]
        assert 10.0 < recorder.timeouts[0] < 20.0
        monkeypatch.setattr(wire, "EVENTS_MAX", 3)
        twice = await client.join(Events.of([*ROWS, *ROWS]), timeout=20.0)
        assert outcomes_of(twice) == outcomes_of(ANSWERS) * 2
        assert owners_of(twice)[5] == owners_of(ANSWERS)[2]
        assert twice.verdicts.reasons[4] == ANSWERS.verdicts.reasons[1]
        assert (tuple(twice.ambiguous), tuple(twice.unpaired)) == ((1, 4), (2, 5))
        assert outcomes_of(await client.join(Events.of([]), timeout=1.0)) == []
        other = JoinerClient(f"127.0.0.1:{server.port}", "another")
        answers = await other.join(EVENTS, timeout=60.0)
        assert outcomes_of(answers) == [Outcome.RETRY] * 3
        assert "no join named 'another'" in answers.verdicts.reasons[0]
        await other.close()


async def test_an_unreachable_joiner_is_retry_for_all() -> None:
    server = await start_server({}, "127.0.0.1:0")
    await server.stop(0)
    client = JoinerClient(f"127.0.0.1:{server.port}", "clicks")
    answers = await client.join(EVENTS, timeout=2.0)
    assert outcomes_of(answers) == [Outcome.RETRY] * 3
    assert not answers.overloaded
    assert client.error
    await client.close()


async def test_a_process_serves_verifies_and_stops_in_order(tmp_path: Path) -> None:
    registry = FakeRegistry()
    engine = engine_at(tmp_path, registry, FakeStore({b"k": b"k v"}))
    limits = VerifierLimits(period_s=0.01)
    verifier = Verifier(RealDisk(), tmp_path / "state", tmp_path / "out", DIGESTER, registry, limits=limits)
    stop = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    served = [Served("clicks", engine, [verifier.run])]
    task = asyncio.create_task(serve(served, address="127.0.0.1:0", ready=port.set_result, stop=stop))
    async with asyncio.timeout(20):
        address = f"127.0.0.1:{await port}"
        async with grpc.aio.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            health = await stub.Check(health_pb2.HealthCheckRequest(service="photon.v1.Joiner"))
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        client = JoinerClient(address, "clicks")
        answers = await client.join(Events.of([event(b"id-%d" % n, b"k") for n in range(5)]), timeout=60.0)
        assert outcomes_of(answers) == [Outcome.JOINED] * 5
        while verifier.total.cleared < 5:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
        await client.close()
        stop.set()
        await task
    assert len(lines_under(tmp_path, "joined")) == 5
    assert registry.model.owned() == []


async def test_what_keeps_a_process_from_serving_is_one_line(tmp_path: Path) -> None:
    engine = engine_at(tmp_path, FakeRegistry(), FakeStore({}))
    (tmp_path / "state").mkdir()
    (tmp_path / "state/slot.json").write_bytes(b"{")
    with pytest.raises(JoinerFailed, match=r"join clicks: .*slot.json: unreadable"):
        await serve([Served("clicks", engine)], address="127.0.0.1:0", stop=asyncio.Event())


async def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    server = await start_server({}, "127.0.0.1:0")
    engine = engine_at(tmp_path, FakeRegistry(), FakeStore({}))
    with pytest.raises(CannotListen, match="in use"):
        await serve([Served("clicks", engine)], address=f"127.0.0.1:{server.port}", stop=asyncio.Event())
    await server.stop(0)


async def test_a_stop_ends_the_wait_for_a_registry(tmp_path: Path) -> None:
    registry = FakeRegistry()
    registry.unknown_openings = 10**9
    engine = engine_at(tmp_path, registry, FakeStore({}))
    stop = asyncio.Event()
    task = asyncio.create_task(serve([Served("clicks", engine)], address="127.0.0.1:0", stop=stop))
    async with asyncio.timeout(60):
        while not registry.openings:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
        stop.set()
        await task


class Hanging(Recorder):
    """Never answers."""

    def __init__(self) -> None:
        super().__init__(ANSWERS)
        self.begun = asyncio.Event()

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        self.begun.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_what_is_on_its_way_is_unknown_when_the_connection_is_closed() -> None:
    """A vanished joiner is not waited for; its waiting callers are not ended by that."""
    async with serving(hanging := Hanging()) as (client, _):
        asked = asyncio.create_task(client.join(EVENTS, timeout=30.0))
        async with asyncio.timeout(60.0):
            await hanging.begun.wait()
            await client.close()
            answers = await asked
        assert outcomes_of(answers) == [Outcome.RETRY] * 3
        assert answers.failed


async def test_a_call_that_is_given_up_is_cancelled_all_the_same() -> None:
    async with serving(hanging := Hanging()) as (client, _):
        asked = asyncio.create_task(client.join(EVENTS, timeout=30.0))
        async with asyncio.timeout(60.0):
            await hanging.begun.wait()
        asked.cancel()
        await client.close()
        with pytest.raises(asyncio.CancelledError):
            await asked


async def test_a_joiner_says_whether_it_serves() -> None:
    async with serving(Recorder(ANSWERS)) as (client, server):
        assert await client.serves(10.0) is False
        await server.serving()
        assert await client.serves(10.0) is True
        await server.stop(0.0)
        assert await client.serves(10.0) is None
