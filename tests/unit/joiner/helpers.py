"""In-memory twins of a joiner's peers, and helpers to make columns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from photon.adapters.contract import Adapter, Filtered, ForeignHeader, Joined, LogFile
from photon.adapters.envelope import Envelope
from photon.batch.events import Events, ForeignEvent
from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore.api import EventLookUps, LookUpCode, PrimaryRecord, Progress
from photon.idregistry.api import I64, U8, U64, Answer, Digester, Opened, Slot
from photon.idregistry.witness import Witness, Witnessed
from photon.joiner.api import WAIT_NS, JoinAnswers
from photon.joiner.copies.shipping import Copying
from photon.joiner.engine import JoinerEngine, JoinerLimits, Surroundings
from photon.joiner.rows import Rows
from photon.joiner.shell import ShellLimits
from photon.joiner.slot.slot import AGES, Ages, SlotPaths
from photon.joiner.verdicts import envelope_lines
from tests.simulation.world.registry import ModelRegistry

DIGESTER = Digester(b"key", "clicks")
LOG = LogFile("clicks.log")
SLOT = Slot("s0", "dc0", "here:1")


class Died(Exception):
    """Raised by the injected ``die`` instead of ending the tests."""


def rows_for(ids: Sequence[bytes], token: int, *, kind: int = 1, text: bytes = b"") -> Rows:
    """One would-be record for each id."""
    n = len(ids)
    return Rows(
        digests=DIGESTER.digests(ids),
        times=np.arange(n, dtype=np.int64),
        tokens=np.full(n, token, dtype=np.uint64),
        kinds=np.full(n, kind, dtype=np.uint8),
        tags=np.arange(n, dtype=np.uint32),
        generations=np.zeros(n, dtype=np.uint32),
        lines=[b'{"id":"%b","token":"%016x"%b}\n' % (each, token, text) for each in ids],
    )


def answers_of(codes: Sequence[int], *, datacentre: str = "dc0", tags: Sequence[int] | None = None) -> Verdicts:
    """Answers, with an owner for each taken id."""
    n = len(codes)
    return Verdicts(
        outcomes=np.array(codes, dtype=np.uint8),
        owner_tokens=np.zeros(n, dtype=np.uint64),
        owner_kinds=np.ones(n, dtype=np.uint8),
        owner_tags=np.array(tags if tags is not None else [0] * n, dtype=np.uint32),
        owner_datacentres=np.zeros(n, dtype=np.uint8),
        datacentres=(datacentre,),
        owner_times=np.zeros(n, dtype=np.int64),
    )


class FakeRegistry:
    """The simulations' model behind the real interface, without a network. ``down`` shards answer UNKNOWN; all answer
    TOO_NEW when their clock is ``behind``."""

    def __init__(self, shards: int = 2) -> None:
        self.model = ModelRegistry(shards, checks_stale=True)
        self.down: set[int] = set()
        self.behind = False
        self.inserts = 0
        self.openings = 0
        self.unknown_openings = 0
        self.unknown_witnesses = 0
        self.extensions = 0
        self.announced: tuple[Slot, list[int]] | None = None

    async def open_slot(self, slot: Slot, last: int, nonce: bytes) -> Opened | None:
        self.openings += 1
        opened = self.model.open_slot(slot, last, nonce)
        if self.unknown_openings:
            self.unknown_openings -= 1
            return None
        return opened

    async def read_witness(self, slot: str) -> Witnessed | None:
        if self.unknown_witnesses:
            self.unknown_witnesses -= 1
            return None
        return self.model.read_witness(slot)

    async def extend_witness(self, slot: str, incarnation: int, end: Witness, to: Witness) -> Witnessed | None:
        self.extensions += 1
        extended = self.model.extend_witness(slot, incarnation, end, to)
        if self.unknown_witnesses:
            self.unknown_witnesses -= 1
            return None
        return extended

    def announce(self, slot: Slot, incarnations: Sequence[int]) -> None:
        self.announced = (slot, list(incarnations))

    async def insert(self, inserts: Ids, *, timeout: float) -> Verdicts:
        assert self.announced is not None, "announce comes before the first insert"
        slot, incarnations = self.announced
        await asyncio.sleep(0)
        self.inserts += 1
        n = len(inserts.tokens)
        answers = answers_of([Answer.UNKNOWN] * n)
        names: list[str] = ["dc0"]
        for row in range(n):
            digest = inserts.digests[16 * row : 16 * row + 16]
            if self.behind:
                answers.outcomes[row] = Answer.TOO_NEW
            if self.behind or self.model.shard_of(digest) in self.down:
                continue
            code, owner = self.model.insert(
                slot,
                incarnations[-1],
                digest,
                int(inserts.times[row]),
                int(inserts.tokens[row]),
                int(inserts.kinds[row]),
                int(inserts.tags[row]),
            )
            answers.outcomes[row] = code
            if owner is not None:
                if owner.datacentre not in names:
                    names.append(owner.datacentre)
                answers.owner_kinds[row], answers.owner_tags[row] = owner.kind, owner.tag
                answers.owner_datacentres[row] = names.index(owner.datacentre)
        return replace(answers, datacentres=tuple(names))

    async def clear(self, digests: bytes, times: I64, tokens: U64, *, timeout: float) -> U8:
        codes = []
        for row in range(len(tokens)):
            digest = digests[16 * row : 16 * row + 16]
            down = self.model.shard_of(digest) in self.down
            codes.append(Answer.UNKNOWN if down else self.model.clear(digest, int(times[row]), int(tokens[row])))
        return np.array(codes, dtype=np.uint8)

    async def close(self) -> None:
        return None


class FakeStore:
    """key -> record, in memory; ``answers`` overrides the meaning of a miss."""

    def __init__(
        self, records: dict[bytes, bytes], *, miss: LookUpCode = LookUpCode.ABSENT, read_past_ns: int = 0
    ) -> None:
        self.records = records
        self.miss = miss
        self.read_past_ns = read_past_ns

    async def look_up(
        self, keys: Sequence[bytes], as_of: Sequence[int], times: Sequence[int] | None = None
    ) -> EventLookUps:
        found = [self.records.get(key) for key in keys]
        return EventLookUps.of(
            [self.miss if record is None else LookUpCode.FOUND for record in found],
            [None if r is None else PrimaryRecord(r, LogFile("queries.log"), 7) for r in found],
        )

    async def progress(self) -> Progress:
        return Progress(read_past_ns=self.read_past_ns)

    async def close(self) -> None:
        return None


class TextAdapter(Adapter):
    """A primary record is "key payload"; some payloads mean trouble."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return ForeignHeader(record, 0)

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return record.split(b" ")[0]

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return b'"%b"' % record

    def primary_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return b'"%b"' % record

    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Filtered:
        if primary.endswith(b"filtered"):
            return Filtered("a rule says so")
        if primary.endswith(b"raises"):
            raise RuntimeError("boom")
        if primary.endswith(b"nonsense"):
            return 17  # type: ignore[return-value]
        if primary.endswith(b"notjson"):
            return Joined(b"{", b"{}")
        return super().join(foreign, foreign_file, primary, primary_file)


def event(event_id: bytes, key: bytes, *, record: bytes = b"click", offset: int = 0, as_of: int = 0) -> ForeignEvent:
    """A foreign event; with ``as_of`` 0 a missing primary makes it unmatched at once."""
    return ForeignEvent(event_id, DIGESTER.digest(event_id), 1, key, record, LOG, offset, as_of)


WAIT = WAIT_NS
NONCES = count()


def die(reason: str) -> NoReturn:
    raise Died(reason)


class Engine(JoinerEngine):
    """Also takes events one by one."""

    async def join(self, events: Events | Sequence[ForeignEvent], *, timeout: float) -> JoinAnswers:
        batch = events if isinstance(events, Events) else Events.of(events)
        return await super().join(batch, timeout=timeout)


def engine_at(
    path: Path,
    registry: Any,
    store: Any,
    *,
    slot: Slot = SLOT,
    limits: JoinerLimits | None = None,
    nonces: Any = None,
    ages: Ages = AGES,
    copying: Copying | None = None,
) -> Engine:
    """An engine on the real disk, with a fake registry and store."""
    draw = nonces or (lambda: b"nonce-%d" % next(NONCES))
    world = Surroundings(registry, store, RealDisk(), SystemClock(), die, draw)
    quick = limits or JoinerLimits(
        shell=ShellLimits(insert_timeout_s=1.0, tick_s=0.005), lock_wait_s=0.2, close_s=1.0
    )
    return Engine(
        slot,
        SlotPaths(path / "state", path / "out"),
        world,
        TextAdapter({}),
        envelope_lines(Envelope()),
        limits=quick,
        ages=ages,
        copying=copying,
    )


def lines_under(path: Path, kind: str) -> list[bytes]:
    """All lines of one kind of output, in order."""
    files = sorted((path / "out" / kind).glob("*.jsonl"))
    return [line for file in files for line in file.read_bytes().splitlines()]
