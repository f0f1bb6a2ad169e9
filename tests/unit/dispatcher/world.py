"""Shared helpers of the dispatcher's tests: a tiny format, and a joiner with a registry that forgets nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, LogFile
from photon.adapters.envelope import Envelope
from photon.adapters.logs.api import Block
from photon.adapters.logs.place_ids import CONTEXT_BYTES
from photon.batch.columns import RowIndexes
from photon.batch.events import Events
from photon.batch.verdicts import Verdicts
from photon.config.disk import RealDisk
from photon.dispatcher.core import Core
from photon.dispatcher.exports import Exports
from photon.dispatcher.intake import LineRules
from photon.dispatcher.limits import Limits
from photon.dispatcher.open_events import OpenEvents, StoredEvents
from photon.dispatcher.retry import Patience
from photon.dispatcher.state import State
from photon.idregistry.api import Digester, Kind
from photon.joiner.api import ForeignEvent, JoinAnswers, Outcome
from photon.joiner.verdicts import tag_of
from tests.unit.joiner.told import TakenBy, answers_of

HERE = "here"
DIGESTER = Digester(b"0123456789abcdef", "clicks")
HOUR = 3_600_000_000_000


class Words(Adapter):
    """``ID KEY HOUR``; an ID of ``-`` is none."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        parts = record.split(b" ")
        if len(parts) != 3:
            raise BadRecord(f"{len(parts)} words, not 3")
        return ForeignHeader(parts[1], int(parts[2]) * HOUR, None if parts[0] == b"-" else parts[0])

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return record

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return b'"x"'

    def primary_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return b'"x"'


def looked_up(
    outcomes: npt.ArrayLike,
    kinds: npt.ArrayLike = 0,
    tags: npt.ArrayLike = 0,
    owners: npt.ArrayLike = 0,
    names: tuple[str, ...] = (),
    times: npt.ArrayLike = 0,
) -> Verdicts:
    """A registry's answers; one value for all rows, or one each."""
    codes = np.asarray(outcomes, np.uint8)
    columns = ((kinds, np.uint8), (tags, np.uint32), (owners, np.uint8), (times, np.int64))
    kind, tag, owner, time = (np.full(len(codes), value, dtype) for value, dtype in columns)
    return Verdicts(codes, np.zeros(len(codes), np.uint64), kind, tag, owner, names, time)


def block(
    data: bytes, offset: int = 0, *, identity: str = "log1", path: str = "a.log", before: bytes | None = None
) -> Block:
    """``before``: the bytes in front of it; ``None`` means any, the same for all blocks of a log."""
    front = identity.encode().ljust(min(offset, CONTEXT_BYTES), b".") if before is None else before[-CONTEXT_BYTES:]
    return Block(identity, LogFile(path), offset, data, offset + len(data), before=front)


def core(
    state: State | None = None,
    *,
    patience: Patience | None = None,
    limits: Limits | None = None,
    seed: int = 0,
    **more: Any,
) -> Core:
    rules = LineRules(Words({}), DIGESTER, patience or Patience(once=True))
    usual = {
        "envelope": Envelope(),
        "datacentre": HERE,
        "random": random.Random(seed).random,
        "highs": state.highs() if state else {},
        "retry_bytes": state.retry_bytes if state else 0,
    }
    return Core(rules, limits=limits or Limits(), **usual | more)


class StoredRow(NamedTuple):
    """One row of the retry store."""

    event: ForeignEvent
    first_read_ns: int
    attempts: int = 0
    next_try_ns: int = 0
    trigger_ns: int = 0
    row_id: int = 0


def stored(rows: Sequence[StoredRow]) -> StoredEvents:
    """In columns."""
    _, *columns = zip(*rows, strict=True) if rows else ((),) * len(StoredRow._fields)
    first_read_ns, attempts, next_try_ns, trigger_ns, ids = (np.array(column, np.int64) for column in columns)
    return StoredEvents(ids, Events.of(row.event for row in rows), first_read_ns, attempts, next_try_ns, trigger_ns)


def stored_rows(found: StoredEvents) -> list[StoredRow]:
    """One by one."""
    columns = (found.first_read_ns, found.attempts, found.next_try_ns, found.trigger_ns, found.row_ids)
    return list(map(StoredRow, found.events.rows(), *(column.tolist() for column in columns)))


def opened(rows: Sequence[StoredRow]) -> tuple[OpenEvents, RowIndexes]:
    """The same events without a verdict, in the memory of no core."""
    table, columns = OpenEvents(), stored(rows)
    numbers = table.add(columns.events, None, columns.first_read_ns)
    table.attempts[numbers], table.row_id[numbers] = columns.attempts, columns.row_ids
    return table, numbers


def take(to: Core, what: Block, now_ns: int = 0, now: float = 0.0) -> None:
    for _ in to.intake.take(what, now_ns, now):
        pass


def exports(output: Path, state: State) -> Exports:
    return Exports(output, RealDisk(), state, output / ".photon", warn=lambda line: None)


@dataclass
class FakeRegistry:
    """First token wins; with moods for everything that may go wrong in between."""

    seed: int
    owners: dict[bytes, tuple[str, Kind, int]] = field(default_factory=dict)
    late: set[bytes] = field(default_factory=set)
    trouble: float = 0.0  # probability of an answer that is no verdict

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def answer(self, event: ForeignEvent) -> tuple[Outcome, TakenBy | None]:
        mood = self.random.random()
        if mood < self.trouble * 0.6:
            return self.random.choice([Outcome.RETRY, Outcome.NOT_YET, Outcome.TOO_NEW]), None
        tag = tag_of(event)
        if event.event_id in self.late:
            return Outcome.LATE, None
        if (owner := self.owners.get(event.event_id)) is not None:
            return Outcome.TAKEN, TakenBy(owner[0], owner[1], owner[0] == HERE and owner[2] == tag)
        kind = self.random.choice(list(Kind))
        self.owners[event.event_id] = (HERE, kind, tag)
        if mood < self.trouble:
            return Outcome.RETRY, None  # registered, but the answer is lost
        return Outcome(int(kind)), None

    def answers(self, events: Sequence[ForeignEvent]) -> JoinAnswers:
        if self.random.random() < self.trouble * 0.2:
            return JoinAnswers.alike(len(events), Outcome.RETRY, overloaded=True)
        both = [self.answer(event) for event in events]
        taken = {row: by for row, (_, by) in enumerate(both) if by is not None}
        return answers_of([outcome for outcome, _ in both], taken)
