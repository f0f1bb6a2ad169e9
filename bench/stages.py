"""Each stage of the hot path by itself, over a small generated set in one process, for ``bench.counts``."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LogFile
from photon.adapters.envelope import Envelope
from photon.adapters.logs.api import LogPosition
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.identity import log_name
from photon.batch.events import Events, ForeignEvent
from photon.batch.ids import Ids
from photon.batch.records import PrimaryRecord, Records
from photon.batch.verdicts import Verdicts
from photon.config.clock import NEVER_NS, SystemClock
from photon.config.disk import AppendFile, RealDisk
from photon.dispatcher.database import STATE_NAME, read_ledger
from photon.dispatcher.engine import Options, Policy
from photon.dispatcher.engine import Surroundings as DispatcherSurroundings
from photon.dispatcher.process import Places, open_dispatcher
from photon.dispatcher.retry import Patience
from photon.eventstore import columns
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.api import EventLookUps, LookUpCode, Progress
from photon.eventstore.engine import open_map
from photon.eventstore.file_map import MappedBlock, MapSettings, MapTotals
from photon.eventstore.logs_store import LogsEventStore
from photon.eventstore.primary_reader import BlockCache, PrimaryReader
from photon.eventstore.segments import CacheEventStore
from photon.eventstore.tiered import TieredEventStore
from photon.idregistry.api import Answer, Digester, Opened, Slot
from photon.idregistry.raft.api import ProposalOutcome, StateMachine
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.transport import GroupMessage, Hello, Receiver
from photon.idregistry.witness import Witness, Witnessed
from photon.joiner.api import JoinAnswers, Outcome
from photon.joiner.engine import JoinerEngine
from photon.joiner.opening import Surroundings
from photon.joiner.shell import die
from photon.joiner.slot.slot import SlotPaths
from photon.joiner.verdicts import envelope_lines

PRIMARY = {"format": "jsonl", "key": "query_id"}
FOREIGN = PRIMARY | {"id": "click_id", "time": {"field": "time_us", "unit": "us"}}


def adapter() -> ConfiguredAdapter:
    return ConfiguredAdapter({"primary": PRIMARY, "foreign": FOREIGN})


# -- event store -------------------------------------------------------------------------------------------------
def write_queries(directory: Path, events: int) -> list[bytes]:
    """Writes records of 300 bytes into one log; returns their keys."""
    directory.mkdir()
    keys, filler = [], "x" * 214
    with open(directory / "queries.log", "wb") as file:
        for number in range(events):
            key = f"10.0.{number % 256}.{number // 256 % 256}:{1000 + number % 7}:{1700000000000000 + number * 37}"
            record = f'{{"query_id":"{key}","time_us":{1700000000000000 + number * 37},"q":"{filler}"}}\n'
            file.write(record.encode())
            keys.append(key.encode())
    return keys


class NoMap:
    """A file map that stores nothing."""

    def positions(self) -> list[LogPosition]:
        return []

    def add(self, block: MappedBlock) -> None:
        pass

    def commit(self) -> None:
        pass

    def all_read(self) -> None:
        pass

    def totals(self, *, exact: bool = False) -> MapTotals:
        return MapTotals(events=1)


def read_all(logs: Path, cache: BlockCache, file_map: Any) -> None:
    """Runs follower and primary reader to the end of the logs."""
    follower = Follower(logs, has_header=False, max_record=1 << 20, positions=[])
    reader = PrimaryReader(follower, adapter(), cache, file_map, SystemClock(), once=True)
    while not reader.done:
        reader.step()
    follower.close()


@contextmanager
def event_store(logs: Path, state: Path, cache_bytes: int) -> Iterator[TieredEventStore]:
    """Runs an event store that has read ``logs`` to their end."""
    file_map, _ = open_map(state, MapSettings(b"rule"), log_name, RealDisk(), SystemClock(), None)
    cache = CacheEventStore(adapter(), cache_bytes)
    read_all(logs, cache, file_map)
    store = LogsEventStore(logs, adapter(), lambda identity: "queries.log")
    yield TieredEventStore(cache, file_map, store, log_name, lambda: NEVER_NS)
    store.close()
    file_map.close()


def look_up_requests(keys: Sequence[bytes], size: int, count: int) -> list[bytes]:
    """Draws ``count`` requests of ``size`` keys; a request's keys are close together, within a tenth of the
    records."""
    rng = random.Random(5)
    begins = [rng.randrange(len(keys) + 1 - 10 * size) for _ in range(count)]
    parts = [rng.sample(keys[at : at + 10 * size], size) for at in begins]
    return [columns.request("", part, [NEVER_NS] * size).SerializeToString() for part in parts]


def look_up(store: TieredEventStore, requests: Sequence[bytes]) -> None:
    """Does all work of look-ups, from each request's bytes to its reply's bytes, and back to columns."""
    for request in requests:
        keys, as_of, _ = columns.asked(pb.EventLookUpRequest.FromString(request))
        reply = columns.reply(store.look_up(keys, as_of)).SerializeToString()
        found = columns.answered(pb.EventLookUpReply.FromString(reply), len(keys))
        assert set(found.codes) == {LookUpCode.FOUND}, "or nothing was counted"


# -- dispatcher --------------------------------------------------------------------------------------------------
class PromptJoiner:
    """A joiner that reports every event as joined at once."""

    joined = 0

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        self.joined += len(events)
        return JoinAnswers.alike(len(events), Outcome.JOINED)

    async def close(self) -> None:
        return None


async def _progress() -> Progress:
    return Progress(read_past_ns=NEVER_NS)


def write_clicks(directory: Path, logs: int, lines: int) -> None:
    directory.mkdir()
    for log in range(logs):
        text = "".join(
            f'{{"click_id":"{log}-{n}","query_id":"q{n}","time_us":{10**15 + n},"more":"{"x" * 150}"}}\n'
            for n in range(lines)
        )
        (directory / f"{log:05}.log").write_text(text)


async def dispatch(logs: Path, base: Path, events: int) -> None:
    """Reads, parses, sends, counts and commits all events of ``logs``."""
    joiner = PromptJoiner()
    world = DispatcherSurroundings(
        join="clicks", datacentre="here", adapter=adapter(), digester=Digester(b"0123456789abcdef", "clicks"),
        joiners=[joiner], progress=_progress, registry=None, envelope=Envelope(), clock=SystemClock(),
        random=random.Random(1).random,
    )  # fmt: skip
    policy = Policy(Patience(unmatched_after_ns=10**12), options=Options())
    places = Places(logs, base / "out", base / "state")
    with open_dispatcher(places, policy, world, RealDisk()) as engine:
        running = asyncio.create_task(engine.run())
        while joiner.joined < events or not engine.status().caught_up:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        engine.stop()
        await running
    total = read_ledger(base / "state" / STATE_NAME).total
    assert (total.read, total.pending, total.balance) == (events, 0, 0), f"wrong ledger: {total}"


# -- joiner ------------------------------------------------------------------------------------------------------
class YesRegistry:
    """A registry that commits everything at once."""

    async def open_slot(self, slot: Slot, last: int, nonce: bytes) -> Opened:
        return Opened(last + 1, last + 1)

    async def read_witness(self, slot: str) -> Witnessed:
        return Witnessed(0, ())

    async def extend_witness(self, slot: str, incarnation: int, end: Witness, to: Witness) -> Witnessed:
        return Witnessed(incarnation, to)

    def announce(self, slot: Slot, incarnations: Sequence[int]) -> None:
        return None

    async def insert(self, inserts: Ids, *, timeout: float) -> Verdicts:
        return Verdicts.blank(len(inserts), Answer.COMMITTED)


class DictStore:
    """An event store that finds every key."""

    def __init__(self, records: dict[bytes, PrimaryRecord]) -> None:
        self._all = Records.of(list(records.values()))
        self._number = {key: number for number, key in enumerate(records)}

    async def look_up(
        self, keys: Sequence[bytes], as_of: Sequence[int], times: Sequence[int] | None = None
    ) -> EventLookUps:
        found = self._all.take(np.array([self._number[key] for key in keys]))
        return EventLookUps(bytes([LookUpCode.FOUND]) * len(keys), found)

    async def progress(self) -> Progress:
        return Progress(0)


def pairs(n: int) -> tuple[dict[bytes, PrimaryRecord], list[ForeignEvent]]:
    """Makes ``n`` primary records of about 300 bytes, and a foreign event for each."""
    digester = Digester(b"key", "clicks")
    primaries, foreigns = LogFile("queries.jsonl"), LogFile("clicks.jsonl")
    records, events = {}, []
    for i in range(n):
        key, event_id = b"10.0.0.1:77:%d" % i, b"10.0.0.2:5:%d" % i
        primary = b'{"query_id":"%b","ts":%d,"text":"%b"}' % (key, i, b"x" * 240)
        record = b'{"click_id":"%b","query_id":"%b","ts":%d,"ad":"%b"}' % (event_id, key, i, b"y" * 30)
        records[key] = PrimaryRecord(primary, primaries, i * 300)
        events.append(ForeignEvent(event_id, digester.digest(event_id), i, key, record, foreigns, i * 100, 0))
    return records, events


async def join(n: int, batch: int, base: Path) -> None:
    """Joins ``n`` events on the real disk, one batch at a time."""
    records, events = pairs(n)
    registry: Any = YesRegistry()
    store: Any = DictStore(records)
    world = Surroundings(registry, store, RealDisk(), SystemClock(), die, lambda: os.urandom(16))
    side = PRIMARY | {"time": {"field": "ts", "unit": "ns"}}
    paths = SlotPaths(base / "state", base / "output")
    engine = JoinerEngine(
        Slot("s0", "dc0"), paths, world, ConfiguredAdapter({"primary": side, "foreign": side}),
        envelope_lines(Envelope()), check_payloads=False,
    )  # fmt: skip
    await engine.start()
    for start in range(0, n, batch):
        answers = await engine.join(Events.of(events[start : start + batch]), timeout=30.0)
        assert (answers.verdicts.outcomes == Outcome.JOINED).all(), "or nothing was counted"
    assert await engine.settle(30.0)
    await engine.close()


# -- registry ----------------------------------------------------------------------------------------------------
class _CountedDisk(RealDisk):
    def __init__(self) -> None:
        self.syncs = 0

    def append(self, path: Path) -> AppendFile:
        file = super().append(path)
        sync = file.sync

        def counted() -> None:
            self.syncs += 1
            sync()

        file.sync = counted  # type: ignore[method-assign]
        return file


class _Stopped(SystemClock):
    """A clock that only moves when told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class _Frames:
    """A network between replicas of one thread: a frame arrives before the receiver's next turn."""

    def __init__(self, receivers: dict[str, Receiver]) -> None:
        self._receivers = receivers
        self.frames = self.messages = 0

    def start(self, hello: Hello, receiver: Receiver) -> None:
        self._hello = hello
        self._receivers[hello.name] = receiver

    def send(self, peer: str, messages: Sequence[GroupMessage]) -> None:
        self.frames += 1
        self.messages += len(messages)
        self._receivers[peer].receive(self._hello, messages)

    def stop(self) -> None:
        """Does nothing, as nothing is open."""


class ReplicaGroup:
    """Replicas that take their turns on this thread, in a time of their own; group 1's leader is ``leader``."""

    def __init__(self, directory: Path, machines: Mapping[str, Mapping[int, StateMachine]]) -> None:
        self._clock, self._disk = _Stopped(), _CountedDisk()
        receivers: dict[str, Receiver] = {}
        self._networks = [_Frames(receivers) for _ in machines]
        self.turns = 0
        self.outcomes: list[ProposalOutcome] = []
        self.hosts = [
            RaftHost(
                name=name,
                peers=dict.fromkeys(machines, "nowhere:1"),
                directory=directory / name,
                machines=of_groups,
                disk=self._disk,
                clock=self._clock,
                network=network,
                random=random.Random(number),
            )
            for number, ((name, of_groups), network) in enumerate(zip(machines.items(), self._networks, strict=True))
        ]
        for host in self.hosts:
            host.open()
        self._due = [0.0 for _ in self.hosts]
        while not (leaders := [host for host in self.hosts if host.group(1).state().is_leader]):
            self.rest(0.1)
        self.leader = leaders[0]

    def rest(self, seconds: float) -> None:
        """Lets time pass: a replica takes a turn when it is woken, or when it planned one."""
        until = self._clock.now + seconds
        while self._clock.now < until:
            ready = [n for n, host in enumerate(self.hosts) if self._due[n] <= self._clock.now]
            while ready:
                for n in ready:
                    self.hosts[n]._wake.clear()
                    self._due[n] = self.hosts[n].pump()
                    self.turns += 1
                ready = [n for n, host in enumerate(self.hosts) if host._wake.is_set()]
            self._clock.now = min(max(min(self._due), self._clock.now + 0.001), until)

    def propose(self, command: bytes, group: int = 1) -> None:
        """Proposes at the leader. It is committed within the next ``rest``."""
        self.leader.group(group).propose(command, timeout=10.0, done=self.outcomes.append)
        self._due[self.hosts.index(self.leader)] = self._clock.now

    def counts(self) -> dict[str, int]:
        """Returns the counts of all work since the beginning."""
        return {
            "turns": self.turns,
            "frames": sum(network.frames for network in self._networks),
            "messages": sum(network.messages for network in self._networks),
            "syncs": self._disk.syncs,
        }

    def close(self) -> None:
        for host in self.hosts:
            host.close()
